#!/usr/bin/env bash
# Runs the benchmarks: kernels, forward, context, tokenizer, startup, peers, soak (docs/performance.md says what each prints).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh
need $build_packages $bench_packages $model_packages

cmake --preset bench --log-level=WARNING >/dev/null
cmake --build --preset bench -j "$(nproc)"
model=$(build/bench/gristmill fetch)

python_with() {  # a virtual environment with the named packages
  [ -x build/venv/bin/python ] || python3 -m venv build/venv
  build/venv/bin/pip install -q --disable-pip-version-check "$@"
}

name=${1:-all}
[ $# -gt 0 ] && shift
case "$name" in
  kernels) build/bench/bench/gristmill_bench_kernels "$@" ;;
  forward) build/bench/bench/gristmill_bench_forward "$model" "$@" ;;
  context)
    for config in ${1:-bench/configs/*}; do build/bench/bench/gristmill_bench_context "$config" "${@:2}"; done
    ;;
  tokenizer)  # [MODEL...] [--text FILE]...
    [ $# -gt 0 ] || set -- "$model"
    case " $* " in
      *" --text "*) ;;
      *)
        git ls-files '*.md' 'src/*.cpp' 'src/*.h' | xargs cat >build/bench/tokenizer.txt
        set -- "$@" --text build/bench/tokenizer.txt
        ;;
    esac
    build/bench/bench/gristmill_bench_tokenizer "$@"
    ;;
  startup) python3 bench/startup.py build/bench/gristmill "$model" "$@" ;;
  peers)
    python_with xllamacpp gguf
    if [ "${1:-}" = --type ]; then  # q4_0, q8_0 or bf16 made from the default model
      [ -f "build/bench/$2.gguf" ] || build/venv/bin/python bench/requantized.py "$model" "$2" "build/bench/$2.gguf"
      model=build/bench/$2.gguf
      shift 2
    fi
    build/venv/bin/python bench/peers.py --gristmill build/bench/gristmill --model "$model" "$@"
    ;;
  soak) python3 bench/soak.py build/bench/gristmill "$model" "$@" ;;
  all) for each in kernels forward context tokenizer startup peers; do "$0" "$each"; done ;;
  *)
    echo "unknown benchmark: $name (kernels, forward, context, tokenizer, startup, peers, soak)" >&2
    exit 2
    ;;
esac
