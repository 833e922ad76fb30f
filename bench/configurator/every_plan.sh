#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures every plan that fits, of the schedules gpipe, 1f1b and interleaved, on four processes whose links are slow,
# one of them five times as slow as the others:
#   sh bench/configurator/every_plan.sh FOLDER_OF_PROGRAMS SLOW_LINK_LIBRARY
# examples/configure/README.md has the commands that build both.
# probe_links measures the links, configure writes all plans with the step that it expects of each, and gpt trains by
# each of them under mpirun. The step of a plan is the median of its steps 4 to 6. The script fails if a plan is not
# measured, if plans have not learned the same, or if the chosen plan takes 5 % longer than the fastest one.
#
# Processes of one computer share its processors, which a cluster file cannot express. So links are slow here, and a
# step consists mostly of transfers. Rates are bytes a second of a direction.
set -eu
programs=$1
library=$2
usual_rate=1000000
slow_rate=200000
rows=8
model="--layers 4 --width 64 --heads 4 --context 64"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_plm=isolated OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl_base_warn_component_unused=0

links=
for from in 0 1 2 3; do
  for to in 0 1 2 3; do
    rate=$usual_rate
    [ "$from$to" = 12 ] && rate=$slow_rate
    [ "$from" = "$to" ] || links="$links;$from,$to,$rate"
  done
done
start() {
  mpirun -np 4 env "LD_PRELOAD=$library" "CHUNKMEM_SLOW_LINK=${links#;}" "$@" </dev/null
}

start "$programs/probe_links" --out "$folder/cluster.json" --each-rank-a-node --size 131072 --rounds 3 >"$folder/probed.txt"
head -8 "$folder/probed.txt"
# shellcheck disable=SC2086
"$programs/gpt" $model --write-model "$folder/model.json"
"$programs/configure" --cluster "$folder/cluster.json" --model "$folder/model.json" --rows $rows --quiet --threads 2 \
  --without-tensor-parallelism --schedules gpipe,1f1b,interleaved --activation-bytes 4 --sums direct --best 1000 \
  --plans "$folder/plans" >"$folder/configured.txt"
echo
echo "plan  measured [s]  expected [s]  loss"
number=0
sed -n '/step \[s\]/,/^$/p' "$folder/configured.txt" | while read -r expected _ _ _ _ _ _ words; do
  case $expected in [0-9]*) ;; *) continue ;; esac # not the heading
  number=$((number + 1))
  # shellcheck disable=SC2086
  start "$programs/gpt" $model --plan "$folder/plans/$number.plan" --cluster "$folder/cluster.json" --steps 6 |
    sed 's/.\[K/\n/g' >"$folder/trained.txt"
  sed -n "s|^step \([4-6]\)/6 .* \([0-9.]*\) tokens/s .*|\2|p" "$folder/trained.txt" | sort -g >"$folder/rates.txt"
  [ "$(wc -l <"$folder/rates.txt")" -eq 3 ] || echo "plan $number was not trained" >&2
  awk -v number=$number -v expected="$expected" -v tokens=$((rows * 64)) -v words="$words" \
    -v loss="$(sed -n 's|^step 6/6  loss \([^ ]*\) .*|\1|p' "$folder/trained.txt")" \
    'NR == 2 { printf "%4d  %12.4f  %12s  %.4f  %s\n", number, tokens / $1, expected, loss, words }' "$folder/rates.txt"
done | tee "$folder/measured.txt"
sort -k 2 -g "$folder/measured.txt" | head -1 | sed 's/^/\nthe fastest:/'
awk -v plans="$(find "$folder/plans" -name '*.plan' | wc -l)" 'NR == 1 { chosen = fastest = $2; least = most = $4 }
     { if ($2 < fastest) fastest = $2; if ($4 < least) least = $4; if ($4 > most) most = $4
       error = $3 / $2 - 1; if (error < 0) error = -error; errors += error; if (error > worst) worst = error }
     END { printf "the chosen plan over the fastest of %d: %.3f\n", NR, chosen / fastest
           printf "expected steps are off by %.1f %% on average, %.1f %% at worst\n", 100 * errors / NR, 100 * worst
           printf "losses of step 6: %.4f to %.4f\n", least, most
           exit !(NR == plans && most - least < 0.01 && chosen <= 1.05 * fastest) }' "$folder/measured.txt"
