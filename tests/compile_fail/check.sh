#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh <top of the tree> <compiler>: each file beside this script must not compile, with a message that matches the
# `// expect: <regex>` of its first line, and must compile with -DCHUNKMEM_COMPILES (so it fails for that reason alone).
# What the files include is compiled once, which saves a quarter of the time.
top=$1
compiler=$2
here=$(dirname "$0")

if [ $# -eq 4 ]; then
  file=$4
  expected=$(sed -n '1s|^// expect: ||p' "$file")
  compile="$compiler -std=c++20 -fsyntax-only -I$top/include -include $3"
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
included=$(mktemp -d)/included.hpp
trap 'rm -r "$(dirname "$included")"' EXIT
grep -h '^#include' "$@" | sort -u >"$included"
$compiler -std=c++20 "-I$top/include" -x c++-header "$included" -o "$included.gch" || exit 1
printf '%s\n' "$@" | xargs -n 1 -P 2 sh "$0" "$top" "$compiler" "$included" || { echo "compile_fail: failed"; exit 1; }
echo "compile_fail: $# files"
