#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a training with late, early or measured updates. The program has to print their number, or the share on the
# device: the bits are the same for every time and place of updates.
#   sh updates.sh late|early|measured COMMAND...
set -eu
case $1 in
  late) said='updates [1-9][0-9]* waited for the next use of their weights' ;;
  early) said='updates [1-9][0-9]* came before the norm was known, and stayed' ;;
  measured) said='updates [0-9.]*% on the device (held); [0-9.e+-]* ms a step with 0.0%, [0-9.e+-]* ms a step with 100.0%' ;;
esac
shift
status=0
output=$("$@" 2>&1) || status=$?
printf '%s\n' "$output"
[ "$status" -eq 0 ] || exit "$status"
printf '%s\n' "$output" | grep -q "$said" || {
  echo "FAILED: no line says: $said"
  exit 1
}
