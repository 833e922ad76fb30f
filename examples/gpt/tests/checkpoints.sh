# SPDX-License-Identifier: Apache-2.0
# The refusals of --checkpoint and --resume, in a sentence each, with every file left as it was.
# Usage: checkpoints.sh <gpt> <folder for files>
set -eu
gpt=$1
place=$2
small='--layers 1 --heads 2 --context 16 --batch 2 --sample 0 --threads 1'
width=16
rm -rf "$place"
mkdir -p "$place"
cd "$place"

fail() {
  echo "FAILED: $*"
  cat said
  exit 1
}

# refused <piece of the sentence> <arguments>: exit status 2, one sentence, no step
refused() {
  piece=$1
  shift
  status=0
  "$gpt" $small --width "$width" "$@" > said 2>&1 || status=$?
  [ "$status" = 2 ] || fail "exit status $status of $*"
  grep -q -e "$piece" said || fail "no '$piece' from $*"
  grep -q 'saved generation' said && fail "a step was trained by $*"
  return 0
}
trains() {
  "$gpt" $small --width "$width" "$@" > said 2>&1 || fail "exit status $? of $*"
}

trains --steps 4 --every 2 --checkpoint saved
ls -l --time-style=full-iso saved > before
refused 'has checkpoints already' --steps 4 --checkpoint saved
mkdir other
trains --steps 2 --checkpoint other/saved
refused 'has checkpoints already' --steps 4 --resume saved --checkpoint other/saved
refused 'number of steps than 9' --steps 9 --resume saved
width=32
refused 'this checkpoint is not of this model' --steps 4 --resume saved
width=16
ls -l --time-style=full-iso saved > after
cmp before after || fail 'the checkpoints of a refused training'

refused 'is no folder' --steps 4 --resume typo
[ ! -e typo ] || fail 'a folder that --resume made'
mkdir empty
refused 'has no checkpoint' --steps 4 --resume empty
refused 'is no folder' --steps 4 --resume typo --checkpoint new
[ ! -e new ] || fail 'a folder that --checkpoint made beside a --resume that was refused'

# A run that is always started by the same command begins in an empty folder, and resumes from then on.
trains --steps 2 --resume always --checkpoint always
grep -q 'nothing to resume in always: the training begins' said || fail 'a first run'
trains --steps 2 --resume always --checkpoint always
grep -q 'resumed from generation 1 ' said || fail 'a second run'
# Two names of the folder work too, also before it is made.
trains --steps 2 --resume twice --checkpoint "$PWD/./twice/"
grep -q 'nothing to resume in twice: the training begins' said || fail 'a first run by two names'

# No output follows a link.
printf 'mine\n' > target
ln -s target link
refused 'symbolic link' --steps 1 --report link
grep -q mine target || fail 'a file that a link points at'
rm link target

# A folder that cannot be made is reported before the first step.
refused 'making the folder' --steps 4 --checkpoint before/inside
grep -q 'held-out' said && fail 'a training began whose checkpoints have no place'

rm saved/generation-000002.manifest
trains --steps 4 --every 2 --resume saved --checkpoint saved
grep -q 'resumed from generation 1 ' said || fail 'no generation resumed'
grep -q 'saved generation' said || fail 'nothing saved behind the old ones'
trains --steps 4 --resume ./saved --checkpoint other/../saved
rm -rf "$place"
