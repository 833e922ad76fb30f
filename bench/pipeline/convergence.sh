#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Time to a loss with a flush after every step (1F1B, ZB-2p, ZB-V) and without (2BW), by rate and seed:
#   sh bench/pipeline/convergence.sh FOLDER_OF_PROGRAMS
# A GPT of width 64 trains in four stages with eight micro-batches of two rows, 600 steps for each rate and seed. Schedules
# with a flush have the same losses, bit for bit, so one of them trains for all. A loss is the mean of 20 steps.
# The time of a step is that of the simulated schedule, in which F, B and W take 1 each and transfers none.
# No bound: 2bw has the bits of SGD that is one update late, which tests compare.
set -eu
programs=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
model="--layers 4 --width 64 --heads 4 --context 32 --stages 4 --batch 2 --microbatches 8"
steps=600
losses="3.0 2.75 2.5"
seeds="1 2 3"

seconds() { # SCHEDULE BATCHES
  "$programs/schedule" --schedule "$1" --stages 4 --microbatches 8 --batches "$2" | sed -n 's/^total \([0-9.]*\) s.*/\1/p'
}
for schedule in 1f1b zb-2p zb-v 2bw; do
  awk -v a="$(seconds $schedule 4)" -v b="$(seconds $schedule 8)" 'BEGIN { print (b - a) / 4 }' >"$folder/step.$schedule"
done
echo "time of a step: 1f1b $(cat "$folder/step.1f1b"), zb-2p $(cat "$folder/step.zb-2p")," \
  "zb-v $(cat "$folder/step.zb-v"), 2bw $(cat "$folder/step.2bw")"

# The first step whose mean is at most each of the losses, or "-".
steps_to() { # FILE
  awk -v wanted="$losses" '
    BEGIN { count = split(wanted, loss, " "); for (it = 1; it <= count; ++it) first[it] = "-" }
    { all[NR] = $1; sum += $1 - (NR > 20 ? all[NR - 20] : 0)
      for (it = 1; it <= count; ++it) if (NR >= 20 && first[it] == "-" && sum / 20 <= loss[it]) first[it] = NR }
    END { for (it = 1; it <= count; ++it) printf "%s ", first[it] }' "$1"
}
printf '%-6s %-5s %-22s %-22s %-32s %s\n' rate seed "steps to $losses" "the same, 2bw" "time to $(echo "$losses" |
  cut -d' ' -f3): 1f1b zb-2p zb-v 2bw" "last loss: flush, 2bw"
for rate in 0.0003 0.001 0.003; do
  for seed in $seeds; do
    for schedule in 1f1b 2bw; do
      # shellcheck disable=SC2086
      "$programs/gpt" $model --schedule $schedule --seed "$seed" --steps $steps --learning-rate $rate | sed -n 's/^step [0-9]*\/.*loss \([^ ]*\) .*/\1/p' >"$folder/$schedule"
    done
    with=$(steps_to "$folder/1f1b")
    without=$(steps_to "$folder/2bw")
    times=$(for schedule in 1f1b zb-2p zb-v 2bw; do
      [ $schedule = 2bw ] && found=$without || found=$with
      echo "$found" | awk -v step="$(cat "$folder/step.$schedule")" '{ if ($3 == "-") print "-"; else print $3 * step }'
    done | tr '\n' ' ')
    last=$(for schedule in 1f1b 2bw; do
      tail -n 20 "$folder/$schedule" | awk '{ sum += $1 } END { printf "%.3f ", sum / NR }'
    done)
    printf '%-6s %-5s %-22s %-22s %-32s %s\n' $rate "$seed" "$with" "$without" "$times" "$last"
  done
done
