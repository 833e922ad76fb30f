#!/bin/sh
# gpu_campaign.sh <top of the tree> <python> <empty folder>: what bench/gpu.sh would run is printed, and figures come out of what its parts
# leave. Nothing of it needs a GPU, and no number here is one of a GPU.
top=$1
python=$2
out=$3
rm -rf "$out"
mkdir -p "$out/made" || exit 1
fail() { echo "gpu_campaign: $*"; exit 1; }

PYTHONPYCACHEPREFIX=$out/cache "$python" -m py_compile "$top"/bench/*.py || fail "a script does not compile"
PYTHON=$python sh "$top/bench/gpu.sh" --dry "$out/dry" >"$out/dry.txt" || fail "the dry run failed"
for part in configure build tests copies_bench gpt_capped gpt_whole libtorch fsdp2_pin_yes fsdp2_pin_no largest figures; do
  grep -q "^$part.* s): " "$out/dry.txt" || fail "the dry run does not name $part"
done
"$python" "$top/bench/gpu_figures.py" "$out/dry" 2>/dev/null && fail "figures were made of nominal rates"

# A campaign of made-up numbers: steps of 1,000 tokens, the second half twice as fast as the first.
made=$out/made
cat >"$made/rates.json" <<'RATES'
{"from": "measured rates", "to_device": 2e6, "to_host": 1e6, "context": 10, "batches": [50, 100, 400], "t_star": 1000}
RATES
training() { # name, tokens/s of the second half, MiB of a step, loaded and written back, hash
  for step in 1 2 3 4; do
    rate=$2
    [ $step -gt 2 ] || rate=$(($2 / 2))
    echo "step $step/4  loss 5.$step  lr 0.001  $rate tokens/s  moved $3 MiB"
  done >"$made/$1.txt"
  echo "model   2000000 parameters: 1 layers" >>"$made/$1.txt"
  echo "{\"losses\": [5.1, 5.2], \"parameter_hash\": \"$6\", \"memory\": {\"loaded\": $4, \"written_back\": $5}}" >"$made/$1.json"
}
for batch in 50 100 400; do
  training gpt_capped_$batch 400 1 3 1 aa
  training gpt_whole_$batch 500 1 1 1 aa
done
training largest_80 400 1 1 1 aa
training largest_64 400 1 1 1 aa
echo '{"tokens_per_second": 300}' >"$made/libtorch.json"
echo '{"tokens_per_second": 100}' >"$made/fsdp2_pin_yes.json"
echo '{"tokens_per_second": 150}' >"$made/fsdp2_pin_no.json"
says() {
  told=$("$python" "$top/bench/gpu_figures.py" "$made") || fail "no figures were made"
  echo "$told" | grep -q -x -F "$1" || fail "no line '$1' in: $told"
}
says 'cuda.capped_over_uncapped_tokens is 0.8 ratio, bound >= 0.9'
# 500 tokens at 400 a second are 1.25 s; 3/4 of 1 MiB at 2 MB/s are 0.393 s, more than 1/4 at 1 MB/s
says 'cuda.step_over_link_bound is 3.179 ratio, bound <= 1.1'
says 'cuda.largest_gpt_billions is 0.002 10^9 parameters, bound >= 0'
says 'cuda.libtorch_over_fsdp2_tokens is 2 ratio, bound >= 1.5'
says 'cuda.trainings_that_differ is 0 trainings, bound == 0'
[ -s "$made/figures/gpu_campaign.json" ] || fail "no records were written"
training gpt_whole_400 500 1 1 1 bb
says 'cuda.trainings_that_differ is 1 trainings, bound == 0'
rm "$made/fsdp2_pin_no.json"
says 'cuda.libtorch_over_fsdp2_tokens: not measured, FSDP2 did not finish with both choices of pinned memory'
echo "gpu_campaign: commands and figures are as they should be"
