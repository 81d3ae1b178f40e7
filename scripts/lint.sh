#!/usr/bin/env bash
# Checks the format of all sources and, unless told `format`, runs clang-tidy over src/. A file that was clean before is not checked again: the
# key is the preprocessed text of the file and the checks (build/tidy).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh
need $build_packages $lint_packages

echo "== clang-format"
sources | xargs clang-format-19 --dry-run -Werror

if [ "${1:-}" = format ]; then
  echo "format passed"
  exit 0
fi

echo "== clang-tidy"
cmake --preset release --log-level=WARNING >/dev/null
git ls-files -- 'src/*.cpp' | grep -v '/avx\|/neon' | xargs -P "$(nproc)" -n 1 scripts/tidy_one.sh
echo "lint passed"
