#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Are ways to train out of core as fast on four nodes as planned, relative to each other?
#   sh bench/out_of_core/order_on_nodes.sh FOLDER_OF_PROGRAMS [ROUNDS]
# The nodes are those of tests/support/four_nodes.sh: network namespaces, whose ports and processors are limited. gpt trains
# over MPI with ZeRO 1, 2 and 3, each with updates at once, late and early and activations by karma; with updates at
# once also without prefetching, with all activations swapped, and with all recomputed. Each rank has a quarter of the
# device memory that it needs.
#
# A plan is the same program in virtual time, `gpt --forecast`. It uses the links that probe_links measures on the
# nodes, and the rate of the passes of a rank that trains alone on a node. No measurement of a training over ranks
# enters it.
#
# All trainings run once in each of the rounds (3), in another order in each round. A step of a training is the median
# of its steps from the fourth on. Two trainings of a model differ where one of them is slower by more than 3 % in every
# round. Then the plan has to predict the same order. The script fails unless the order of all of these pairs is as
# planned, and if losses of one model differ in any digit. It prints each pair that is not as planned, and the number of
# pairs that are as planned if 3 % of the median of the rounds are enough.
set -eu
programs=$1
rounds=${2:-3}
port=200000000 # bits a second
processor=25   # percent of one for each node
here=$(dirname "$0")
if [ -z "${CHUNKMEM_ON_NODES-}" ]; then
  exec sh "$here/../../tests/support/four_nodes.sh" "$port" "$processor" sh "$0" "$@"
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
gpt=$programs/gpt
steps=15

on_nodes() {
  "$CHUNKMEM_ON_NODES" "$@" </dev/null >"$folder/said.txt" 2>"$folder/errors.txt" || {
    cat "$folder/said.txt" "$folder/errors.txt" >&2
    exit 1
  }
  sed 's/.\[K/\n/g' "$folder/said.txt"
}
# The median of the tokens a second of the steps from the fourth on.
median_rate() {
  sed -n "s#^step \([4-9]\|1[0-5]\)/$steps .* \([0-9]*\) tokens/s .*#\2#p" "$1" | sort -g |
    awk '{ all[NR] = $1 } END { print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'
}

grep -m 1 "model name" /proc/cpuinfo
echo "ports of $port bits a second, $processor % of a processor for each node"
on_nodes "$programs/probe_links" --out "$folder/cluster.json" --size 1048576 --rounds 5 >"$folder/probed.txt"
head -15 "$folder/probed.txt"
for shard in 1 2 3; do
  for how in "at_once karma planned" "late karma planned" "early karma planned" "at_once karma no_prefetch" \
    "at_once swap planned" "at_once recompute planned"; do
    echo "$shard $how"
  done
done >"$folder/ways.txt"

wrong=0
: >"$folder/orders.txt"
while read -r name batch model; do
  model="$model --context 64 --batch $batch --steps $steps --threads 1 --clip 100"
  # shellcheck disable=SC2086
  on_nodes "$gpt" $model --sample 0 --activations keep --device-memory 1GiB >"$folder/alone.txt"
  # shellcheck disable=SC2086
  operations=$("$gpt" $model --shard 1 --activations keep --device-memory 1GiB --forecast "$folder/cluster.json" |
    awk '{ print $9 }')
  rate=$(awk -v n="$operations" -v tokens=$((batch * 64)) -v rate="$(median_rate "$folder/alone.txt")" \
    'BEGIN { printf "%.6e", n * rate / tokens }')
  printf '\n%s: gpt%s\na rank alone computes %s operations a second\n' "$name" " $model" "$rate"
  while read -r shard when activations transfer; do
    # shellcheck disable=SC2086
    "$gpt" $model --shard "$shard" --update "$when" --activations "$activations" --transfer "$transfer" \
      --forecast "$folder/cluster.json" --device-rate "$rate" >"$folder/planned.txt"
    echo "$shard $when $activations $transfer $(awk '{ print $2 }' "$folder/planned.txt")"
  done <"$folder/ways.txt" >"$folder/steps.txt"
  : >"$folder/losses.txt"
  round=0
  while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    awk -v seed="$round" 'BEGIN { srand(seed) } { print rand(), $0 }' "$folder/steps.txt" | sort -g | cut -d ' ' -f 2- \
      >"$folder/turns.txt"
    while read -r shard when activations transfer others; do
      # shellcheck disable=SC2086
      on_nodes "$gpt" $model --shard "$shard" --update "$when" --activations "$activations" --transfer "$transfer" \
        >"$folder/trained.txt"
      sed -n 's|^.*\(loss [0-9.]*\).*|\1|p' "$folder/trained.txt" | tr '\n' ' ' >>"$folder/losses.txt"
      echo >>"$folder/losses.txt"
      seconds=$(awk -v tokens=$((4 * batch * 64)) -v rate="$(median_rate "$folder/trained.txt")" \
        'BEGIN { printf "%.4f", tokens / rate }')
      echo "$shard $when $activations $transfer $others $seconds"
    done <"$folder/turns.txt" >"$folder/more.txt"
    mv "$folder/more.txt" "$folder/steps.txt"
  done
  [ "$(sort -u "$folder/losses.txt" | grep -c "^\(loss [0-9.]* \)\{$((steps + 2))\}$")" = 1 ] &&
    [ "$(sort -u "$folder/losses.txt" | wc -l)" = 1 ] || {
    echo "FAILED: trainings of one model have other losses"
    wrong=1
  }
  echo "ZeRO  updates  activations  transfer     planned [s]  measured [s]"
  sort -k 5 -g "$folder/steps.txt" | awk '{
    printf "%-4d  %-7s  %-11s  %-11s  %11.4f ", $1, $2, $3, $4, $5
    for (round = 6; round <= NF; ++round) printf " %7.4f", $round
    print "" }'
  sort -k 5 -g "$folder/steps.txt" | awk '
    { name[NR] = "ZeRO " $1 " " $2 " " $3 " " $4; planned[NR] = $5; rounds = NF - 5
      for (round = 1; round <= rounds; ++round) measured[NR, round] = $(5 + round) }
    function is_slower(one, other,   round) {
      for (round = 1; round <= rounds; ++round) if (measured[one, round] <= 1.03 * measured[other, round]) return 0
      return 1 }
    function median(one,   a, b, smaller) {
      for (a = 1; a <= rounds; ++a) {
        smaller = 0
        for (b = 1; b <= rounds; ++b) smaller += measured[one, b] < measured[one, a] || (measured[one, b] == measured[one, a] && b < a)
        if (smaller == int(rounds / 2)) return measured[one, a] } }
    END { for (a = 1; a <= NR; ++a) for (b = 1; b <= NR; ++b) {
            if (median(b) > 1.03 * median(a)) { ++all_by_median; right_by_median += planned[b] > planned[a] }
            if (!is_slower(b, a)) continue
            ++all
            if (planned[b] > planned[a]) { ++right; continue }
            printf "not as planned: %s (%.4f s planned) is slower than %s (%.4f s)\n", name[b], planned[b], name[a], planned[a] }
          printf "by the median of the rounds %d of %d pairs as planned\n", right_by_median, all_by_median
          printf "%d of %d pairs as planned\n", right, all }' | tee "$folder/order.txt"
  tail -1 "$folder/order.txt" >>"$folder/orders.txt"
done <<'END'
small 8 --layers 4 --width 96 --heads 4
deep 8 --layers 8 --width 64 --heads 4
END
awk '{ right += $1; all += $3 } END { printf "\nof all models %d of %d pairs as planned\n", right, all; exit !(all > 0 && right == all) }' \
  "$folder/orders.txt" || wrong=1
exit "$wrong"
