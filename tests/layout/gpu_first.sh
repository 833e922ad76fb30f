#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu_first.sh <top of the tree> <python> <empty folder>: the sizes and limits of bench/gpu.sh --first and --ranks for some cards, and whole
# runs over programs that only say that they ran, with failures among them. Nothing of it needs a GPU.
top=$1
python=$2
out=$3
rm -rf "$out"
mkdir -p "$out" || exit 1
fail() { echo "gpu_first: $*"; exit 1; }
unset CUDA_VISIBLE_DEVICES CHUNKMEM_GPU_LIMITS CHUNKMEM_COMPUTE_SANITIZER

# ---- dry: sizes

dry() { # options: what is printed is in dry.txt
  PYTHON=$python sh "$top/bench/gpu.sh" --dry "$@" "$out/dry" >"$out/dry.txt"
}
# The options of a training: layers, width, heads, host and device memory.
chosen() { # part
  number='\([0-9]*\)'
  memories="--host-memory ${number}MiB .*--device-memory ${number}MiB"
  sed -n "s/^$1 ([0-9]* s): .* --layers $number --width $number --heads $number .*$memories.*/\1 \2 \3 \4 \5/p" "$out/dry.txt"
}
# What they are to be. A quarter: beside the data lie the inputs of layers and a layer that is computed; least: 0, or the device's room where the
# training gets that at most. Widths and layers are searched one after the other.
wanted() { # MiB of model data at most, bytes a parameter, layers aimed at, batch, ranks, device: whole, quarter or least, MiB of the card
  awk -v most="$1" -v bytes="$2" -v aim="$3" -v batch="$4" -v ranks="$5" -v device="$6" -v card="$7" 'BEGIN {
    ideal = sqrt(most * 1024 * 1024 / bytes / 12 / aim)
    width = 256
    while (ideal - width > 64) width += 128
    layers = 0
    while ((12 * width ^ 2 + 13 * width) * (layers + 1) + 1282 * width <= most * 1024 * 1024 / bytes && layers < 512) layers++
    data = ((12 * width ^ 2 + 13 * width) * layers + 1282 * width) * bytes / 1024 / 1024 / ranks
    input = batch * 1024 * width * 2 / 1024 / 1024
    pinned = (data + input * (layers + 1)) * 1.125 + 1024
    room = int(card * 0.9) - 1024
    quarter = int(int(data + 0.5) / 4) + int(input * (layers + 32) + (ranks > 1 ? 128 * width ^ 2 / 1024 / 1024 : 0) + 0.5)
    given = device == "whole" ? room : quarter
    if (device == "least" && given > room) given = room
    printf "%d %d %d %.0f %d\n", layers, width, width / 128, pinned, given
  }'
}
least() { awk 'BEGIN { least = ARGV[1]; for (i = 2; i < ARGC; i++) if (ARGV[i] + 0 < least + 0) least = ARGV[i]; print int(least) }' "$@"; }
same() { [ "$2" = "$3" ] || fail "$1 has '$2' and not '$3'"; }
adds_up() { # limit: the parts, and five seconds for ends, are not more, and that is what is printed
  total=$(sed -n 's/^[A-Za-z_0-9]* (\([0-9]*\) s): .*/\1/p' "$out/dry.txt" | awk '{ sum += $1 } END { print sum + 5 }')
  [ "$total" -le "$1" ] || fail "limits add up to $total s: $(cat "$out/dry.txt")"
  grep -q "^limits: .*: $total of $1\$" "$out/dry.txt" || fail "no sum of $total in: $(cat "$out/dry.txt")"
}
host_holds() { awk -v free="$1" 'BEGIN { print int((int(free * 0.85) - 1024) * 0.8) }'; }

while read -r memory host name; do
  dry --first --card "$name" --memory "$memory" --host "$host" || fail "the dry run for $name failed: $(cat "$out/dry.txt")"
  holds=$(host_holds "$host")
  pair=$(least $((memory / 4)) 12288 "$holds")
  same "$name, capped" "$(chosen gpt_capped_8)" "$(wanted "$pair" 16 24 8 1 quarter "$memory")"
  same "$name, whole" "$(chosen gpt_whole_8)" "$(wanted "$pair" 16 24 8 1 whole "$memory")"
  largest=$(least $((memory * 4 * 51 / 50)) "$holds")
  same "$name, largest" "$(chosen 'largest_[0-9]*')" "$(wanted "$largest" 14 96 4 1 least "$memory")"
  if [ "$largest" -lt $((memory * 4)) ]; then
    grep -q "^largest: .* where four times the memory of .* is .* the host has $host MiB free, and .* fit it\$" "$out/dry.txt" ||
      fail "no word of a host too small for $name: $(grep '^largest' "$out/dry.txt")"
  else
    grep -q '^largest: .* of device memory, four times the memory of ' "$out/dry.txt" || fail "$name: $(grep '^largest' "$out/dry.txt")"
  fi
  grep -q "^| $name | 1 x $memory MiB | host $host MiB | pair: .* | four times: .* | [0-9]* s |\$" "$out/dry.txt" || fail "no row of $name"
  adds_up 540
done <<'CARDS'
24564 120000 NVIDIA GeForce RTX 4090
40960 230000 NVIDIA A100-SXM4-40GB
81920 900000 NVIDIA A100-SXM4-80GB
81559 900000 NVIDIA H100 80GB HBM3
143771 1900000 NVIDIA H200
143771 125000 NVIDIA H200
8188 15000 NVIDIA GeForce RTX 4060
CARDS
order=$(sed -n 's/^\([a-z_]*\)[_0-9]* ([0-9]* s): .*/\1/p' "$out/dry.txt" | tr '\n' ' ')
same 'the order' "$order" 'configure build_check gpt_cuda_check build tests memcheck racecheck copies_bench gpt_capped_ gpt_whole_ largest_ figures '
grep -q -i torch.=OFF "$out/dry.txt" && fail "--first asks for PyTorch"

dry --ranks 2 --card two --memory 81920,40960 --host 450000 || fail "the dry run of two cards failed: $(cat "$out/dry.txt")"
same 'two cards, capped' "$(chosen ranks_capped)" "$(wanted $((2 * 40960 / 4)) 16 24 8 2 quarter 40960)"
same 'two cards, whole' "$(chosen ranks_whole)" "$(wanted $((2 * 40960 / 4)) 16 24 8 2 whole 40960)"
same 'two cards, largest' "$(chosen ranks_largest)" "$(wanted "$(least $((2 * 4 * 40960 * 51 / 50)) "$(host_holds 450000)")" 16 96 4 2 least 40960)"
adds_up 900
dry --full --memory 81559 --host 900000 || fail "the dry run of everything failed"
adds_up 5600
CHUNKMEM_GPU_LIMITS='tests=61' dry --memory 81559 --host 900000 && fail "limits above nine minutes are taken"
CHUNKMEM_GPU_LIMITS='tests=61 total=541' dry --memory 81559 --host 900000 || fail "other limits are refused: $(cat "$out/dry.txt")"
adds_up 541

# ---- whole runs

tree=$out/tree
mkdir -p "$tree/bench" "$tree/cmake" "$tree/bin" "$tree/made"
cp "$top/bench/gpu.sh" "$top/bench/gpu_figures.py" "$tree/bench/"
cp "$top/cmake/print_figures.cmake" "$tree/cmake/"
export TREE="$tree"
CMAKE=$(command -v cmake)
export CMAKE
# A program that hangs, fails or is ended where PLANT says so: " name=hang name=fail "
program() { # file, its name, its text
  # shellcheck disable=SC2016  # for the program
  printf '#!/bin/sh\ncase $PLANT in\n  *" %s=hang "*) exec sleep 30 ;;\n  *" %s=stuck "*) trap "" TERM; sleep 30; sleep 30 ;;\n' "$2" "$2" >"$1"
  # shellcheck disable=SC2016
  printf '  *" %s=fail "*) echo "it is broken"; exit 3 ;;\n  *" %s=killed "*) kill -9 $$ ;;\nesac\n%s\n' "$2" "$2" "$3" >>"$1"
  chmod +x "$1"
}
# shellcheck disable=SC2016
{
  program "$tree/bin/nvidia-smi" nvidia-smi 'case $* in
  -L) cat "$TREE/slices" ;;
  *memory.total*) cat "$TREE/cards" ;;
  *) cut -d , -f 1,2 "$TREE/cards" ;;
esac'
  program "$tree/bin/cmake" cmake 'case $* in
  *-P*) exec "$CMAKE" "$@" ;;
  *--preset*)
    case $PLANT in *" nvcc=none "*)
      echo "CMake Error at cmake/cuda.cmake:1 (message):"
      echo "  chunkmem: CHUNKMEM_WITH_CUDA=ON, but no nvcc was found"
      echo "-- Configuring incomplete, errors occurred!"
      exit 1 ;;
    esac
    release=13.0.88
    case $PLANT in *" nvcc=12 "*) release=12.4.131 ;; esac
    mkdir -p "$TREE/build/gpu/CMakeFiles/3.25.1"
    printf "set(CMAKE_CUDA_COMPILER \"%s\")\nset(CMAKE_CUDA_COMPILER_VERSION \"%s\")\n" "$TREE/toolkit/nvcc" $release \
      >"$TREE/build/gpu/CMakeFiles/3.25.1/CMakeCUDACompiler.cmake" ;;
  *) mkdir -p "$TREE/build/gpu/bin"
    for each in "$TREE"/made/*; do
      case "$* $PLANT" in
        *"--target gpt_cuda_check"*) [ "${each##*/}" = gpt_cuda_check ] || continue ;;
        *" ${each##*/}=error "*) echo "${each##*/}.cu(7): error: it does not compile"; wrong=1; continue ;;
      esac
      cp "$each" "$TREE/build/gpu/bin/"
    done
    exit ${wrong:-0} ;;
esac'
  program "$tree/bin/ctest" tests 'case $PLANT in *" tests=some "*)
  printf "the rest is well\nThe following tests FAILED:\n\t  7 - gpu.kernels (Failed)\n\n"
  exit 8 ;;
esac'
  program "$tree/bin/compute-sanitizer" sanitizer 'echo "========= ERROR SUMMARY: 0 errors"'
  program "$tree/made/test_gpu" test_gpu ''
  program "$tree/made/gpt_cuda_check" check 'case $PLANT in
  *" check=wrong "*) echo "softmax 1e-1, bound 4e-03: WRONG"; exit 1 ;;
  *" check=skips "*) echo "SKIPPED: no GPU: cudaErrorInsufficientDriver"; exit 4 ;;
esac'
  program "$tree/made/copies_bench" copies ''
  program "$tree/made/adam_bench" adam 'share=0.95
case $PLANT in *" adam=slow "*) share=0.5 ;; esac
record="\"value\": $share, \"unit\": \"ratio\", \"relation\": \">=\", \"bound\": 0.9, \"command\": \"adam_bench\""
echo "[{\"name\": \"cuda.adam_over_device_copy\", $record}]" >"$CHUNKMEM_FIGURES/adam_bench.json"'
  program "$tree/made/gpt_cuda" gpt 'kind=largest rate=100 moved=900 hash=aa seconds=1.5
case $* in
  *--ranks*) kind=ranks ;;
  *"--gradient in_place"*) ;;
  *"--update cpu"*) kind=capped rate=400 moved=9 ;;
  *"--update gpu"*) kind=whole rate=500 moved=0 ;;
esac
case $PLANT in
  *" $kind=hang "*) exec sleep 30 ;;
  *" $kind=stuck "*) trap "" TERM; sleep 30; sleep 30 ;;
  *" $kind=killed "*) kill -9 $$ ;;
  *" $kind=differs "*) hash=bb ;;
  *" $kind=slow "*) seconds=1000 ;;
esac
while [ $# -gt 0 ]; do
  case $1 in --report) report=$2 ;; --steps) steps=$2 ;; esac
  shift
done
echo "model   2000000 parameters: 1 layers"
echo "memory made in $seconds s"
for step in 1 2 3 4 5 6 7 8; do
  [ $step -gt $steps ] || echo "step $step/$steps  loss 5.1  lr 0.001  $rate tokens/s  moved $moved.0 MiB"
done
[ -z "$report" ] || echo "{\"losses\": [5.1], \"parameter_hash\": \"$hash\", \"memory\": {}}" >"$report"'
}
card24='NVIDIA GeForce RTX 4090, 580.65.06, 24564, 24100'
# run STATUS PLANT OPTION...: what is printed is in run.txt. Figures are made where with_python says so: a Python takes longer than all else.
run() {
  expected=$1
  PLANT=" $2 "
  export PLANT
  shift 2
  rm -rf "$tree/build" "$out/run"
  mkdir -p "$out/run"
  echo "of an earlier run" >"$out/run/largest_99999.json"
  CHUNKMEM_CATCH2_INCLUDE=$out CHUNKMEM_COMPUTE_SANITIZER=${sanitizer-$tree/bin/compute-sanitizer} PYTHON=${with_python:-$out/none} \
    PATH=$tree/bin:$PATH sh "$tree/bench/gpu.sh" "$@" "$out/run" >"$out/run.txt" 2>&1
  status=$?
  [ $status -eq "$expected" ] || fail "'$PLANT' $* ended with $status and not $expected: $(cat "$out/run.txt")"
}
has() { grep -q -e "$1" "$out/run.txt" || fail "no line '$1' after '$PLANT': $(cat "$out/run.txt")"; }
lacks() { ! grep -q -e "$1" "$out/run.txt" || fail "a line '$1' after '$PLANT': $(cat "$out/run.txt")"; }
ends_with() { # failed parts
  tail -n 1 "$out/run.txt" | grep -q "^gpu.sh: [0-9]* s of 540${1:+; failed: $1}\$" || fail "the end after '$PLANT' is $(tail -n 1 "$out/run.txt")"
}
: >"$tree/slices"

# Every card, with nothing wrong: 0.
for line in "$card24" 'NVIDIA A100-SXM4-40GB, 580.65.06, 40960, 40300' 'NVIDIA H100 80GB HBM3, 580.65.06, 81559, 81000' \
  'NVIDIA H200, 580.65.06, 143771, 143100'; do
  echo "$line" >"$tree/cards"
  with_python=$python run 0 '' --host 1900000
  has "${line%%,*}, driver 580.65.06, "
  for part in configure build_check gpt_cuda_check build tests memcheck racecheck copies_bench adam_bench gpt_capped_8 gpt_whole_8 'largest_[0-9]*'; do
    has "^$part: done ([0-9]* s)\$"
  done
  has '^  step 8/8 .* 400 tokens/s'
  has '^  [0-9]* MiB of the host were pinned in 1.5 s$'
  ends_with ''
done
for line in 'cuda.chunked_over_whole_tokens is 0.8 ratio, bound >= 0' 'cuda.trainings_that_differ is 0 trainings, bound == 0' \
  'cuda.largest_gpt_billions is 0.002 10^9 parameters, bound >= 0' 'figures: 4 bounds, 4 met'; do
  grep -q -x -F "$line" "$out/run/log" || fail "no line '$line' in the log: $(cat "$out/run/log")"
done
[ ! -e "$out/run/largest_99999.json" ] || fail "results of an earlier run stay"
grep -q '^gpt_whole_8 (30 s): .*gpt_cuda --layers' "$out/run/commands.txt" || fail "no commands are kept"

# One part fails, hangs, or cannot even be killed, and the rest goes on.
echo "$card24" >"$tree/cards"
CHUNKMEM_GPU_LIMITS='tests=1 gpt_capped_8=1 copies_bench=1'
export CHUNKMEM_GPU_LIMITS
with_python=$python run 1 'tests=hang whole=killed adam=fail' --first --host 120000
has '^tests: HUNG, ended after its 1 s'
has '^adam_bench: FAILED with status 3: it is broken'
has '^gpt_whole_8: FAILED, killed by the system'
has '^gpt_capped_8: done'
has '^largest_[0-9]*: done'
has '^cuda.chunked_over_whole_tokens: not measured, '
ends_with 'tests adam_bench gpt_whole_8'
run 1 'capped=stuck sanitizer=fail gpt_cuda=none' --first --host 120000
has '^memcheck: FAILED with status 3'
has '^gpt_capped_8: HUNG, ended after its 1 s'
has '^gpt_whole_8: done'
ends_with 'memcheck racecheck gpt_capped_8'
CHUNKMEM_GPU_LIMITS='total=20'
run 1 '' --host 120000
has '^configure: not begun, the time is over'
unset CHUNKMEM_GPU_LIMITS
run 1 'tests=some' --host 120000
has '7 - gpu.kernels (Failed)$'
ends_with tests
run 1 'copies_bench=error gpt_cuda=error' --first --host 120000
has '^build: FAILED with status 1: .* error: it does not compile'
has '^copies_bench: was not built'
has '^adam_bench: done'
ends_with 'build copies_bench gpt_cuda'
with_python=$python run 1 'whole=differs' --host 120000
has 'cuda.trainings_that_differ is 1'
ends_with bounds
run 1 'adam=slow' --host 120000
has 'MISSED'
ends_with bounds

# Tools that are not here, a card or a host that is too small: left out, and no failure.
mkdir "$tree/toolkit"
mv "$tree/bin/compute-sanitizer" "$tree/toolkit/"  # where that nvcc is, and not on the path
sanitizer='' run 0 '' --host 120000
has '^racecheck: done'
grep -q "^memcheck (25 s): $tree/toolkit/compute-sanitizer " "$out/run/commands.txt" || fail "another compute-sanitizer than that of nvcc"
mv "$tree/toolkit/compute-sanitizer" "$tree/bin/"
sanitizer=$out/none run 0 '' --host 120000
has '^memcheck: left out, no compute-sanitizer was found'
has '^racecheck: left out, '
run 0 '' --host 120000
has '^figures of trainings: left out, '
run 0 '' --host 1800
has '^trainings: left out, a host with 1800 MiB free is too small'
lacks '^gpt_[cw][ah]'
run 0 '' --host 60000
has '^largest: .* where four times the memory of 1 x 24.0 GiB is 96.0 GiB: the host has 60000 MiB free, and 39.0 GiB of model data fit it$'
run 0 'capped=slow whole=slow' --host 120000
has '^largest: .*: more is not pinned in time at 8 MiB/s, with [0-9]* s left$'
echo 'NVIDIA GeForce RTX 4060, 580.65.06, 8188, 7900' >"$tree/cards"
run 0 '' --host 30000
has '^adam_bench: left out, it takes 12800 MiB of the card'
has '^gpt_whole_8: done'
echo 'NVIDIA A100-SXM4-40GB, 580.65.06, 40960, 8000' >"$tree/cards"
run 0 '' --host 120000
has '^card: only 8000 of its 40960 MiB are free'
grep -q '^gpt_whole_8 .* --device-memory 6976MiB' "$out/run/commands.txt" || fail "a card in use is taken whole"
printf 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\n  MIG 1g.5gb      Device  0: (UUID: MIG-1)\n' >"$tree/slices"
run 0 '' --host 120000
has 'a slice of 5 GB, driver not asked, 4800 MiB'
: >"$tree/slices"
echo 'a small card, 580.65.06, 2048, 2000' >"$tree/cards"
run 0 '' --host 120000
has '^trainings: left out, a card of 2048 MiB with 2000 free'

# Without these parts no other is useful: the script ends at once.
echo "$card24" >"$tree/cards"
run 1 'nvcc=none'
has '^configure: FAILED with status 1:  *chunkmem: CHUNKMEM_WITH_CUDA=ON, but no nvcc was found'
has '^gpu.sh: ends here, .* Look at .*/configure.txt: '
lacks '^build_check'
ends_with configure
run 1 'check=wrong'
has '^gpt_cuda_check: FAILED with status 1: softmax .* WRONG'
has '^gpu.sh: ends here, .* Look at .*/gpt_cuda_check.txt: '
lacks '^tests'
ends_with gpt_cuda_check
run 1 'check=skips'
has 'the driver (580.65.06; CUDA 13 needs 580, CUDA 12 needs 525)'
lacks '^driver: '
ends_with gpt_cuda_check
echo 'NVIDIA A100-SXM4-40GB, 550.54.14, 40960, 40300' >"$tree/cards"
run 1 'check=skips'
has '^driver: 550.54.14 is older than the 580 that CUDA 13.0.88 needs.* nvidia-smi names: rm -r .*/build/gpu, .* CUDACXX='
run 0 'nvcc=12' --host 120000
lacks '^driver: '
echo 'NVIDIA A100-SXM4-40GB, 470.82.01, 40960, 40300' >"$tree/cards"
run 1 'check=skips nvcc=12'
has '^driver: 470.82.01 is older than the 525 that CUDA 12.4.131 needs'
echo "$card24" >"$tree/cards"
mv "$tree/made/gpt_cuda_check" "$out/"
run 1 ''
has '^gpu.sh: ends here, .* Look at .*/build_check.txt: nvcc, cuBLASLt and CLI11'
ends_with build_check
mv "$out/gpt_cuda_check" "$tree/made/"
: >"$tree/cards"
run 4 ''
has '^gpu.sh: no GPU was found: '
run 4 'nvidia-smi=fail'
run 4 '' --dry
run 4 '' --dry --full

# Several cards.
printf '%s\n' 'NVIDIA A100-SXM4-80GB, 580.65.06, 81920, 81000' 'NVIDIA A100-SXM4-40GB, 580.65.06, 40960, 40300' >"$tree/cards"
run 0 '' --ranks 2 --host 450000
has '^gpu.sh: --ranks, .* 40960 MiB, the smallest of 2; '
for part in ranks_stage_0 ranks_stage_3 ranks_capped ranks_whole ranks_largest; do has "^$part: done"; done
run 1 'ranks=killed' --ranks 2 --host 450000
has '^ranks_stage_3: FAILED, killed by the system'
run 4 '' --ranks 3
has '^gpu.sh: --ranks 3 needs 3 GPUs and nvidia-smi lists 2'
for wrong in '--ranks 1' '--ranks two' '--first --sizes' '--memory big'; do
  # shellcheck disable=SC2086  # options
  run 1 '' $wrong
  has '^usage: '
done
echo "gpu_first: sizes, limits and ends are as they should be"
