#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that the README's output of the first command is still that of the program. The GPT trains as in the README,
# and everything but times is compared with the record: sh output.sh <gpt> <record> [write]. The hash of the parameters
# is compared only with that of the second training: Eigen cuts sums by the caches of the processor, so another
# processor has other last bits. On another text than the record's (Debian's licences) there is nothing to compare, so
# the test is skipped.
set -eu
without_hash() { sed 's/ identical (\([0-9a-f]*\), \1)/ identical/'; }
record=$(mktemp)
trap 'rm -f "$record"' EXIT
printed=$("$1" --verify | sed '/ tokens\/s /d; /^waited /d; /^rates /d; /^expect /d; /^  seconds /d; /^  likely cause, seconds/d')
if [ "${3:-}" = write ]; then
  printf '%s\n' "$printed" >"$2"
elif [ "$(printf '%s\n' "$printed" | head -n 1)" != "$(head -n 1 "$2")" ]; then
  echo "SKIPPED: $(printf '%s\n' "$printed" | head -n 1)"
  exit 4
elif ! { without_hash <"$2" >"$record" && printf '%s\n' "$printed" | without_hash | diff "$record" -; }; then
  echo "write it anew with: sh tests/pages/output.sh $1 $2 write; then the README (ctest -R docs.numbers says which lines)"
  exit 1
fi
