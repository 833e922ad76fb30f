#!/bin/sh
# check.sh <top of the tree> <compiler...>: every header compiles alone, included twice, without a warning, while every
# single capital letter is a macro (users have such macros, so no header of ours may use them as names).
flags="-std=c++20 -Wall -Wextra -Wconversion -Wshadow -Werror -fsyntax-only"
for letter in A B C D E F G H I J K L M N O P Q R S T U V W X Y Z; do
  flags="$flags -D$letter=1"
done

if [ "$1" = --one ]; then # --one <top> <header> <compiler...>
  top=$2
  header=$3
  shift 3
  # shellcheck disable=SC2086  # flags is a list of words
  for compiler in "$@"; do
    printf '#include <%s>\n#include <%s>\n' "$header" "$header" |
      $compiler $flags "-I$top/include" -x c++ - || { echo "$header does not compile alone with $compiler"; exit 1; }
  done
  exit 0
fi

top=$1
shift
[ $# -gt 0 ] || { echo "usage: check.sh <top of the tree> <compiler...>"; exit 1; }
headers=$(cd "$top/include" && find chunkmem -name '*.hpp' | sort)
[ -n "$headers" ] || { echo "no header in $top/include/chunkmem"; exit 1; }
printf '%s\n' "$headers" | xargs -P 2 -I HEADER sh "$0" --one "$top" HEADER "$@" || { echo "headers: failed"; exit 1; }
echo "headers: $(printf '%s\n' "$headers" | wc -l) alone, twice, with each of: $*"
