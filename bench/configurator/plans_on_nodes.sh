#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Is the plan that the configurator chooses for four nodes the fastest one there?
#   sh bench/configurator/plans_on_nodes.sh FOLDER_OF_PROGRAMS [SECONDS [SEED]]
# The nodes are those of tests/support/four_nodes.sh: network namespaces, whose ports and processors are limited. First all
# nodes are equal. Then one node has half of a processor of the others, and the port of another one a fifth of the rate.
#
# In both cases, probe_links measures the nodes and links, and a rank that trains alone on each node measures the rate
# of its passes. configure writes all plans that gpt can run, with the schedules that do not divide backward passes: in
# gpt divided passes take 1.3 of the time, which one rate cannot express. gpt trains by the best ten, and by 30 that
# SEED (1) draws from the others. A step of a training is the median of its steps from the fourth on. Trainings of the
# chosen plan, and of the plans that seem to be up to 10 % slower than the fastest, run three times, and the median
# counts. After SECONDS (1500) for each case no further plan is drawn.
#
# The script fails unless the chosen plan takes at most 1.05 of the fastest one, and the order of plans is that of the
# forecast: Spearman's correlation, over the pairs of plans that differ by more than 3 %, is 0.95 or more. It also fails
# if a plan is not trained, or if plans have not learned the same.
set -eu
programs=$1
seconds=${2:-1500}
seed=${3:-1}
here=$(dirname "$0")
if [ -z "${CHUNKMEM_ON_NODES-}" ]; then
  status=0
  ratios=$(mktemp)
  trap 'rm -f "$ratios"' EXIT
  for nodes in "equal 200000000 25" "uneven 200000000,200000000,40000000,200000000 24,12,24,24"; do
    # shellcheck disable=SC2086 # words of a command
    set -- $nodes
    export CHUNKMEM_NODES="$1" CHUNKMEM_RATIOS="$ratios"
    sh "$here/../../tests/support/four_nodes.sh" "$2" "$3" sh "$0" "$programs" "$seconds" "$seed" || status=$?
    [ "$status" -ne 4 ] || exit 4
  done
  if [ -n "${CHUNKMEM_FIGURES-}" ] && [ "$(wc -l <"$ratios")" -eq 2 ]; then
    sort -g "$ratios" | tail -1 | awk '{
      printf "[{\"name\": \"plan.real_links_chosen_over_fastest\", \"value\": %.6f, \"unit\": \"ratio\", \"relation\": \"<=\", ", $1
      print "\"bound\": 1.05, \"command\": \"sh bench/configurator/plans_on_nodes.sh build/bench/bin\"}]" }' \
      >"$CHUNKMEM_FIGURES/plans_on_nodes.json"
  fi
  exit "$status"
fi
begin=$(date +%s)
rows=16
steps=7
model="--layers 4 --width 128 --heads 4 --context 64"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

on_nodes() {
  "$CHUNKMEM_ON_NODES" "$@" </dev/null >"$folder/said.txt" 2>"$folder/errors.txt" || {
    cat "$folder/said.txt" "$folder/errors.txt" >&2
    exit 1
  }
  sed 's/.\[K/\n/g' "$folder/said.txt"
}
# The median of numbers, one a line.
median() { sort -g | awk '{ all[NR] = $1 } END { print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'; }
# rates STEPS FILE: tokens a second from the fourth step on
rates() { sed -n "s|^step [4-9]/$1 .* \([0-9.]*\) tokens/s .*|\1|p" "$2"; }

echo "nodes: $CHUNKMEM_NODES"
on_nodes "$programs/probe_links" --out "$folder/probed.json" --size 1048576 --rounds 5 >"$folder/probed.txt"
head -28 "$folder/probed.txt" # and rates of ports
# The rate of passes of each node, in the operations that the configurator counts.
# shellcheck disable=SC2016,SC2086
on_nodes sh -c 'out=$1; shift; exec "$@" >"$out.$OMPI_COMM_WORLD_RANK"' sh "$folder/alone" "$programs/gpt" $model --batch 8 \
  --steps 9 --threads 1 --sample 0 --activations keep --device-memory 1GiB
# shellcheck disable=SC2086
operations=$("$programs/gpt" $model --batch 8 --steps 9 --threads 1 --shard 1 --activations keep --device-memory 1GiB \
  --forecast "$folder/probed.json" | awk '{ print $9 }')
for node in 0 1 2 3; do
  sed 's/.\[K/\n/g' "$folder/alone.$node" >"$folder/alone.txt"
  rate=$(rates 9 "$folder/alone.txt" | median)
  awk -v n="$operations" -v rate="$rate" 'BEGIN { printf "%.6e\n", n * rate / 8 / 64 }'
done >"$folder/rates.txt"
echo "ranks alone compute $(tr '\n' ' ' <"$folder/rates.txt")operations a second"
awk 'NR == FNR { rate[FNR - 1] = $1; next }
     match($0, /^    "node-[0-9]+(-port-[0-9]+)?"/) { node = substr($0, 1, RLENGTH - 1); sub(/.*-/, "", node) }
     /"device_flops_per_second"/ { sub(/"value": [^,]*/, "\"value\": " rate[node]) }
     { print }' "$folder/rates.txt" "$folder/probed.json" >"$folder/cluster.json"
# shellcheck disable=SC2086
"$programs/gpt" $model --write-model "$folder/model.json"
"$programs/configure" --cluster "$folder/cluster.json" --model "$folder/model.json" --rows $rows --quiet --threads 2 \
  --without-tensor-parallelism --schedules gpipe,1f1b,eager,interleaved --activation-bytes 4 --sums direct --best 1000 \
  --plans "$folder/plans" >"$folder/configured.txt"
sed -n '/step \[s\]/,/^$/p' "$folder/configured.txt" | awk '$1 ~ /^[0-9]/ {
    words = $0; for (word = 1; word < 6; ++word) sub(/^ *[^ ]+( [KMG]iB| B)?/, "", words); sub(/^ */, "", words)
    print ++number, $1, words }' >"$folder/found.txt"
# The files of plans have numbers among all plans. gpt trains only plans that leave no device idle.
grep -E '(1 stage x 4|2 stages x 2|4 stages x 1) replica' "$folder/found.txt" >"$folder/whole.txt"
awk '{ $1 = NR; print }' "$folder/whole.txt" >"$folder/all.txt"
plans=$(wc -l <"$folder/all.txt")
echo "plans: $(wc -l <"$folder/found.txt"), with all four nodes: $plans, of which the first one is number" \
  "$(head -1 "$folder/whole.txt" | cut -d " " -f 1)"
# The best ten, and 30 others by a linear congruential generator.
awk -v plans="$plans" -v seed="$seed" 'BEGIN {
  for (plan = 1; plan <= 10 && plan <= plans; ++plan) print plan
  for (drawn = 0; drawn < 30 && drawn + 10 < plans;) {
    seed = (seed * 16807) % 2147483647
    plan = 11 + seed % (plans - 10)
    if (!(plan in is_drawn)) { is_drawn[plan] = 1; ++drawn; print plan } } }' >"$folder/chosen.txt"

# trains PLAN: writes its number, its seconds, and its last loss
trains() {
  number=$(sed -n "$1p" "$folder/whole.txt" | cut -d ' ' -f 1)
  # shellcheck disable=SC2086
  on_nodes "$programs/gpt" $model --threads 1 --plan "$folder/plans/$number.plan" --cluster "$folder/cluster.json" --steps $steps \
    >"$folder/trained.txt"
  [ "$(rates $steps "$folder/trained.txt" | wc -l)" -eq $((steps - 3)) ] || {
    echo "FAILED: plan $1 was not trained"
    exit 1
  }
  awk -v plan="$1" -v tokens=$((rows * 64)) -v rate="$(rates $steps "$folder/trained.txt" | median)" \
    -v loss="$(sed -n "s|^step $steps/$steps  loss \([^ ]*\) .*|\1|p" "$folder/trained.txt")" \
    'BEGIN { printf "%d %.4f %s\n", plan, tokens / rate, loss }'
}
: >"$folder/measured.txt"
while read -r plan; do
  if [ "$plan" -gt 10 ] && [ $(($(date +%s) - begin)) -gt "$seconds" ]; then
    echo "LEFT OUT: further plans, for the limit of $seconds seconds"
    break
  fi
  trains "$plan" >>"$folder/measured.txt"
done <"$folder/chosen.txt"
awk 'NR == 1 || $2 < least { least = $2 } { plan[NR] = $1; seconds[NR] = $2 }
     END { for (at = 1; at <= NR; ++at) if (at == 1 || seconds[at] <= 1.1 * least) print plan[at] }' \
  "$folder/measured.txt" >"$folder/again.txt"
cat "$folder/again.txt" "$folder/again.txt" >"$folder/twice.txt"
while read -r plan; do trains "$plan" >>"$folder/measured.txt"; done <"$folder/twice.txt"

echo
echo "plan  measured [s]  expected [s]  loss    of $plans"
cut -d ' ' -f 1 "$folder/measured.txt" | sort -n -u | while read -r plan; do
  took=$(awk -v plan="$plan" '$1 == plan { print $2 }' "$folder/measured.txt" | median)
  loss=$(awk -v plan="$plan" '$1 == plan { print $3; exit }' "$folder/measured.txt")
  awk -v plan="$plan" -v took="$took" -v loss="$loss" '$1 == plan {
    words = $0; sub(/^[^ ]+ [^ ]+ /, "", words); printf "%4d  %12.4f  %12s  %.4f  %s\n", plan, took, $2, loss, words }' \
    "$folder/all.txt"
done | tee "$folder/table.txt"
awk -v nodes="$CHUNKMEM_NODES" -v ratios="$CHUNKMEM_RATIOS" '
  { measured[NR] = $2; expected[NR] = $3; loss[NR] = $4
    if (NR == 1 || $2 < fastest) fastest = $2
    if (NR == 1 || $4 < least) least = $4
    if (NR == 1 || $4 > most) most = $4 }
  END {
    for (a = 1; a <= NR; ++a) for (b = 1; b <= NR; ++b) {
      if (measured[a] > 1.03 * measured[b]) direction = 1
      else if (measured[b] > 1.03 * measured[a]) direction = -1
      else continue
      seen[a] += direction
      told[a] += (expected[a] > expected[b]) - (expected[a] < expected[b])
      if (direction == 1) { ++pairs; right += expected[a] > expected[b] } }
    for (a = 1; a <= NR; ++a) { both += seen[a] * told[a]; all_seen += seen[a] ^ 2; all_told += told[a] ^ 2 }
    order = all_seen * all_told > 0 ? both / sqrt(all_seen * all_told) : 0
    chosen = measured[1] / fastest
    printf "%s nodes: the chosen plan over the fastest of %d: %.3f\n", nodes, NR, chosen
    printf "%s nodes: Spearman over pairs that differ by more than 3 %%: %.3f; %d of %d pairs are as planned\n", nodes, order, right, pairs
    printf "losses of the last step: %.4f to %.4f\n", least, most
    print chosen >>ratios
    exit !(NR >= 10 && most - least < 0.01 && chosen <= 1.05 && order >= 0.95) }' "$folder/table.txt"
