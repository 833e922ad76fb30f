#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh <top of the tree> <component=include folder>... <compiler...>: every header compiles alone, included twice,
# without a warning, while every single capital letter is a macro (users have such macros, so no header of ours may use
# them as names). Headers of cmake/opt_in_headers.txt are tried where their component is given, and named where it is
# not; what they include uses such names itself, so theirs are looked for as words.
warnings="-std=c++20 -Wall -Wextra -Wconversion -Wshadow -Werror -fsyntax-only"
flags="$warnings"
for letter in A B C D E F G H I J K L M N O P Q R S T U V W X Y Z; do
  flags="$flags -D$letter=1"
done

if [ "$1" = --one ]; then # --one <top> <header> <components> <compiler...>
  top=$2
  header=$3
  components=$4
  shift 4
  component=$(sed -n "s|^${header#chunkmem/} ||p" "$top/cmake/opt_in_headers.txt")
  if [ -n "$component" ]; then
    case " $components " in
      *" $component="*) ;;
      *) echo "SKIPPED: $header, there is no $component"; exit 0 ;;
    esac
    if sed 's|//.*||; s|"[^"]*"||g' "$top/include/$header" | grep -nE '(^|[^A-Za-z0-9_])[A-Z]($|[^A-Za-z0-9_])'; then
      echo "$header uses a single capital letter as a name"
      exit 1
    fi
    flags="$warnings"
    for each in $components; do
      # The compilers' own folder, once more and earlier, would hide the standard library.
      [ "${each#*=}" = /usr/include ] || flags="$flags -isystem ${each#*=}"
    done
    if [ "$component" = thrust ]; then flags="$flags -DTHRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP"; fi
  fi
  # shellcheck disable=SC2086  # flags is a list of words
  for compiler in "$@"; do
    printf '#include <%s>\n#include <%s>\n' "$header" "$header" |
      $compiler $flags "-I$top/include" -x c++ - || { echo "$header does not compile alone with $compiler"; exit 1; }
  done
  exit 0
fi

top=$1
shift
components=
while [ $# -gt 0 ]; do
  case $1 in
    *=*) components="$components $1"; shift ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || { echo "usage: check.sh <top of the tree> <component=include folder>... <compiler...>"; exit 1; }
headers=$(cd "$top/include" && find chunkmem -name '*.hpp' | sort)
[ -n "$headers" ] || { echo "no header in $top/include/chunkmem"; exit 1; }
# What another header includes before anything else is compiled alone with that one: nothing stands before it there either.
leaders=$(cd "$top/include" && for header in $headers; do
  if ! grep -q "^${header#chunkmem/} " "$top/cmake/opt_in_headers.txt"; then
    sed -n '\|^[[:space:]]*$|d; \|^//|d; \|^#pragma once|d; s|^#include <\(chunkmem/[^>]*\)>.*|\1|p; q' "$header"
  fi
done | sort -u)
alone=$(printf '%s\n' "$headers" | grep -vxF "$leaders")
printf '%s\n' "$alone" | xargs -P 2 -I HEADER sh "$0" --one "$top" HEADER "$components" "$@" ||
  { echo "headers: failed"; exit 1; }
echo "headers: $(printf '%s\n' "$headers" | wc -l) alone, twice, with each of: $* ($(printf '%s\n' "$alone" | wc -l) units: the others come first in one of those)"
