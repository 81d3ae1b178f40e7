#!/usr/bin/env bash
# Builds and runs test suites; the last line is `N passed, N failed`, and the exit status tells whether all passed.
#   test.sh            the Release build and the API tests
#   test.sh --all      and asan, tsan, aarch64, fuzz
#   test.sh --only X   one of release, api, asan, tsan, aarch64, fuzz
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh

suites="release api"
fuzz_seconds=15
case "${1:-}" in
  --all) suites="release api asan tsan aarch64 fuzz" ;;
  --only)
    suites=$2
    fuzz_seconds=${3:-$fuzz_seconds}
    ;;
  "") ;;
  *)
    echo "usage: ./dev test [--all]" >&2
    exit 2
    ;;
esac

jobs=$(nproc)
passed=0
failed=0
mkdir -p build

# Adds the counts of a JUnit file, or one failure when it is missing.
count() {
  local name=$1 file=$2 tests failures
  if [ ! -s "$file" ]; then
    echo "$name: no result" >&2
    failed=$((failed + 1))
    return
  fi
  read -r tests failures < <(python3 - "$file" <<'PY'
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
cases = list(root.iter("testcase"))
bad = sum(1 for c in cases if c.find("failure") is not None or c.find("error") is not None)
skipped = sum(1 for c in cases if c.find("skipped") is not None)
print(len(cases) - skipped, bad)
PY
  )
  passed=$((passed + tests - failures))
  failed=$((failed + failures))
  echo "$name: $((tests - failures)) passed, $failures failed"
}

build() {  # build PRESET TARGET...
  local preset=$1
  shift
  cmake --preset "$preset" --log-level=WARNING >/dev/null && cmake --build --preset "$preset" -j "$jobs" --target "$@"
}

run_ctest() {  # run_ctest PRESET
  local file=$PWD/build/$1-junit.xml
  rm -f "$file"
  ctest --test-dir "build/$1" -j "$jobs" -E "_NOT_BUILT$" --output-on-failure --output-junit "$file" | grep -vE '^ *[0-9]+/[0-9]+ Test.*Passed|^ *Start '
  count "$1" "$file"
}

test_binaries() { ninja -C "build/$1" -t targets all 2>/dev/null | sed -n 's/^\(test_[a-z]*\): phony$/\1/p'; }

for suite in $suites; do
  echo "== $suite ($(date +%T))"
  case $suite in
    release)
      need $build_packages $test_packages
      if build release all; then
        export GRISTMILL_DEFAULT_MODEL
        GRISTMILL_DEFAULT_MODEL=$(build/release/gristmill fetch) || GRISTMILL_DEFAULT_MODEL=""
        run_ctest release
      else
        count release /nonexistent
      fi
      ;;
    api)
      need $build_packages $test_packages
      build release gristmill || { count api /nonexistent; continue; }
      [ -x build/venv/bin/python ] || python3 -m venv build/venv
      build/venv/bin/pip install -q --disable-pip-version-check -r tests/api/requirements.txt
      rm -f build/api-junit.xml
      GRISTMILL_BIN=$PWD/build/release/gristmill GRISTMILL_TEST_MODEL=$PWD/tests/golden/tiny_llama.gguf \
        build/venv/bin/python -m pytest -q tests/api --junitxml build/api-junit.xml
      count api build/api-junit.xml
      ;;
    asan)
      need $build_packages $sanitizer_packages $fuzz_packages
      if build asan all; then
        GRISTMILL_DEFAULT_MODEL="" ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 run_ctest asan
      else
        count asan /nonexistent
      fi
      ;;
    tsan)
      need $build_packages $sanitizer_packages
      if build tsan test_base test_engine test_client; then
        GRISTMILL_DEFAULT_MODEL="" TSAN_OPTIONS=halt_on_error=1 run_ctest tsan
      else
        count tsan /nonexistent
      fi
      ;;
    aarch64)
      need $aarch64_packages
      # Not the client's: its tests start themselves again, which a machine without binfmt_misc cannot do under qemu.
      if build aarch64 test_base test_device test_weights test_model test_sample test_engine; then
        GRISTMILL_DEFAULT_MODEL="" run_ctest aarch64
      else
        count aarch64 /nonexistent
      fi
      ;;
    fuzz)
      # The targets are part of the asan build.
      need $build_packages $sanitizer_packages $fuzz_packages
      if build asan fuzz_targets; then
        for target in build/asan/tests/fuzz/fuzz_*; do
          [ -x "$target" ] && [ -f "$target" ] || continue
          name=${target##*/fuzz_}
          mkdir -p "build/fuzz/corpus/$name"
          dictionary=()
          [ ! -f "tests/fuzz/$name/$name.dict" ] || dictionary=("-dict=tests/fuzz/$name/$name.dict")
          if "$target" "${dictionary[@]}" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=3000 -print_final_stats=0 -verbosity=0 \
            -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" "tests/fuzz/$name/corpus" >"build/fuzz/$name.log" 2>&1; then
            passed=$((passed + 1))
            echo "fuzz $name: passed"
          else
            failed=$((failed + 1))
            tail -n 40 "build/fuzz/$name.log"
            echo "fuzz $name: failed"
          fi
        done
      else
        count fuzz /nonexistent
      fi
      ;;
    *)
      echo "unknown suite: $suite" >&2
      exit 2
      ;;
  esac
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
