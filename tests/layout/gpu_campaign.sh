#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu_campaign.sh <top of the tree> <python> <empty folder>: what bench/gpu.sh --full would run is printed, and figures come out of what its
# parts leave. Nothing of it needs a GPU, and no number here is one of a GPU. Sizes, limits and failures are those of gpu_first.sh.
top=$1
python=$2
out=$3
rm -rf "$out"
mkdir -p "$out/made" || exit 1
fail() { echo "gpu_campaign: $*"; exit 1; }
unset CUDA_VISIBLE_DEVICES CHUNKMEM_GPU_LIMITS

PYTHONPYCACHEPREFIX=$out/cache "$python" -m py_compile "$top"/bench/*.py || fail "a script does not compile"
PYTHON=$python sh "$top/bench/gpu.sh" --full --dry --memory 81559 --host 900000 "$out/dry" >"$out/dry.txt" || fail "the dry run failed"
for part in configure build tests memcheck copies_bench steady_state_bench rates gpt_capped gpt_whole libtorch fsdp2_pin_yes fsdp2_pin_no largest \
  figures; do
  grep -q "^$part.* s): " "$out/dry.txt" || fail "the dry run does not name $part"
done
"$python" "$top/bench/gpu_figures.py" "$out/dry" 2>/dev/null && fail "figures were made of nominal rates"

# A campaign of made-up numbers: steps of 1,000 tokens, the second half twice as fast as the first.
made=$out/made
cat >"$made/rates.json" <<'RATES'
{"from": "measured rates", "to_device": 20e6, "to_host": 10e6, "updates": 2e6, "context": 10, "batches": [50, 100, 400], "t_star": 1000}
RATES
training() { # name, tokens/s of the second half, MiB of a step, hash
  for step in 1 2 3 4; do
    rate=$2
    [ $step -gt 2 ] || rate=$(($2 / 2))
    echo "step $step/4  loss 5.$step  lr 0.001  $rate tokens/s  moved $3 MiB"
  done >"$made/$1.txt"
  echo "model   2000000 parameters: 1 layers" >>"$made/$1.txt"
  echo "{\"losses\": [5.1, 5.2], \"parameter_hash\": \"$4\", \"memory\": {}}" >"$made/$1.json"
}
for batch in 50 100 400; do
  training gpt_capped_$batch 400 1 aa
  training gpt_whole_$batch 500 0 aa
done
training largest_80 400 1 aa
training largest_64 400 1 aa
echo '{"tokens_per_second": 300}' >"$made/libtorch.json"
echo '{"tokens_per_second": 100}' >"$made/fsdp2_pin_yes.json"
echo '{"tokens_per_second": 150}' >"$made/fsdp2_pin_no.json"
figures() { told=$("$python" "$top/bench/gpu_figures.py" "$made" 2>&1); }
says() {
  figures
  echo "$told" | grep -q -x -F "$1" || fail "no line '$1' in: $told"
}
says 'cuda.capped_over_uncapped_tokens is 0.8 ratio, bound >= 0.9'
# 500 tokens at 400 a second are 1.25 s; two million updates at 2 million a second are 1 s, more than 4 MB up at 20 or down at 10 MB/s
says 'cuda.step_over_link_bound is 1.25 ratio, bound <= 1.1'
says 'cuda.largest_gpt_billions is 0.002 10^9 parameters, bound >= 0'
says 'cuda.libtorch_over_fsdp2_tokens is 2 ratio, bound >= 1.5'
says 'cuda.trainings_that_differ is 0 trainings, bound == 0'
[ -s "$made/figures/gpu_campaign.json" ] || fail "no records were written"
training gpt_whole_400 500 0 bb
says 'cuda.trainings_that_differ is 1 trainings, bound == 0'
training gpt_whole_50 500 0 cc
rm "$made/gpt_capped_100.txt"  # what was seen to differ stays so where another pair is missing
says 'cuda.trainings_that_differ is 2 trainings, bound == 0'
says 'compared capped and whole: 2 of 3'
training gpt_capped_100 400 1 aa
training gpt_whole_100 500 1 aa
says 'cuda.capped_over_uncapped_tokens: not measured, the uncapped training moved 1 MiB in a step: it is capped itself'
training gpt_whole_100 500 0 aa
sed 's/5.1/null/' "$made/gpt_whole_100.json" >"$made/with_null" && mv "$made/with_null" "$made/gpt_whole_100.json"
says 'cuda.trainings_that_differ is 3 trainings, bound == 0'  # losses that are no number are nobody's match
training gpt_whole_100 500 0 aa
rm "$made/fsdp2_pin_no.json"
says 'cuda.libtorch_over_fsdp2_tokens: not measured, FSDP2 did not finish with both choices of pinned memory'

# A damaged file takes one figure, whatever is wrong with it, and the next size is the largest.
for damage in '{"tokens_per' '[]' '{"tokens_per_second": "fast"}' '{"tokens_per_second": 0}' '{"tokens_per_second": 3, "losses": [null]}'; do
  echo "$damage" >"$made/libtorch.json"
  rm -f "$made/figures/gpu_campaign.json"
  says 'cuda.capped_over_uncapped_tokens is 0.8 ratio, bound >= 0.9'
  echo "$told" | grep -q '^cuda.libtorch_over_fsdp2_tokens: not measured, ' || fail "no word of '$damage' in: $told"
  [ -s "$made/figures/gpu_campaign.json" ] || fail "no records beside '$damage'"
done
: >"$made/largest_80.json"
sed 's/2000000/1000000/' "$made/largest_64.txt" >"$made/smaller" && mv "$made/smaller" "$made/largest_64.txt"
says 'cuda.largest_gpt_billions is 0.001 10^9 parameters, bound >= 0'
sed '/^model/d' "$made/gpt_capped_50.txt" >"$made/headless" && mv "$made/headless" "$made/gpt_capped_50.txt"
says 'cuda.step_over_link_bound: not measured, gpt_capped_50 did not say how many parameters it has'
rm "$made/rates.json"
says 'cuda.capped_over_uncapped_tokens: not measured, batches is not known: rates.json is not there'
says 'compared capped and whole: 2 of 3'  # which do not need rates
says 'cuda.largest_gpt_billions is 0.001 10^9 parameters, bound >= 0'

# The whole campaign with programs that only report that they ran: a PyTorch that stops configuring affects only its own
# parts, a size that is too large is no failure, and failures are listed at the end.
tree=$out/tree
mkdir -p "$tree/bench" "$tree/bin" "$tree/build/gpu/bin"
cp "$top/bench/gpu.sh" "$tree/bench/"
program() { # file, its text
  printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"
}
# shellcheck disable=SC2016  # for the programs
{
  program "$tree/bin/nvidia-smi" 'case $* in -L) echo "GPU 0: made up" ;; *) echo "made up, 1, 40000, 39000" ;; esac'
  program "$tree/bin/cmake" 'case $* in *Torch=OFF*) echo "CUDA does not match"; exit 1 ;; esac'
  program "$tree/bin/ctest" 'exit 0'
  program "$tree/bin/python" 'case $* in
  *gpu_rates.py*) echo "{}" >/dev/null ;;
  *prefix_path*) echo made/up ;;
  *gpu_figures.py*) echo "a figure is broken"; exit 1 ;;
  *batches*) echo "2 4 16" ;;
esac'
  program "$tree/build/gpu/bin/gpt_cuda" "case \$* in
  *in_place*) mkdir '$tree/once' 2>/dev/null && { echo 'host memory 3 GiB does not fit the 2 GiB'; exit 2; } ;;
esac
exit 0"
}
for each in copies_bench adam_bench steady_state_bench gpt_cuda_check test_gpu; do program "$tree/build/gpu/bin/$each" 'exit 0'; done
campaign() { # status, what is beside it
  rmdir "$tree/once" 2>/dev/null
  CHUNKMEM_CATCH2_INCLUDE=$out CHUNKMEM_COMPUTE_SANITIZER=$out/none PYTHON=$tree/bin/python PATH=$tree/bin:$PATH \
    sh "$tree/bench/gpu.sh" --full --host 100000 "$out/run" >"$out/run.txt"
  [ $? -eq "$1" ] || fail "a campaign with $2 did not end with $1: $(cat "$out/run.txt")"
}
campaign 1 'a broken figure'
for line in 'configure: FAILED' 'configure_without_torch: done' 'libtorch: left out' 'gpt_whole_4: done' 'largest_65: FAILED' 'largest_48: done' \
  'tests: done' 'a figure is broken'; do
  grep -q "^$line" "$out/run.txt" || fail "no line '$line' in: $(cat "$out/run.txt")"
done
grep -q '; failed: figures$' "$out/run.txt" || fail "other failures in: $(tail -n 1 "$out/run.txt")"
order=$(grep -n -e '^gpt_capped_4:' -e '^fsdp2_pin_no:' -e '^largest_48:' -e '^tests:' "$out/run.txt" | cut -d : -f 2 | tr '\n' ' ')
[ "$order" = 'tests gpt_capped_4 fsdp2_pin_no largest_48 ' ] || fail "the order is $order"
# Nothing wrong but what is left out: 0.
sed -i.bak 's/echo "a figure is broken"; exit 1/exit 0/' "$tree/bin/python"
campaign 0 'nothing wrong'
echo "gpu_campaign: commands and figures are as they should be"
