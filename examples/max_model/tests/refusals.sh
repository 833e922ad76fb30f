#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every bad argument or file: one sentence on stderr, exit code 2, nothing on stdout.
#   sh refusals.sh <program> <folder of machines> <folder to write to>
program="$1"
machine="$2/v100_32_node.json"
folder="$3"
mkdir -p "$folder" || exit 1
failed=0

# refuses <words that the sentence has> <arguments...>
refuses()
{
  words="$1"
  shift
  "$program" "$@" >"$folder/out" 2>"$folder/error"
  code=$?
  sentences=$(grep -c '^max_model: ' "$folder/error")
  if [ $code -ne 2 ] || [ -s "$folder/out" ] || [ "$sentences" -ne 1 ] || ! grep -qF -e "$words" "$folder/error"; then
    echo "not refused as it should be (exit code $code, wanted 2 and '$words'): $*"
    cat "$folder/error"
    failed=1
  fi
}

refuses "--machine is missing" --model GPT3_18B
refuses "--model is missing" --machine "$machine"
refuses "no-such.json" --machine "$folder/no-such.json" --model GPT3_18B
refuses "no-such.json" --machine "$machine" --model "$folder/no-such.json"
refuses "neither a file nor a name" --machine "$machine" --model GPT5
refuses "the name of several models" --machine "$machine" --model 10b
refuses "--micro-batch '0'" --machine "$machine" --model GPT3_18B --micro-batch 0
refuses "--micro-batch '-4'" --machine "$machine" --model GPT3_18B --micro-batch=-4
refuses "--micro-batch '4x'" --machine "$machine" --model GPT3_18B --micro-batch 4x
refuses "empty value" --machine "$machine" --model ""
refuses "--widths '4096,,1'" --machine "$machine" --model GPT3_18B --widths 4096,,1
refuses "heads does not divide hidden" --machine "$machine" --model GPT3_18B --widths 4097
refuses "--strategies 'luck' is unknown" --machine "$machine" --model GPT3_18B --strategies plain,luck
refuses "cannot be written" --machine "$machine" --model GPT3_18B --csv "$folder/no/such/folder/it.csv"
refuses "--layers '0'" --machine "$machine" --model GPT3_18B --layers 0
refuses "cannot be written" --machine "$machine" --model GPT3_18B --timeline "$folder/no/such/folder/it.csv"
refuses "--timeline needs a simulation" --machine "$machine" --model GPT3_18B --timeline "$folder/it.csv" --only-bytes
refuses "--strategies does not name it" --machine "$machine" --model GPT3_18B --timeline "$folder/it.csv" --strategies plain
refuses "give fewer --layers" --machine "$machine" --model GPT3_18B --layers 400 --timeline "$folder/it.csv" --strategies planned
refuses "--colour" --machine "$machine" --model GPT3_18B --colour

for mistake in 's/"nodes": {"value": 1/"nodes": {"value": -1/' 's/"devices"/"device"/' 's/"value": 125000000000000/"value": 1e999/'; do
  sed "$mistake" "$machine" >"$folder/bad.json"
  if cmp -s "$machine" "$folder/bad.json"; then
    echo "the mistake $mistake is none"
    failed=1
  fi
  refuses "bad.json" --machine "$folder/bad.json" --model GPT3_18B
done
printf '{"name": "half' >"$folder/bad.json"
refuses "bad.json" --machine "$folder/bad.json" --model GPT3_18B
refuses "bad.json" --machine "$machine" --model "$folder/bad.json"
exit $failed
