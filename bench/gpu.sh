#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu.sh [--dry] OUTDIR: everything that only a GPU can show, in at most ten minutes on one GPU of this machine.
#
# Builds the preset gpu, trains examples/gpt_cuda at 0.5, 1 and 4 T* with a quarter of its model data on the device and with all of it there,
# compares examples/libtorch_gpt with PyTorch's FSDP2, looks for the largest GPT, and runs the tests and benches of a GPU. T* is the number
# of tokens per step at which copies and the host's update hide behind compute, from rates that are measured here, which takes PyTorch.
# Every part has a time limit of its own, and no more than is left: one that hangs or fails does not take the rest, and the log
# says so. What is worth most comes first. Nothing is downloaded.
#
# OUTDIR gets `log`, the output of each part, and `figures/*.json`: commit these to bench/results/.
# Environment: CHUNKMEM_CATCH2_INCLUDE (folder of catch2/catch.hpp), CMAKE_PREFIX_PATH (where CLI11 and others lie), PYTHON (with PyTorch).
# Status: 0 every bound that was measured is met and no part failed; 1 not so; 4 there is no GPU.
# --dry prints the commands with their sizes, from nominal rates, and runs nothing.
set -u
unset CDPATH
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
dry=no
if [ "${1:-}" = --dry ]; then
  dry=yes
  shift
fi
if [ $# -ne 1 ]; then
  echo "usage: sh bench/gpu.sh [--dry] OUTDIR" >&2
  exit 1
fi
PYTHON=${PYTHON:-python3}
if [ $dry = no ] && ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  echo "gpu.sh: no GPU was found (nvidia-smi -L lists none)"
  exit 4
fi
mkdir -p "$1" || exit 1
out=$(cd "$1" && pwd) || exit 1
mkdir -p "$out/figures"
log=$out/log
: >"$log"
export CHUNKMEM_FIGURES="$out/figures"
build=$here/build/gpu
begin=$(date +%s)
limit=560  # seconds of parts; figures and the end of what hangs take some of the ten minutes
failed=

say() { echo "$*" | tee -a "$log"; }

# part NAME SECONDS COMMAND...: runs it with a time limit, its output in OUTDIR/NAME.txt. @return its status
part() {
  name=$1
  seconds=$2
  shift 2
  if [ $dry = yes ]; then
    say "$name ($seconds s): $*"
    return 0
  fi
  left=$((limit - $(date +%s) + begin))
  [ "$seconds" -le "$left" ] || seconds=$left
  if [ "$seconds" -le 5 ]; then
    say "$name: left out, the ten minutes are over"
    failed="$failed $name"
    status=over
    return 1
  fi
  part_begin=$(date +%s)
  timeout -k 5 "$seconds" "$@" >"$out/$name.txt" 2>&1
  status=$?
  case $status in
    0) verdict="done" ;;
    4) verdict="skipped: $(grep -m 1 SKIPPED "$out/$name.txt")" ;;
    124 | 137) verdict="ended after its $seconds s" ;;
    *) verdict="FAILED with status $status: $(tail -n 1 "$out/$name.txt")" ;;
  esac
  say "$name: $verdict ($(($(date +%s) - part_begin)) s)"
  case $status in 0 | 4) ;; *) failed="$failed $name" ;; esac
  return $status
}
# What the host may give [MiB]: what the machine has free, and no more than what this container may still take.
host_memory() {
  awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo >"$out/host_memory"
  for names in memory.max,memory.current memory/memory.limit_in_bytes,memory/memory.usage_in_bytes; do
    most=/sys/fs/cgroup/${names%,*} used=/sys/fs/cgroup/${names#*,}
    if ! [ -r "$most" ] || ! [ -r "$used" ]; then continue; fi
    awk 'NR == 1 { most = $1 } NR == 2 && most != "max" { print int((most - $1) / 1048576) }' "$most" "$used" >>"$out/host_memory"
  done
  awk 'NR == 1 || $1 < least { least = $1 } END { print int(least * 0.85) }' "$out/host_memory"
}
has_program() { [ $dry = yes ] || [ -x "$build/bin/$1" ] || { say "$1: was not built"; failed="$failed $1"; return 1; }; }

say "gpu.sh: $(date -u '+%Y-%m-%d %H:%M UTC'), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)"
jobs=$(nproc)
has_torch=no
torch=
if [ $dry = yes ]; then
  has_torch=yes
  torch='PYTORCH'
elif torch=$("$PYTHON" -c 'import torch; assert torch.cuda.is_available(); print(torch.utils.cmake_prefix_path)' 2>/dev/null); then
  has_torch=yes
else
  say "libtorch: $PYTHON has no PyTorch with CUDA: the parts with it are left out"
fi
catch=ON
if [ $dry = no ] && [ -z "${CHUNKMEM_CATCH2_INCLUDE:-}" ] && [ ! -e /usr/include/catch2/catch.hpp ] && [ ! -e /usr/include/catch2/catch_test_macros.hpp ]; then
  catch=OFF
  say "tests: left out, Catch2 was not found (CHUNKMEM_CATCH2_INCLUDE)"
fi

# 1. Build what the figures need. Programs one by one, so that one that does not compile takes none of the others with it.
# A PyTorch that its own CMake files refuse with this CUDA ends configuring: once more without it then.
configure() { # name, what it is told besides
  name=$1
  shift
  part "$name" 60 cmake --preset gpu -S "$here" -DCHUNKMEM_BUILD_EXAMPLES=ON "-DCHUNKMEM_BUILD_TESTS=$catch" "$@"
}
if ! configure configure "-DCMAKE_PREFIX_PATH=$torch" -DCMAKE_DISABLE_FIND_PACKAGE_Torch=OFF; then
  rm -f "$build/CMakeCache.txt"  # what PyTorch's files left in it
  configure configure_without_torch -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON
fi
part build 120 cmake --build "$build" --parallel "$jobs" --target gpt_cuda adam_bandwidth_bench -- -k 0
[ $has_torch = no ] || part build_libtorch 90 cmake --build "$build" --parallel "$jobs" --target libtorch_gpt

gpt=no
! has_program gpt_cuda || gpt=yes

# 2. Rates of this machine, T*, and the sizes that follow.
model="--layers 40 --width 2048 --heads 16"  # 2.0 billion parameters, 30 GiB of model data
parameters=2015000000
if [ $dry = yes ]; then
  "$PYTHON" "$here/bench/gpu_rates.py" --nominal --context 1024 --out "$out/rates.json" >"$out/rates.txt" || failed="$failed rates"
else
  part rates 45 "$PYTHON" "$here/bench/gpu_rates.py" --adam "$build/bin/adam_bandwidth_bench" --context 1024 --out "$out/rates.json"
fi
batches=$("$PYTHON" -c "import json; print(*json.load(open('$out/rates.json'))['batches'])" 2>/dev/null)
if [ -z "$batches" ]; then
  say "rates: not known, so T* is not: its parts are left out"
else
  # shellcheck disable=SC2086  # a list of words
  set -- $batches
  half=$1 one=$2 four=$3
  say "T*: $("$PYTHON" -c "import json; r = json.load(open('$out/rates.json')); print(r['t_star'], 'tokens', r['from'])")"

  # 3. Our GPT with a quarter of its model data on the device and updates on the CPU, and with all of it and updates on the device, which
  # is its fastest form; both have the same bits. Activations come out of the same budget, so room for them is added to both: a row of
  # each layer's input, and some of the layer that is computed.
  quarter=$((parameters * 16 / 4 / 1048576))
  train_pair() { # batch
    common="$model --context 1024 --batch $1 --steps 8 --sample 0 --threads $jobs --transfer planned"
    activations=$(($1 * 1024 * 2048 * 2 * (40 + 32) / 1048576))
    # shellcheck disable=SC2086
    part gpt_capped_$1 40 "$build/bin/gpt_cuda" $common --update cpu --device-memory $((quarter + activations))MiB \
      --report "$out/gpt_capped_$1.json"
    # shellcheck disable=SC2086
    part gpt_whole_$1 40 "$build/bin/gpt_cuda" $common --update gpu --device-memory $((quarter * 4 + 2048 + activations))MiB \
      --report "$out/gpt_whole_$1.json"
  }
  if [ $gpt = yes ]; then
    train_pair "$one"
    train_pair "$half"
  fi

  # 4. LibTorch with chunkmem, its activations beside the budget, and FSDP2 with both choices of pinned memory: the same model, tokens, recomputation.
  if [ $has_torch = yes ]; then
    same="$model --context 1024 --batch $one --steps 8 --warm-up 3"
    # shellcheck disable=SC2086
    has_program libtorch_gpt && part libtorch 60 "$build/bin/libtorch_gpt" --cuda $same --recompute --late --threads "$jobs" \
      --device ${quarter}MiB --report "$out/libtorch.json"
    for pin in yes no; do
      # shellcheck disable=SC2086
      part fsdp2_pin_$pin 60 "$PYTHON" "$here/bench/fsdp2.py" $same --pin $pin --report "$out/fsdp2_pin_$pin.json"
    done
  fi

  # 5. Above T*.
  [ $gpt = no ] || train_pair "$four"
fi

# 6. The largest GPT, from large to small: what is too large says so before it trains, what takes too long is halved, any other end is a failure.
memory=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | head -n 1)
host=$(host_memory)
layers=160
while [ $gpt = yes ] && [ $layers -ge 16 ]; do
  size="--layers $layers --width 2560 --heads 20 --context 1024 --batch 4 --steps 2 --sample 0 --threads $jobs --gradient in_place --clip 1"
  # shellcheck disable=SC2086
  part largest_$layers 120 "$build/bin/gpt_cuda" $size --device-memory $((${memory:-81559} * 9 / 10))MiB --host-memory "${host}MiB" \
    --report "$out/largest_$layers.json" && break
  case $status in
    over) break ;;
    124 | 137)
      failed=${failed% largest_"$layers"}
      say "largest: the time limit, not memory, decided against $layers layers"
      layers=$((layers / 2))
      ;;
    *)
      if [ "$status" -eq 2 ] && grep -q -e 'is too small:' -e 'is more than the' -e 'not fit the' "$out/largest_$layers.txt"; then
        failed=${failed% largest_"$layers"}
      fi
      layers=$((layers - 16))
      ;;
  esac
done
[ $layers -ge 16 ] || failed="$failed largest"

# 7. Tests and benches of the backend.
part build_rest 120 cmake --build "$build" --parallel "$jobs" --target cuda_programs -- -k 0
[ $catch = OFF ] || part tests 60 ctest --test-dir "$build" -L '^gpu$' -LE '^(slow|figures)$' -E '^cuda[.]' --output-on-failure
for program in copies_bench adam_bench steady_state_bench; do
  has_program $program && part $program 30 "$build/bin/$program"
done

# 8. Figures, and their bounds.
if [ $dry = yes ]; then
  say "figures (10 s): $PYTHON $here/bench/gpu_figures.py $out"
  exit 0
fi
"$PYTHON" "$here/bench/gpu_figures.py" "$out" >"$out/figures.txt" 2>&1 || failed="$failed figures"
tee -a "$log" <"$out/figures.txt"
cmake "-DFIGURES=$out/figures" -P "$here/cmake/print_figures.cmake" >"$out/bounds.txt" 2>&1 || failed="$failed bounds"
tee -a "$log" <"$out/bounds.txt"
say "gpu.sh: $(($(date +%s) - begin)) s${failed:+; failed:$failed}"
[ -z "$failed" ]
