#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every problem: one sentence on stderr, exit code 2, no numbers on stdout, and none in the file. All processes end.
#   sh refusals.sh <program> <folder to write to> <machine's file> <mpirun and its options...>
program="$1"
folder="$2"
machine="$3"
shift 3
rm -rf "$folder"
mkdir -p "$folder/folder" || exit 1
file="$folder/cluster.json"
failed=0

# refuses <processes> <words that the sentence has> <arguments...>, after mpirun and its options
start="$*"
refuses()
{
  processes="$1"
  words="$2"
  shift 2
  # shellcheck disable=SC2086  # words of a command
  $start -np "$processes" "$program" "$@" >"$folder/out" 2>"$folder/error"
  code=$?
  sentences=$(grep -c '^probe_links: ' "$folder/error")
  if [ $code -ne 2 ] || [ "$sentences" -ne 1 ] || ! grep -qF -e "$words" "$folder/error" ||
    grep -q 'MB/s' "$folder/out" || [ -s "$file" ]; then
    echo "not refused as it should be (exit code $code, wanted 2 and '$words'): $*"
    cat "$folder/error"
    failed=1
  fi
}

refuses 1 "one process has no link" --out "$file"
refuses 2 "--out is missing" --each-rank-a-node
refuses 2 "cannot be written" --out "$folder/no/such/folder/it.json"
refuses 2 "cannot be written" --out "$folder/folder"
refuses 2 "--size '12'" --out "$file" --size 12
refuses 2 "--rounds '0'" --out "$file" --rounds 0
refuses 2 "--colour" --out "$file" --colour
refuses 2 "no-such.json" --out "$file" --machine "$folder/no-such.json"
refuses 2 "start one process for each device" --out "$file" --machine "$machine"
refuses 2 "leaves the host nothing" --out "$file" --device-bytes 1000000000000000
exit $failed
