#!/usr/bin/env bash
# clang-tidy over one file of the release build, unless this very text was clean before.
set -euo pipefail
file=$1
mkdir -p build/tidy
key=$( (cat .clang-tidy; python3 scripts/preprocessed.py build/release/compile_commands.json "$file") | sha256sum | cut -c1-32)
[ -e "build/tidy/$key" ] && exit 0
clang-tidy-19 --quiet -p build/release "$file" 2> >(grep -vE 'warnings? generated|Suppressed|Use -header-filter' >&2)
touch "build/tidy/$key"
