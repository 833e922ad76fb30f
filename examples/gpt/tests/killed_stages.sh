#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Processes of a pipeline are killed, and the training goes on with the same bits:
#   sh killed_stages.sh GPT FOLDER TRIALS LAUNCHER...
# Each trial starts three stages of 2BW, which save after every step. One stage is killed after some steps; the launcher
# then ends the others. The stages go on from the newest checkpoint that all of them have, to the bits of one device.
set -eu
gpt=$1
folder=$2
trials=$3
shift 3
model="--layers 4 --width 32 --heads 2 --context 32 --batch 2 --steps 30 --microbatches 4 --stages 3 --schedule 2bw"
model="$model --precision bf16 --clip 0.5"

fail() {
  echo "killed_stages: $*" >&2
  exit 1
}

resumed=0
trial=0
while [ "$trial" -lt "$trials" ]; do
  trial=$((trial + 1))
  rm -rf "$folder"
  : >"$folder.txt"
  # shellcheck disable=SC2086
  "$@" -np 3 "$gpt" $model --checkpoint "$folder" --every 1 >"$folder.txt" 2>&1 &
  launcher=$!
  wanted=$((2 + trial * 7 % 23)) # saves before the death
  while kill -0 "$launcher" 2>/dev/null; do
    [ "$(grep -c "saved generation" "$folder.txt" || true)" -ge "$wanted" ] && break
    sleep 0.02
  done
  children=$(cat "/proc/$launcher/task/$launcher/children" 2>/dev/null || true)
  # shellcheck disable=SC2086
  set -- $children "@@" "$@"
  count=0
  victim=
  while [ "$1" != "@@" ]; do
    [ "$count" -eq $((trial % 3)) ] && victim=$1
    count=$((count + 1))
    shift
  done
  shift
  [ -n "$victim" ] || fail "trial $trial: the stages ended before one was killed: $(tail -3 "$folder.txt")"
  kill -9 "$victim" 2>/dev/null || true
  if wait "$launcher"; then fail "trial $trial: a killed stage was not missed"; fi
  # shellcheck disable=SC2086
  out=$("$gpt" $model --resume "$folder" --checkpoint "$folder" --verify 2>&1) || fail "trial $trial: $out"
  echo "$out" | grep -q "resumed from generation" || fail "trial $trial did not resume: $out"
  echo "$out" | grep -q "30 losses, 30 identical" || fail "trial $trial: other bits: $out"
  resumed=$((resumed + 1))
done
echo "killed_stages: $resumed of $trials trainings went on with the same bits"
