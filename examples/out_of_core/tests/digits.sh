#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains on real pictures: sh digits.sh <python3> <out_of_core> <folder for the pictures>. Status 4: python3 has none.
set -eu
python=$1 program=$2 folder=$3
mkdir -p "$folder"
if ! "$python" "$(dirname "$0")/../digits.py" > "$folder/digits.csv" 2> "$folder/why.txt"; then
  cat "$folder/why.txt"
  grep -q '^SKIPPED' "$folder/why.txt" && exit 4
  exit 1
fi
exec "$program" --pictures "$folder/digits.csv" --batch 16 --steps 24 --least-accuracy 75 --verify
