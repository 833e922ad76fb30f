#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stages are saved and resumed, and refuse wrong options in one sentence: sh stages.sh GPT FOLDER
set -eu
gpt=$1
folder=$2
model="--layers 4 --width 32 --heads 2 --context 32 --batch 2 --steps 7"
small="$model --microbatches 4"

fail() {
  echo "stages: $*" >&2
  exit 1
}

# A training of seven steps, saved after three, six and seven of them; the newest save of one stage is gone.
rm -rf "$folder"
# shellcheck disable=SC2086
"$gpt" $small --stages 2 --schedule 2bw --precision bf16 --checkpoint "$folder" --every 3 >/dev/null
for stage in 0 1; do
  [ -e "$folder/stage-$stage/generation-000003.manifest" ] || fail "stage $stage has no third generation"
done
rm "$folder/stage-1/generation-000003.manifest"
# Both go on from the generation that both have, with another device and eviction, to the bits of one device.
# shellcheck disable=SC2086
out=$("$gpt" $small --stages 2 --schedule 2bw --precision bf16 --resume "$folder" --checkpoint "$folder" \
  --eviction lru --device-memory 700KiB --verify) || fail "$out"
echo "$out" | grep -q "resumed from generation 2" || fail "it did not resume from the second generation: $out"
# The next save takes a number that no stage has: the files of the third one stay as they are.
for stage in 0 1; do
  [ -e "$folder/stage-$stage/generation-000004.manifest" ] || fail "stage $stage was not saved again"
done

# A run that is always started by the same command begins in an empty folder, and also where its first save was cut
# between the manifests of the stages.
always="$folder/always"
for words in "nothing to resume" "nothing to resume" "resumed from generation"; do
  # shellcheck disable=SC2086
  out=$("$gpt" $small --stages 2 --resume "$always" --checkpoint "$always") || fail "$out"
  echo "$out" | grep -q "$words" || fail "no '$words': $out"
  [ -e "$folder/was_cut" ] && continue
  : >"$folder/was_cut"
  # Without the claims of all stages the manifest counts as lost: no training begins there.
  rm "$always/stage-0/generation-000001.manifest"
  # shellcheck disable=SC2086
  if said=$("$gpt" $small --stages 2 --resume "$always" --checkpoint "$always" 2>&1); then fail "a manifest was lost"; fi
  echo "$said" | grep -q "the folder of stage 1 has generation 1" || fail "another sentence for a lost manifest: $said"
  for stage in 0 1; do : >"$always/stage-$stage/generation-000001.claim.tmp"; done
done

# refused SENTENCE OPTION...
refused() {
  sentence=$1
  shift
  # shellcheck disable=SC2086
  if said=$("$gpt" $model "$@" 2>&1); then fail "was taken: $*"; fi
  [ "$(echo "$said" | wc -l)" -eq 1 ] || fail "more than one line for $*: $said"
  case $said in
    *"$sentence"*) ;;
    *) fail "another sentence for $*: $said" ;;
  esac
}
refused "each part needs a layer" --stages 5
refused "each part needs a layer" --stages 4 --schedule zb-v
refused "need 3 versions of the weights, not 2" --stages 4 --microbatches 2 --schedule 2bw
refused "leave a partial group" --stages 2 --microbatches 3 --schedule interleaved
refused "is neither a schedule nor a file that can be read" --stages 2 --schedule 1f2b
refused "divides backward runs" --stages 2 --schedule zb-h1 --activations recompute
printf 'chunkmem schedule 1\nname mine\nmicro_batches 4\n' >"$folder/short.txt"
refused "of $folder/short.txt" --stages 2 --schedule "$folder/short.txt"
# A file whose schedule cannot run: its text is complete, and no stage has a step.
printf 'chunkmem schedule 1\nname mine\nmicro_batches 1\nbatches 1\nversions 1\ngradient_sets 1\nsends_in_flight 2
parts 2\nstages 2\npart 0 stage 0\npart 1 stage 1\nstage 0 steps 0\nstage 1 steps 0\nend\n' >"$folder/idle.txt"
refused "$folder/idle.txt: a micro-batch has no forward run" --stages 2 --schedule "$folder/idle.txt"
# Other numbers of stages resume from the folder. With the same number of versions they reach the bits of one device,
# and they save into folders of their own.
rm "$folder"/stage-?/generation-00000[34].*
for stages in 1 3; do
  # shellcheck disable=SC2086
  out=$("$gpt" $small --stages $stages --schedule 2bw --precision bf16 --resume "$folder" \
    --checkpoint "$folder/of-$stages" --verify) || fail "$stages stages: $out"
  echo "$out" | grep -q "resumed from generation 2" || fail "$stages stages did not resume: $out"
done
# shellcheck disable=SC2086
"$gpt" $small --stages 2 --schedule 1f1b --precision bf16 --resume "$folder/of-3" >/dev/null ||
  fail "one version was not made of two"
# A folder without a checkpoint is no stage, and another schedule resumes with the same number of stages.
mkdir -p "$folder/of-3/stage-3"
# shellcheck disable=SC2086
"$gpt" $small --stages 3 --schedule 1f1b --precision bf16 --resume "$folder/of-3" >/dev/null ||
  fail "three stages did not go on with one version"
refused "save into another folder" --stages 3 --microbatches 4 --resume "$folder" --checkpoint "$folder"
# shellcheck disable=SC2086
if said=$("$gpt" $model --stages 3 --resume "$folder/none" 2>&1); then fail "a checkpoint was found in no folder"; fi
echo "$said" | grep -q "stage-0' is no folder" || fail "another sentence for stages without folders: $said"
# Replicas save and resume too.
replicas="$small --stages 2 --replicas 2 --schedule 2bw --precision bf16"
# shellcheck disable=SC2086
"$gpt" $replicas --checkpoint "$folder/replicas" --every 3 >/dev/null
rm "$folder/replicas/stage-1/generation-000003.manifest"
# shellcheck disable=SC2086
out=$("$gpt" $replicas --resume "$folder/replicas" --checkpoint "$folder/replicas" --verify) || fail "replicas: $out"
echo "$out" | grep -q "resumed from generation 2" || fail "replicas did not resume from the second generation: $out"
