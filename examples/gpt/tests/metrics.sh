#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The lines of --metrics, the object of --json, and their refusals.
#   sh metrics.sh <gpt> <folder for files> <python3>
set -eu
gpt=$1
place=$2
python=$3
small='--layers 1 --width 16 --heads 2 --context 16 --batch 2 --sample 0 --threads 1'
rm -rf "$place"
mkdir -p "$place"
cd "$place"

fail() {
  echo "FAILED: $*"
  cat said
  exit 1
}
trains() {
  # shellcheck disable=SC2086
  "$gpt" $small "$@" > said 2> errors || fail "exit status $? of $*: $(cat errors)"
}

# A line for each step, with a norm also where nothing is clipped: the norm changes no bit.
trains --steps 4 --report plain.json
trains --steps 4 --report measured.json --metrics lines.jsonl
"$python" -c '
import json
lines = [json.loads(line) for line in open("lines.jsonl")]
plain, measured = json.load(open("plain.json")), json.load(open("measured.json"))
assert [it["step"] for it in lines] == [1, 2, 3, 4], lines
assert [it["loss"] for it in lines] == plain["losses"][1:-1], (lines, plain)
assert plain["losses"] == measured["losses"] and plain["parameter_hash"] == measured["parameter_hash"]
assert all(it["norm"] > 0 and it["seconds"] > 0 and it["device_peak_bytes"] > 0 and it["loaded_bytes"] > 0 for it in lines), lines
assert (plain["steps"], plain["of"], plain["ended_by"]) == (4, 4, None), plain
' || fail 'lines of metrics'

# A resumed training continues its file, also where the file has lines of lost steps. Another training begins a new
# file.
trains --steps 4 --every 2 --checkpoint saved --metrics saved.jsonl
rm saved/generation-000002.manifest
printf '{"step": 4, "loss' >> saved.jsonl
trains --steps 4 --resume saved --metrics saved.jsonl
[ "$(sed 's/, .*//' saved.jsonl | tr '\n' ' ')" = '{"step": 1 {"step": 2 {"step": 3 {"step": 4 ' ] || fail "lines: $(cat saved.jsonl)"
trains --steps 1 --metrics saved.jsonl
[ "$(wc -l < saved.jsonl)" = 1 ] || fail 'lines of an older training'

# One object on standard output, over ranks and stages too, and the text on standard error.
object() {
  "$gpt" --width 16 --heads 2 --context 16 --batch 2 --threads 1 --steps 2 --json --metrics over.jsonl "$@" > said 2> errors ||
    fail "exit status $? of $*: $(cat errors)"
  "$python" -c '
import json
found = json.load(open("said"))
assert found["program"] == "gpt" and found["steps"] == 2 and len(found["parameter_hash"]) == 16 and found["memory"], found
losses = found["losses"][1:-1] if len(found["losses"]) == 4 else found["losses"]
assert [json.loads(line)["loss"] for line in open("over.jsonl")] == losses, losses
' || fail "the object of $*"
  grep -q '^step 2/2 ' errors || fail "no text beside the object of $*"
}
object --layers 1 --sample 0
object --layers 1 --ranks 2
object --layers 2 --stages 2 --microbatches 2

# The held-out loss after a resume is that of the loaded model.
trains --steps 4 --resume always --checkpoint always
last=$(sed -n 's/^held-out loss //p' said | tail -n 1)
trains --steps 4 --resume always --checkpoint always
[ "$(sed -n 's/^held-out loss //p' said | head -n 1)" = "$last" ] || fail "the held-out loss after a resume is not $last"

# No output follows a link, and a file that cannot be written is reported before the first step.
printf 'mine\n' > target
ln -s target link
for bad in link nowhere/lines.jsonl; do
  status=0
  # shellcheck disable=SC2086
  "$gpt" $small --steps 1 --metrics "$bad" > said 2>&1 || status=$?
  [ "$status" = 2 ] || fail "exit status $status of --metrics $bad"
  ! grep -q '^step' said || fail "a step was trained with --metrics $bad"
done
grep -q mine target || fail 'a file that a link points at'
[ "$("$gpt" --version)" = "$("$gpt" --version | grep '^gpt [0-9]*\.[0-9]*\.[0-9]* (chunkmem)$')" ] || fail 'no version'
