#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh <top of the tree> <compiler>: each file beside this script must not compile, with a message that matches the
# `// expect: <regex>` of its first line, and must compile with -DCHUNKMEM_COMPILES (so it fails for that reason alone).
top=$1
compiler=$2
here=$(dirname "$0")

if [ $# -eq 3 ]; then
  file=$3
  expected=$(sed -n '1s|^// expect: ||p' "$file")
  compile="$compiler -std=c++20 -fsyntax-only -I$top/include"
  if [ -z "$expected" ]; then
    echo "$file: its first line is no '// expect: <regex>'"
    exit 1
  fi
  if output=$($compile "$file" 2>&1); then
    echo "$file: compiled, but must not"
    exit 1
  fi
  if ! printf '%s\n' "$output" | grep -E -q -e "$expected"; then
    printf '%s: no line of the output matches: %s\n%s\n' "$file" "$expected" "$output"
    exit 1
  fi
  if ! output=$($compile -DCHUNKMEM_COMPILES "$file" 2>&1); then
    printf '%s: must compile with -DCHUNKMEM_COMPILES\n%s\n' "$file" "$output"
    exit 1
  fi
  echo "ok $file"
  exit 0
fi

set -- "$here"/*.cpp
[ -e "$1" ] || { echo "no file in $here"; exit 1; }
printf '%s\n' "$@" | xargs -n 1 -P 2 sh "$0" "$top" "$compiler" || { echo "compile_fail: failed"; exit 1; }
echo "compile_fail: $# files"
