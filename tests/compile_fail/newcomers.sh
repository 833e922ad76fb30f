#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# newcomers.sh <top of the tree> <compiler and its words...>: the mistakes of newcomers, each with its remedy in the
# first ten lines of the compiler's output. Each file of newcomers/ matches the `// remedy: <regex>` of its second line
# there, and compiles with -DCHUNKMEM_COMPILES; `// standard: 17` in its third line is the standard to compile it with,
# and then it has no repaired form.
top=$1
shift
here=$(dirname "$0")
count=0
for file in "$here"/newcomers/*.cpp; do
  remedy=$(sed -n '2s|^// remedy: ||p' "$file")
  standard=$(sed -n '3s|^// standard: ||p' "$file")
  if [ -z "$remedy" ]; then
    echo "$file: its second line is no '// remedy: <regex>'"
    exit 1
  fi
  if output=$("$@" "-std=c++${standard:-20}" "-I$top/include" "$file" 2>&1); then
    echo "$file: compiled, but must not"
    exit 1
  fi
  if ! printf '%s\n' "$output" | head -n 10 | grep -E -q -e "$remedy"; then
    printf '%s: no remedy in the first ten lines: %s\n%s\n' "$file" "$remedy" "$output"
    exit 1
  fi
  if [ -z "$standard" ] && ! output=$("$@" -std=c++20 "-I$top/include" -DCHUNKMEM_COMPILES "$file" 2>&1); then
    printf '%s: must compile with -DCHUNKMEM_COMPILES\n%s\n' "$file" "$output"
    exit 1
  fi
  count=$((count + 1))
done
if [ $count -lt 10 ]; then
  echo "newcomers: $count mistakes, ten are wanted"
  exit 1
fi
echo "newcomers: $count mistakes, each with its remedy in ten lines of $1"
