#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh <top of the tree> <compiler>: each file beside this script must not compile, with a message that matches the
# `// expect: <regex>` of its first line, and must compile with -DCHUNKMEM_COMPILES (so it fails for that reason alone).
#
# Each file that must not compile is a compilation of its own. Those that must are one compilation for each list of
# includes, every file in a namespace of its own. The manager's header is precompiled for the files that include it.
# CHECKPOINT_FLAGS has the include folders of JSON and xxHash; WITHOUT_CHECKPOINT says why there are none.
top=$1
compiler=$2
here=$(cd "$(dirname "$0")" && pwd)

if [ $# -eq 4 ]; then
  scratch=$3
  file=$4
  compile="$compiler -std=c++20 -fsyntax-only -I$top/include ${CHECKPOINT_FLAGS:-}"
  if grep -q '^#include <chunkmem/manager/manager.hpp>' "$file"; then
    compile="$compile -include $scratch/manager.hpp"
  fi
  case $file in "$scratch"/*)
    if ! output=$($compile -DCHUNKMEM_COMPILES "$file" 2>&1); then
      printf '%s\nmust compile with -DCHUNKMEM_COMPILES, and do not:\n%s\n' "$output" "$(grep '^#include "' "$file")"
      exit 1
    fi
    exit 0
    ;;
  esac
  expected=$(sed -n '1s|^// expect: ||p' "$file")
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
  echo "ok $file"
  exit 0
fi

set -- "$here"/*.cpp
[ -e "$1" ] || { echo "no file in $here"; exit 1; }
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
if [ -n "${WITHOUT_CHECKPOINT:-}" ]; then
  echo "LEFT OUT: files that include checkpoint/: $WITHOUT_CHECKPOINT"
  # shellcheck disable=SC2046  # no name has a space
  set -- $(grep -L '^#include <chunkmem/checkpoint/' "$@")
fi
for file in "$@"; do
  unit=$scratch/$(grep '^#include' "$file" | cksum | tr ' ' '_').cpp
  [ -e "$unit" ] || grep '^#include' "$file" >"$unit"
  printf 'namespace of_%s {\n#include "%s"\n}\n' "$(basename "$file" .cpp)" "$file" >>"$unit"
done
if [ "$(cat "$scratch"/*.cpp | grep -c '^#include "')" -ne $# ]; then
  echo "not every file is in one of the units that must compile"
  exit 1
fi
echo '#include <chunkmem/manager/manager.hpp>' >"$scratch/manager.hpp"
if ! $compiler -std=c++20 "-I$top/include" -x c++-header "$scratch/manager.hpp" -o "$scratch/manager.hpp.gch"; then
  echo "compile_fail: the manager does not compile"
  exit 1
fi
printf '%s\n' "$scratch"/*.cpp "$@" | xargs -n 1 -P 2 sh "$0" "$top" "$compiler" "$scratch" ||
  { echo "compile_fail: failed"; exit 1; }
echo "compile_fail: $# files"
