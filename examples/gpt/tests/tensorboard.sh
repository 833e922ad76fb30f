#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# TensorBoard reads the output of tools/metrics_to_tensorboard.py. Without its package this test is skipped.
#   sh tensorboard.sh <gpt> <folder for files> <python3> <metrics_to_tensorboard.py>
set -eu
gpt=$1
place=$2
python=$3
converter=$4
rm -rf "$place"
mkdir -p "$place"
cd "$place"

fail() {
  echo "FAILED: $*"
  cat said
  exit 1
}
"$gpt" --layers 1 --width 16 --heads 2 --context 16 --batch 2 --sample 0 --threads 1 --steps 3 --metrics lines.jsonl > said
status=0
"$python" "$converter" lines.jsonl run > said 2>&1 || status=$?
if [ "$status" = 4 ]; then
  cat said
  exit 4
fi
[ "$status" = 0 ] || fail "exit status $status of the converter"
"$python" -c '
import json
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
lines = [json.loads(line) for line in open("lines.jsonl")]
found = EventAccumulator("run")
found.Reload()
for name in set(lines[0]) - {"step", "time", "skipped"}:
    points = [(it.step, it.value) for it in found.Scalars(name)]
    assert [step for step, _ in points] == [1, 2, 3], (name, points)
    assert all(abs(value - line[name]) <= 1e-6 * abs(line[name]) for (_, value), line in zip(points, lines)), (name, points)
' > said 2>&1 || fail 'TensorBoard reads something else'
for bad in "lines.jsonl run" "none again" "said again"; do
  status=0
  # shellcheck disable=SC2086
  "$python" "$converter" $bad > said 2>&1 || status=$?
  { [ "$status" = 2 ] && [ "$(grep -c '^metrics_to_tensorboard: ' said)" = 1 ]; } || fail "exit status $status of $bad"
  echo 'no JSON' > said
done
