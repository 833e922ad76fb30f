#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A forecast counts the ports of a cluster: sh forecast.sh GPT CLUSTER FOLDER. All of its nodes have one kind, without ports.
set -eu
gpt=$1
cluster=$2
folder=$3

rm -rf "$folder"
mkdir -p "$folder"
# seconds CLUSTER: of a step of each rank
seconds() {
  "$gpt" --layers 2 --width 32 --heads 2 --context 32 --batch 2 --steps 4 --shard 3 --forecast "$1" | awk '{ print $2 }'
}
# with_ports RATE: the cluster whose nodes have ports in and out of this rate
with_ports() {
  for way in in out; do
    printf '      "port_%s_bytes_per_second": {"value": %s, "source": "stated for this test"},\n' "$way" "$1"
  done >"$folder/ports.txt"
  sed "/\"devices\"/r $folder/ports.txt" "$cluster" >"$folder/$1.json"
  echo "$folder/$1.json"
}
lone=$(seconds "$cluster")
wide=$(seconds "$(with_ports 1e12)")
slow=$(seconds "$(with_ports 1e5)")
echo "a step takes $lone s without ports, $wide s with wide ports, $slow s with slow ports"
awk -v lone="$lone" -v wide="$wide" -v slow="$slow" 'BEGIN { exit !(lone > 0 && wide == lone && slow > 2 * lone) }'
