# SPDX-License-Identifier: Apache-2.0
# A saved training over ranks resumes with the same ranks bit for bit, and with other numbers of ranks on the same
# batches.
# Usage: ranks_resume.sh <gpt> <folder for files> [<launcher of MPI>]
set -eu
gpt=$1
place=$2
launcher=${3:-}
small='--layers 2 --width 32 --heads 2 --context 32 --batch 2 --steps 6 --clip 2.5 --threads 1'
rm -rf "$place"
mkdir -p "$place"
cd "$place"

fail() {
  echo "FAILED: $*"
  cat said
  exit 1
}
# Every time of updates gives the same bits, so gpt prints the number of late or early updates.
expect_updates() {
  grep -q "^updates [1-9][0-9]* $([ "$1" = late ] && echo waited || echo came before)" said || fail "no update was $1"
}
# trains <words before gpt> -- <arguments>
trains() {
  "$@" > said 2>&1 || fail "exit status $? of $*"
}
loss_of() {
  sed -n "s|^.*step $1/6  loss \([0-9.]*\) .*|\1|p" "$2"
}
# The same batches: only rounding differs.
expect_close() {
  for step in 5 6; do
    awk -v a="$(loss_of $step said)" -v b="$(loss_of $step whole)" 'BEGIN { exit !(a > 1 && (a > b ? a - b : b - a) < 1e-5 * b) }' || fail "step $step of $*"
  done
}
resumed() {
  grep -q 'resumed from generation 2 ' said || fail "nothing was resumed by $*"
}

trains "$gpt" $small --ranks 4 --checkpoint saved --every 2
cp said whole
rm saved/generation-000003.manifest # as if it had ended behind step 4

# The same grouping, divided in another way, in chunks of another size: every bit of the run that never stopped.
trains "$gpt" $small --ranks 4 --shard 1 --chunk-bytes 64KiB --resume saved --verify
resumed '--ranks 4 --shard 1'
for step in 5 6; do [ "$(loss_of $step said)" = "$(loss_of $step whole)" ] || fail "the loss of step $step"; done

# The same with planned activations, and late or early updates.
for update in late early; do
  trains "$gpt" $small --ranks 4 --activations karma --update $update --resume saved --verify
  resumed "--update $update"
  expect_updates $update
  for step in 5 6; do [ "$(loss_of $step said)" = "$(loss_of $step whole)" ] || fail "the loss of step $step, $update"; done
done

trains "$gpt" $small --ranks 2 --accumulate 2 --activations karma --update late --resume saved
resumed '--ranks 2'
expect_updates late
expect_close '--ranks 2'
trains "$gpt" $small --accumulate 4 --sample 0 --resume saved
resumed 'one rank'
expect_close 'one rank'
if [ -n "$launcher" ]; then
  trains "$launcher" -np 2 "$gpt" $small --shard 2 --accumulate 2 --resume saved --checkpoint saved
  resumed 'processes'
  expect_close 'processes'
  grep -q 'saved generation' said || fail 'processes saved nothing'
fi

# A run that is always started by the same command begins in an empty folder.
trains "$gpt" $small --ranks 2 --resume always --checkpoint always
grep -q 'nothing to resume in always' said || fail 'a first run'

# Other batches, or a folder of another training, are refused by all ranks in a sentence.
status=0
"$gpt" $small --ranks 3 --resume saved > said 2>&1 || status=$?
[ "$status" = 2 ] || fail "exit status $status of --ranks 3"
grep -q 'of 8 rows in each step, and here are 6' said || fail 'no sentence on rows'
status=0
"$gpt" $small --ranks 2 --checkpoint saved > said 2>&1 || status=$?
[ "$status" = 2 ] || fail "exit status $status of a second training"
grep -q 'has checkpoints already' said || fail 'no sentence on the folder'
