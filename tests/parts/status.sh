#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The status of a test program: sh status.sh <program with the tests of core>
# Four failures are no skipped program, which ctest would take for no failure: Catch2's own status is their number.
program=$1
expect() {
  "$program" "$2" >/dev/null 2>&1
  status=$?
  if [ $status -ne "$1" ]; then
    echo "status: $program $2 returned $status, and not $1" >&2
    exit 1
  fi
}
expect 1 '[.four_failures]'
expect 4 '[.skipped]'
expect 2 'no such case'
echo "status: 1 for four failures, 4 for skipped cases, 2 for none"
