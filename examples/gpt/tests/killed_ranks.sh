#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Processes that train beyond the device are killed, and the training goes on, also on another number of ranks:
#   sh killed_ranks.sh GPT FOLDER TRIALS LAUNCHER...
# Each trial starts three ranks with planned activations and late or early updates, which save after every step. One rank
# is killed after some steps. Three ranks go on to the bits of a run that never stopped, and six to the same loss.
set -eu
gpt=$1
folder=$2
trials=$3
shift 3
model="--layers 3 --width 32 --heads 2 --context 32 --steps 30 --clip 2 --threads 1 --activations karma"

fail() {
  echo "killed_ranks: $*" >&2
  exit 1
}
last_loss() {
  sed -n 's|^.*step 30/30  loss \([0-9.]*\) .*|\1|p' "$1"
}

resumed=0
trial=0
while [ "$trial" -lt "$trials" ]; do
  trial=$((trial + 1))
  update=$([ $((trial % 2)) -eq 0 ] && echo early || echo late)
  rm -rf "$folder" "$folder.other"
  : >"$folder.txt"
  # shellcheck disable=SC2086
  "$@" -np 3 "$gpt" $model --batch 2 --shard 3 --update "$update" --checkpoint "$folder" --every 1 >"$folder.txt" 2>&1 &
  launcher=$!
  wanted=$((2 + trial * 7 % 23)) # saves before the death
  while kill -0 "$launcher" 2>/dev/null; do
    [ "$(grep -c "saved generation" "$folder.txt" || true)" -ge "$wanted" ] && break
    sleep 0.02
  done
  victim=$(cut -d ' ' -f $((1 + trial % 3)) "/proc/$launcher/task/$launcher/children" 2>/dev/null || true)
  [ -n "$victim" ] || fail "trial $trial: the ranks ended before one was killed: $(tail -3 "$folder.txt")"
  kill -9 "$victim" 2>/dev/null || true
  if wait "$launcher"; then fail "trial $trial: a killed rank was not missed"; fi
  cp -r "$folder" "$folder.other"
  # shellcheck disable=SC2086
  "$gpt" $model --batch 2 --ranks 3 --update "$update" --resume "$folder" --checkpoint "$folder" --verify \
    >"$folder.three.txt" 2>&1 || fail "trial $trial: $(cat "$folder.three.txt")"
  grep -q "resumed from generation" "$folder.three.txt" || fail "trial $trial did not resume: $(cat "$folder.three.txt")"
  grep -q "^updates [1-9][0-9]* $([ "$update" = late ] && echo waited || echo came before)" "$folder.three.txt" ||
    fail "trial $trial: no update was $update: $(cat "$folder.three.txt")"
  grep -q "losses, 32 identical" "$folder.three.txt" || fail "trial $trial: other bits: $(cat "$folder.three.txt")"
  # shellcheck disable=SC2086
  "$gpt" $model --batch 1 --ranks 6 --update "$update" --resume "$folder.other" >"$folder.six.txt" 2>&1 ||
    fail "trial $trial: $(cat "$folder.six.txt")"
  awk -v a="$(last_loss "$folder.three.txt")" -v b="$(last_loss "$folder.six.txt")" \
    'BEGIN { exit !(a > 1 && (a > b ? a - b : b - a) < 1e-4 * b) }' || fail "trial $trial: another loss on six ranks"
  resumed=$((resumed + 1))
done
echo "killed_ranks: $resumed of $trials trainings went on"
