#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a training with late or early updates, which has to say that some were: every time of updates gives the same bits.
#   sh updates.sh late|early COMMAND...
set -eu
case $1 in
  late) said='updates [1-9][0-9]* waited for the next use of their weights' ;;
  early) said='updates [1-9][0-9]* came before the norm was known, and stayed' ;;
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
