#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks on four nodes learn the same, whatever is divided and whenever weights are updated. Killed nodes leave no
# process and no folder.
#   sh nodes.sh GPT
set -eu
nodes=$(dirname "$0")/../../../tests/support/four_nodes.sh
if [ -z "${CHUNKMEM_ON_NODES-}" ]; then
  # A computer without network namespaces reports a skip here.
  sh "$nodes" 1000000000 50 true
  sh "$nodes" 1000000000 50 sh -c 'exec sleep 98765.4321' &
  rig=$!
  while ! pgrep -f '^sleep 98765[.]4321' >/dev/null; do sleep 0.05; done
  kill -9 $rig
  left=0
  while pgrep -f '^sleep 98765[.]4321' >/dev/null; do
    left=$((left + 1))
    [ $left -lt 100 ] || {
      echo "FAILED: a killed rig left a process"
      exit 1
    }
    sleep 0.05
  done
  status=0
  sh "$nodes" 1000000000 50 sh "$0" "$@" || status=$?
  for folder in /sys/fs/cgroup/cpu/chunkmem-"$rig"-*; do
    [ ! -e "$folder" ] || {
      echo "FAILED: $folder is left"
      exit 1
    }
  done
  exit $status
fi
model="--layers 1 --width 32 --heads 2 --context 32 --batch 1 --steps 2 --clip 1"
losses=
for choice in "1 at_once" "2 early" "3 late"; do
  # shellcheck disable=SC2086
  found=$("$CHUNKMEM_ON_NODES" "$1" $model --shard "${choice% *}" --update "${choice#* }" --activations karma </dev/null |
    sed -n 's|^.*\(loss [0-9.]*\).*|\1|p')
  [ "$(echo "$found" | wc -l)" -eq 4 ] || {
    echo "FAILED: ZeRO $choice has not four losses: $found"
    exit 1
  }
  [ "${losses:-$found}" = "$found" ] || {
    echo "FAILED: ZeRO $choice has other losses: $found, not $losses"
    exit 1
  }
  losses=$found
done
echo "three trainings on four nodes have the same losses"
