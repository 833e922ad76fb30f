#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model is planned for a cluster of four devices and trained by its plans: sh plans.sh GPT CONFIGURE CLUSTER FOLDER [LAUNCHER...]
# Ranks are threads, and processes where there is a launcher. Bits are those of each pipeline on one device.
set -eu
gpt=$1
configure=$2
cluster=$3
folder=$4
shift 4
model="--layers 4 --width 32 --heads 2 --context 32"

fail() {
  echo "plans: $*" >&2
  exit 1
}

rm -rf "$folder"
mkdir -p "$folder"
# shellcheck disable=SC2086
"$gpt" $model --write-model "$folder/model.json"
plan() {
  "$configure" --cluster "$cluster" --model "$folder/model.json" --rows 8 --activation-bytes 4 --sums direct --quiet \
    --without-tensor-parallelism "$@" >"$folder/configured.txt" || fail "$(cat "$folder/configured.txt")"
}
plan --best 1000 --plans "$folder/all"
# trained NUMBER FOLDER [LAUNCHER...]
trained() {
  file="$folder/$2/$1.plan"
  shift 2
  # shellcheck disable=SC2086
  out=$("$@" "$gpt" $model --cluster "$cluster" --plan "$file" --steps 3 --verify 2>&1) || fail "$file: $out"
  echo "$out" | grep -q "3 losses, 3 identical" || fail "$file: other bits: $out"
}
# Of the plans with all four devices: the fastest one for each number of replicas, one for each stage of ZeRO, one with
# recomputation, and one with states on the host.
number=0
wanted=" 1 stage x 4 replicas|2 stages x 2 replicas|4 stages x 1 replica|ZeRO 2|ZeRO 3|interleaved|recompute|on the host"
echo "$wanted" | tr '|' '\n' | while read -r words; do
  number=$(grep 'x [1-4] replica' "$folder/configured.txt" | grep -nE '(1 stage x 4|2 stages x 2|4 stages x 1) replica' |
    grep "$words" | head -1 | cut -d: -f1)
  [ -n "$number" ] || fail "no plan has '$words'"
  trained "$number" all
  if [ $# -gt 0 ]; then trained "$number" all "$@" -np 4; fi
done
plan --schedules 2bw --plan "$folder/2bw.plan" --plans "$folder/2bw"
trained 1 2bw

# The same with the seconds and bytes of each layer that gpt measures here.
# shellcheck disable=SC2086
"$gpt" $model --batch 2 --write-profile "$folder/profile.json" --kind process
profiled="$folder/profiled.plan"
"$configure" --cluster "$cluster" --model "$folder/model.json" --rows 8 --sums direct --quiet --profile "$folder/profile.json" \
  --without-cuts --plan "$profiled" >"$folder/profiled.txt" || fail "$(cat "$folder/profiled.txt")"
# shellcheck disable=SC2086
out=$("$gpt" $model --cluster "$cluster" --plan "$profiled" --profile "$folder/profile.json" --steps 3 --verify 2>&1) ||
  fail "$profiled: $out"
echo "$out" | grep -q "3 losses, 3 identical" || fail "$profiled: other bits: $out"

# refused SENTENCE OPTION...
refused() {
  sentence=$1
  shift
  if said=$("$gpt" "$@" 2>&1); then fail "was taken: $*"; fi
  [ "$(echo "$said" | wc -l)" -eq 1 ] || fail "more than one line for $*: $said"
  case $said in
    *"$sentence"*) ;;
    *) fail "another sentence for $*: $said" ;;
  esac
}
first="$folder/all/1.plan"
refused "that of another model, or of a trainer with other traits" --layers 3 --cluster "$cluster" --plan "$first"
sed 's/5e+09/6e+09/' "$cluster" >"$folder/other.json"
# shellcheck disable=SC2086
{
  refused "that of another cluster" $model --cluster "$folder/other.json" --plan "$first"
  refused "add --cluster FILE" $model --plan "$first"
  refused "--cluster needs --plan" $model --cluster "$cluster"
  refused "--stages cannot be combined with --plan, which sets it" $model --cluster "$cluster" --plan "$first" --stages 2
  refused "assumes 16-bit types" $model --cluster "$cluster" --plan "$first" --precision fp32
  refused "cannot be read" $model --cluster "$cluster" --plan "$folder/none.plan"
  sed 's/"tensor": 1/"tensor": 2/; s/"stages": 4/"stages": 2/' "$folder/2bw.plan" >"$folder/tensor.plan"
  refused "ranks that share layers" $model --cluster "$cluster" --plan "$folder/tensor.plan"
  sed 's/"devices"/"cuts": [1, 2, 3], "devices"/' "$folder/2bw.plan" >"$folder/cuts.plan"
  refused "has cuts, and stages of gpt have equal numbers of layers" $model --cluster "$cluster" --plan "$folder/cuts.plan"
  sed 's/"zero": 1/"zero": 7/' "$first" >"$folder/zero.plan"
  refused "zero.plan' cannot be run: a plan's \"zero\" is 7" $model --cluster "$cluster" --plan "$folder/zero.plan"
  sed 's/"micro_batches": [0-9]*/"micro_batches": 2/' "$folder/2bw.plan" >"$folder/few.plan"
  refused "few.plan' cannot be run: 2bw has two versions of the weights, so 4 stages need 3 micro-batches" \
    $model --cluster "$cluster" --plan "$folder/few.plan"
  sed 's/"micro_batch": [0-9]*/"micro_batch": 1000000000000000000/' "$first" >"$folder/rows.plan"
  refused "rows.plan' has micro-batches of 1000000000000000000 rows" $model --cluster "$cluster" --plan "$folder/rows.plan"
  refused "that of another model, or of a trainer with other traits" $model --cluster "$cluster" --plan "$profiled"
  refused "--profile needs --plan" $model --profile "$folder/profile.json"
  refused "--kind needs --write-profile" $model --kind process
  refused "cannot be combined with --write-profile" $model --ranks 2 --write-profile "$folder/profile.json"
  refused "cannot be combined with --write-model" $model --stages 2 --write-model "$folder/model.json"
  refused "needs --replicas 2 or more" $model --stages 2 --shard 2
  refused "replicas divide states" $model --stages 2 --replicas 2 --shard 0
}
# gpt needs more than the proof assumes, and reports that before it trains.
sed 's/67108864/262144/' "$cluster" >"$folder/small.json"
"$configure" --cluster "$folder/small.json" --model "$folder/model.json" --rows 8 --quiet --without-tensor-parallelism \
  --activation-bytes 4 --sums direct --plan "$folder/small.plan" >/dev/null || fail "no plan fits 256 KiB"
# shellcheck disable=SC2086
refused "of the plan has a device of 256.0 KiB" $model --cluster "$folder/small.json" --plan "$folder/small.plan"
# shellcheck disable=SC2086
if "$gpt" $model --write-model "$folder/none/model.json" 2>/dev/null; then fail "a model was written to no folder"; fi
