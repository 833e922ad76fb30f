# SPDX-License-Identifier: Apache-2.0
# A model that learned one text is tuned to another, all weights or adapters, with sampled inputs: also over ranks, and
# resumed with the same bits.
# Usage: fine_tuning.sh <gpt> <a text> <another text> <folder for files>
set -eu
gpt=$1
first=$2
second=$3
place=$4
small='--width 32 --heads 2 --context 32 --batch 2 --threads 1'
kind='--layers 2 --mlp relu --windows fixed'
sampled='--activations sample=0.3 --recompute qkv'
rm -rf "$place"
mkdir -p "$place"
cd "$place"

fail() {
  echo "FAILED: $*"
  cat said
  exit 1
}
trains() {
  "$gpt" $small $kind "$@" > said 2>&1 || fail "exit status $? of $*"
}
refuses() {
  what=$1
  shift
  status=0
  "$gpt" $small "$@" > said 2>&1 || status=$?
  [ "$status" = 2 ] || fail "exit status $status of $*"
  grep -q "$what" said || fail "no sentence of $*"
}
held_out() {
  sed -n 's|^.*held-out *loss \([0-9.]*\).*|\1|p' "$1"
}

trains --text "$first" --steps 12 --sample 0 --export-weights learned.safetensors --checkpoint saved --every 12
grep -q 'wrote the weights to learned.safetensors' said || fail 'no weights were written'
held=$(held_out said | tail -n 1)
trains --text "$first" --steps 1 --sample 0 --init learned.safetensors
[ "$(held_out said | head -n 1)" = "$held" ] || fail 'it does not begin where the first training ended'
trains --text "$first" --steps 1 --sample 0 --init saved
[ "$(held_out said | head -n 1)" = "$held" ] || fail 'it does not begin where the checkpoint was saved'

for adapters in '' '--lora 4'; do
  tuned="--text $second --init learned.safetensors $sampled $adapters"
  trains $tuned --steps 6 --sample 0 --report whole.json --verify
  rm -rf part
  trains $tuned --steps 6 --sample 0 --checkpoint part --every 3
  rm part/generation-000002.manifest # as if it had ended behind step 3
  trains $tuned --steps 6 --sample 0 --resume part --report resumed.json
  grep -q 'resumed from generation 1 ' said || fail 'nothing was resumed'
  # losses and weights; the memory is that of other runs
  [ "$(sed '/"memory"/,$d' whole.json)" = "$(sed '/"memory"/,$d' resumed.json)" ] || fail "other bits behind a restart: $adapters"
  # Ranks draw the rows that one rank draws, whatever is divided; the sums of their gradients are rounded in another order.
  trains $tuned --steps 6 --ranks 2 --shard 3 --verify
  [ "$(held_out said | tail -n 1)" != "$held" ] || fail 'nothing was learned'
done

trains --text "$second" --init learned.safetensors $sampled --steps 4 --ranks 2 --shard 1
mv said ranks
trains --text "$second" --init learned.safetensors $sampled --steps 4 --accumulate 2 --sample 0
awk -v a="$(held_out ranks | tail -n 1)" -v b="$(held_out said | tail -n 1)" \
  'BEGIN { exit !(a > 1 && (a > b ? a - b : b - a) < 1e-4 * b) }' || fail 'ranks learned otherwise than one rank'

refuses 'is no file and no folder' $kind --text "$second" --init nothing.safetensors
refuses 'which --lora freezes' --layers 3 --mlp relu --text "$second" --init learned.safetensors --lora 4
refuses 'gpt/mlp relu' --layers 2 --windows fixed --text "$first" --steps 12 --resume saved
refuses 'gpt/windows fixed' --layers 2 --mlp relu --text "$first" --steps 12 --resume saved
