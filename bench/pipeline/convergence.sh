#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Losses of the demo's GPT in two stages, with a flush after every step (1f1b) and without (2bw), by seed:
#   sh bench/pipeline/convergence.sh GPT
# Nothing is judged: 2bw has the bits of SGD that is one update late, which tests compare.
set -eu
gpt=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for seed in 1 2 3 4 5; do
  for schedule in 1f1b 2bw; do
    "$gpt" --stages 2 --batch 2 --microbatches 2 --schedule $schedule --seed $seed --steps 50 |
      sed -n 's/^step \([0-9]*\)\/.*loss \([^ ]*\) .*/\1 \2/p' >"$folder/$schedule.$seed"
  done
done
echo "step   1f1b of seeds 1 to 5                       2bw of seeds 1 to 5"
for step in 1 5 10 15 20 25 30 35 40 45 50; do
  printf '%4s' $step
  for schedule in 1f1b 2bw; do
    printf '  '
    for seed in 1 2 3 4 5; do
      printf ' %7.4f' "$(sed -n "s/^$step //p" "$folder/$schedule.$seed")"
    done
  done
  printf '\n'
done
