#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Is what the README shows of the first command still what it prints? The GPT trains as it does there, and everything but times is compared with the
# record: sh output.sh <gpt> <record> [write]. On another text than the record's (Debian's licences) there is nothing to compare, so it is skipped.
set -eu
printed=$("$1" --verify | sed '/ tokens\/s /d; /^waited /d')
if [ "${3:-}" = write ]; then
  printf '%s\n' "$printed" >"$2"
elif [ "$(printf '%s\n' "$printed" | head -n 1)" != "$(head -n 1 "$2")" ]; then
  echo "SKIPPED: $(printf '%s\n' "$printed" | head -n 1)"
  exit 4
elif ! printf '%s\n' "$printed" | diff "$2" -; then
  echo "write it anew with: sh tests/pages/output.sh $1 $2 write; then the README (ctest -R docs.numbers says which lines)"
  exit 1
fi
