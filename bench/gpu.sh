#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu.sh [--first | --full | --ranks N] [--dry] [--card NAME] [--memory MIB[,MIB...]] [--host MIB] OUTDIR: what only a GPU can show.
#
#   --first     the default, nine minutes at most on one GPU, without PyTorch: gpt_cuda_check, the tests of label gpu, memcheck and racecheck
#               of small sizes, copies, Adam, a GPT with and without chunks, and a GPT of four times the card's memory
#   --full      95 minutes at most: the same tests and benches; examples/gpt_cuda at 0.5, 1 and 4 T* with a quarter of its model data on the
#               device and with all of it there; examples/libtorch_gpt beside PyTorch's FSDP2; the largest GPT that the host holds. T* is the
#               number of tokens per step at which copies and the host's update hide behind compute, from rates that are measured here, which
#               takes PyTorch.
#   --ranks N   a quarter of an hour at most on N GPUs of this machine: stages 0 to 3 over NCCL, small and compared; a GPT with and without
#               chunks; a GPT of four times all cards' memory
#   --dry       prints the commands, their limits, the sum of these, and a row of a table; runs nothing
#   --card, --memory, --host   instead of what nvidia-smi and the system say: a name, the memory of each card, the free memory of the host
#
# Every part has a limit of its own, and the limits of a mode add up to what the mode may take. One that hangs is ended, one that fails is
# named, and the rest goes on; only without configure, build_check, gpt_cuda_check and any program at all the script ends at once. A part
# whose tool is not here, or whose card or host is too small, is left out and named, which is no failure. Nothing is downloaded.
#
# OUTDIR gets `log`, `commands.txt`, the output of each part and `figures/*.json`, all of them after each part. Figures and log are for
# bench/results/.
# Environment: CHUNKMEM_CATCH2_INCLUDE (folder of catch2/catch.hpp), CMAKE_PREFIX_PATH (where CLI11 and others lie), PYTHON (for --full with
# PyTorch), CHUNKMEM_COMPUTE_SANITIZER (the program), CUDA_VISIBLE_DEVICES (numbers or UUIDs as nvidia-smi has them), CHUNKMEM_GPU_LIMITS
# (other limits in seconds, for parts and for all: "total=900 build=480").
# Status: 0 every part that can run here is done and every bound that was measured is met; 1 not so; 4 there is no GPU, or there are too few.
#
# Sizes. Everything follows from the memory of the smallest card and from what the host has free, both in MiB:
#   device room   nine tenths of the card less 1 GiB, which CUDA, its libraries and gpt_cuda's headroom take
#   host room     85 % of what is free; model data may be four fifths of it less 1 GiB, since chunks and inputs of layers need some beside
#   model data    16 bytes a parameter: weight 2, gradient 2, master and two moments 4 each; 14 where gradients lie in their weights' bytes
#   pinned        nine eighths of model data and inputs, since chunks are not filled to the brim, and 1 GiB
# A model of D bytes and about L layers has the width nearest to sqrt(parameters / 12 L) among multiples of 128, and as many layers as fit D.
set -u
unset CDPATH
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
usage() {
  echo "usage: sh bench/gpu.sh [--first | --full | --ranks N] [--dry] [--card NAME] [--memory MIB[,MIB...]] [--host MIB] OUTDIR" >&2
  exit 1
}
is_number() { case $1 in '' | *[!0-9]*) return 1 ;; esac; }
mode=first dry=no ranks=1 card='' memories='' host_free=''
while [ $# -gt 1 ]; do
  case $1 in
    --first | --full) mode=${1#--} ;;
    --ranks) mode=ranks ranks=$2 && shift ;;
    --dry) dry=yes ;;
    --card) card=$2 && shift ;;
    --memory) memories=$(echo "$2" | tr ',' ' ') && shift ;;
    --host) host_free=$2 && shift ;;
    *) usage ;;
  esac
  shift
done
case ${1:--} in -*) usage ;; esac
for number in "$ranks" $memories ${host_free:-0}; do is_number "$number" || usage; done
if [ $mode = ranks ] && [ "$ranks" -lt 2 ]; then usage; fi
case $mode in
  first) limit=540 ;;
  full) limit=5600 ;;
  ranks) limit=900 ;;
esac
limit_of() { # name, seconds
  for other in ${CHUNKMEM_GPU_LIMITS:-}; do
    if [ "${other%=*}" = "$1" ] && is_number "${other#*=}"; then set -- "$1" "${other#*=}"; fi
  done
  echo "$2"
}
limit=$(limit_of total $limit)
kept=15  # seconds at the end: 10 for figures, 5 for ends of what hangs
PYTHON=${PYTHON:-python3}

# Cards as the programs see them: a line of "name, driver, MiB, free MiB" for each. Part of a card (MIG) has the memory that its name says.
export CUDA_DEVICE_ORDER=PCI_BUS_ID
cards() {
  if [ -n "$memories" ]; then
    for memory in $memories; do echo "${card:-a card}, not asked, $memory, $memory"; done
    return
  fi
  slices=$(timeout 20 nvidia-smi -L 2>/dev/null | sed -n 's/^ *MIG [^ ]*[.]\([0-9][0-9]*\)gb .*/\1/p')
  if [ -n "$slices" ]; then
    for slice in $slices; do echo "a slice of $slice GB, not asked, $((slice * 960)), $((slice * 960))"; done
    return
  fi
  timeout 20 nvidia-smi ${CUDA_VISIBLE_DEVICES:+-i "$CUDA_VISIBLE_DEVICES"} --query-gpu=name,driver_version,memory.total,memory.free \
    --format=csv,noheader,nounits 2>/dev/null
}
found=$(cards | awk -F ', ' 'NF == 4 && $3 + 0 > 0' | head -n "$ranks")
count=$(echo "$found" | grep -c ', ')
if [ "$count" -lt "$ranks" ]; then
  if [ "$count" -eq 0 ]; then
    echo "gpu.sh: no GPU was found: nvidia-smi lists none with its memory (is the driver loaded? --memory MIB says what a card has that does not)"
  else
    echo "gpu.sh: --ranks $ranks needs $ranks GPUs and nvidia-smi lists $count (give a smaller --ranks, or look at CUDA_VISIBLE_DEVICES)"
  fi
  exit 4
fi
smallest=$(echo "$found" | sort -t , -k 3n | head -n 1)
card=${smallest%%,*}
driver=$(echo "$smallest" | awk -F ', ' '{ print $2 }')
memory=$(echo "$smallest" | awk -F ', ' '{ print int($3) }')
free=$(echo "$found" | awk -F ', ' 'NR == 1 || $4 < least { least = int($4) } END { print least }')

mkdir -p "$1" || exit 1
out=$(cd "$1" && pwd) || exit 1
mkdir -p "$out/figures"
log=$out/log
: >"$log"
: >"$out/commands.txt"
# Files of an earlier run would become figures of this one.
[ $dry = yes ] || (cd "$out" && rm -f gpt_capped_* gpt_whole_* largest_* ranks_* rates.json libtorch.json fsdp2_* figures/*.json)
export CHUNKMEM_FIGURES="$out/figures"
build=$here/build/gpu
begin=$(date +%s)
failed='' sum=0 status=0 takes_rest=no

say() { echo "$*" | tee -a "$log"; }
left_out() { say "$1: left out, $2"; }

# The line of a part's output that most likely explains its failure.
reason() {
  grep -m 1 -e '^ *chunkmem: ' "$1" || grep -m 1 -e '[Ee]rror[: ]' -e WRONG -e MISSED "$1" || tail -n 1 "$1"
}
# part NAME SECONDS COMMAND...: runs it with a limit, its output in OUTDIR/NAME.txt. @return its status
part() {
  name=$1
  seconds=$2
  shift 2
  seconds=$(limit_of "$name" "$seconds")
  sum=$((sum + seconds))
  if [ $dry = yes ]; then
    say "$name ($seconds s): $*"
    return 0
  fi
  left=$((limit - kept - $(date +%s) + begin))
  if [ "$seconds" -gt "$left" ] || [ $takes_rest = yes ]; then seconds=$left; fi
  takes_rest=no
  echo "$name ($seconds s): $*" >>"$out/commands.txt"
  if [ "$left" -le 5 ]; then
    say "$name: not begun, the time is over"
    failed="$failed $name"
    status=over
    return 1
  fi
  part_begin=$(date +%s)
  # The outer timeout is for a process that waits in the driver, which even SIGKILL does not end.
  timeout -s KILL $((seconds + 6)) timeout -k 3 "$seconds" "$@" >"$out/$name.txt" 2>&1 </dev/null
  status=$?
  took=$(($(date +%s) - part_begin))
  if [ $status -eq 137 ] && [ $took -lt "$seconds" ]; then status=killed; fi  # by the system, where memory is short
  case $status in
    0) verdict="done" ;;
    4) verdict="skipped: $(grep -m 1 SKIPPED "$out/$name.txt")" ;;
    124 | 137) verdict="HUNG, ended after its $seconds s: $(tail -n 1 "$out/$name.txt")" ;;
    killed) verdict="FAILED, killed by the system, which is what happens where memory is short" ;;
    *) verdict="FAILED with status $status: $(reason "$out/$name.txt")" ;;
  esac
  say "$name: $verdict ($took s)"
  case $status in 0 | 4) return "$status" ;; esac
  failed="$failed $name"
  return 1
}
end() {
  say "gpu.sh: $(($(date +%s) - begin)) s of $limit${failed:+; failed:$failed}"
  [ -z "$failed" ]
  exit $?
}
# stop HINT: ends the script, where the other parts are useless without the last one
stop() {
  case "$failed " in *" $name "*) ;; *) failed="$failed $name" ;; esac
  say "gpu.sh: ends here, since no other part is worth anything without $name. Look at $out/$name.txt: $1"
  end
}
has_program() { [ $dry = yes ] || [ -x "$build/bin/$1" ] || { say "$1: was not built"; failed="$failed $1"; return 1; }; }
# Memory that the host may give [MiB]: the free memory of the machine, and no more than this container may still take.
free_on_host() {
  awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo >"$out/host_memory"
  for names in memory.max,memory.current memory/memory.limit_in_bytes,memory/memory.usage_in_bytes; do
    most=/sys/fs/cgroup/${names%,*} used=/sys/fs/cgroup/${names#*,}
    if ! [ -r "$most" ] || ! [ -r "$used" ]; then continue; fi
    awk 'NR == 1 { most = $1 } NR == 2 && most != "max" { print int((most - $1) / 1048576) }' "$most" "$used" >>"$out/host_memory"
  done
  awk 'NR == 1 || $1 < least { least = $1 } END { print int(least) }' "$out/host_memory"
}
smaller() { [ "$1" -le "$2" ] && echo "$1" || echo "$2"; }

# shape MIB BYTES LAYERS BATCH: the GPT whose model data are at most MIB, at BYTES for each parameter, with about LAYERS
# layers. Over ranks the data are those of all. Sets model, layers, data (its own, of a rank), pinned, working: MiB of a
# rank. @return it has a layer
shape() {
  batch=$4
  # shellcheck disable=SC2046  # a list of words
  set -- $(awk -v most="$1" -v bytes="$2" -v deep="$3" -v rows=$((batch * 1024)) -v ranks="$ranks" 'BEGIN {
    mib = 1048576
    parameters = most * mib / bytes
    width = 128 * int(sqrt(parameters / 12 / deep) / 128 + 0.5)
    if (width < 256) width = 256
    ends = (256 + 1024 + 2) * width  # tokens, positions, the last norm
    layers = int((parameters - ends) / (12 * width * width + 13 * width))
    if (layers > 512) layers = 512
    data = (layers * (12 * width * width + 13 * width) + ends) * bytes / mib / ranks
    row = rows * width * 2 / mib  # bf16, the input of a layer
    working = row * (layers + 32) + (ranks > 1 ? 8 * 16 * width * width / mib : 0)  # the layer that is computed; over ranks, gathered chunks
    printf "%d %d %d %.0f %.0f %.0f\n", layers, width, width / 128, data, (data + row * (layers + 1)) * 9 / 8 + 1024, working
  }')
  layers=$1 data=$4 pinned=$5 working=$6
  sizes="--layers $1 --width $2 --heads $3 --context 1024 --batch $batch"
  model="$sizes --sample 0 --threads $threads"
  [ "$layers" -ge 1 ]
}
gib() { awk -v mib="$1" 'BEGIN { printf "%.1f GiB", mib / 1024 }'; }

host_free=${host_free:-$(free_on_host)}
host_room=$((host_free * 85 / 100))
fits=$(((host_room - 1024) * 4 / 5))  # model data, of all ranks
device_room=$(smaller $((memory * 9 / 10 - 1024)) $((free - 1024)))
jobs=$(nproc)
threads=$(smaller $(((jobs + ranks - 1) / ranks)) 256)
say "gpu.sh: --$mode, $(date -u '+%Y-%m-%d %H:%M UTC'), $card, driver $driver, $memory MiB$([ "$ranks" -eq 1 ] || echo ", the smallest of $ranks");" \
  "host $host_free MiB free, $jobs processors"
[ "$free" -ge $((memory * 9 / 10)) ] || say "card: only $free of its $memory MiB are free; somebody else computes on it, so rates are not its own"
trains=yes
if [ "$device_room" -lt 2048 ]; then
  trains=no
  left_out trainings "a card of $memory MiB with $free free leaves them less than 2 GiB"
elif [ "$fits" -lt $((512 * ranks)) ]; then
  trains=no
  left_out trainings "a host with $host_free MiB free is too small for model data of 512 MiB for each GPU"
fi

catch=OFF
if [ $dry = yes ] || [ -n "${CHUNKMEM_CATCH2_INCLUDE:-}" ]; then catch=ON; fi
for folder in /usr /usr/local $(echo "${CMAKE_PREFIX_PATH:-}" | tr ':;' '  '); do
  for header in catch.hpp catch_test_macros.hpp; do [ ! -e "$folder/include/catch2/$header" ] || catch=ON; done
done
command -v python3 >/dev/null || catch=OFF  # the tests need it too
has_python=yes
[ $dry = yes ] || command -v "$PYTHON" >/dev/null || has_python=no

# ---- parts that modes share

needed="the first error says what is missing of nvcc 12 or 13, CMake 3.25 and Ninja"
of_nvcc() { # nothing: where it is; _VERSION
  sed -n "s/^set(CMAKE_CUDA_COMPILER$1 \"\(.*\)\")/\1/p" "$build"/CMakeFiles/*/CMakeCUDACompiler.cmake 2>/dev/null | tail -n 1
}
# Whether the driver can run programs of this nvcc, before minutes are spent on it.
compare_driver() {
  release=$(of_nvcc _VERSION)
  case $release in
    12.*) least=525 ;;
    13.*) least=580 ;;
    *) return 0 ;;
  esac
  if is_number "${driver%%.*}" && [ "${driver%%.*}" -lt $least ]; then
    say "driver: $driver is older than the $least that CUDA $release needs, and only the package cuda-compat makes up for that. With a" \
      "toolkit of the CUDA that nvidia-smi names: rm -r $build, then the same command after CUDACXX=its nvcc"
  fi
}
configure() { # name, seconds, what it is told besides
  name=$1
  seconds=$2
  shift 2
  part "$name" "$seconds" cmake --preset gpu -S "$here" -DCHUNKMEM_BUILD_EXAMPLES=ON "-DCHUNKMEM_BUILD_TESTS=$catch" \
    ${CHUNKMEM_CATCH2_INCLUDE:+"-DCHUNKMEM_CATCH2_INCLUDE=$CHUNKMEM_CATCH2_INCLUDE"} "$@" || return
  [ $dry = yes ] || compare_driver
}
# The kernels come first: if they are wrong, every other result is meaningless.
check() { # seconds of the build, of the check
  part build_check "$1" cmake --build "$build" --parallel "$jobs" --target gpt_cuda_check
  if [ $dry = no ] && [ ! -x "$build/bin/gpt_cuda_check" ]; then
    stop "nvcc, cuBLASLt and CLI11 are needed, and configure.txt says which was found"
  fi
  part gpt_cuda_check "$2" "$build/bin/gpt_cuda_check" && return
  stop "a line with WRONG names a kernel; an error of CUDA, the driver ($driver; CUDA 13 needs 580, CUDA 12 needs 525) or the architecture in configure.txt"
}
# One target for each program, so that a program that does not compile takes none of the others with it.
build_all() { # seconds
  part build "$1" cmake --build "$build" --parallel "$jobs" --target cuda_programs -- -k 0
  [ $dry = no ] || return 0
  for program in test_gpu gpt_cuda copies_bench adam_bench; do [ ! -x "$build/bin/$program" ] || return 0; done
  stop "no program was built"
}
tests() { # seconds
  if [ $catch = OFF ]; then
    left_out tests "Catch2 (CHUNKMEM_CATCH2_INCLUDE) or python3 was not found"
    return
  fi
  part tests "$1" ctest --test-dir "$build" -L '^gpu$' -LE '^(slow|figures)$' -E '^cuda[.]' --output-on-failure && return
  # Lists the failed tests, where ctest finished.
  sed -n '/^The following tests FAILED/,/^$/p' "$out/tests.txt" | sed 's/^/  /' | tee -a "$log"
}
# Every kernel of the GPT, at the sizes of its check.
sanitizers() { # seconds of memcheck, of racecheck
  sanitizer=${CHUNKMEM_COMPUTE_SANITIZER:-}
  if [ -z "$sanitizer" ] && [ $dry = no ]; then
    nvcc=$(of_nvcc '')
    for each in "${nvcc%/*}/compute-sanitizer" "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer; do
      [ -n "$sanitizer" ] || [ ! -x "$each" ] || sanitizer=$each
    done
  fi
  for tool in memcheck racecheck; do
    [ $tool = memcheck ] || shift
    if [ $dry = no ] && [ ! -x "$sanitizer" ]; then
      left_out $tool "no compute-sanitizer was found (CHUNKMEM_COMPUTE_SANITIZER)"
    else
      part $tool "$1" "${sanitizer:-compute-sanitizer}" --tool $tool --error-exitcode 9 "$build/bin/gpt_cuda_check"
    fi
  done
}
bench() { # name, seconds, MiB of the card's room, of the host's
  if [ "$device_room" -lt "$3" ] || [ "$host_room" -lt "$4" ]; then
    left_out "$1" "it takes $3 MiB of the card and $4 MiB of the host"
  else
    has_program "$1" && part "$1" "$2" "$build/bin/$1"
  fi
}
benches() { # seconds of copies, of Adam
  bench copies_bench "$1" 1536 5120
  bench adam_bench "$2" 12800 1024
}
figures() {
  # shellcheck disable=SC2046  # no word, or one
  timeout -k 2 8 "$PYTHON" -B "$here/bench/gpu_figures.py" $([ $mode != first ] || echo --first) "$out" >"$out/figures.txt" 2>&1
}
# train NAME SECONDS OPTION...: gpt_cuda, its last step and its memory, and figures of the results so far
train() {
  report=$1
  pins=$3
  [ "$ranks" -gt 1 ] || set -- "$@" --report "$out/$report.json"
  name=$1
  seconds=$2
  shift 3
  # shellcheck disable=SC2086  # lists of words
  part "$name" "$seconds" "$build/bin/gpt_cuda" $model --host-memory "${pins}MiB" "$@"
  trained=$?
  [ $dry = no ] && [ -e "$out/$report.txt" ] || return $trained
  grep '^step ' "$out/$report.txt" | tail -n 1 | sed 's/^/  /' | tee -a "$log"
  made=$(sed -n 's/^memory made in \([0-9.]*\) s$/\1/p' "$out/$report.txt")
  if [ -n "$made" ]; then
    pin_rate=$(awk -v mib="$pins" -v seconds="$made" 'BEGIN { print int(mib / (seconds + 0.01)) }')
    say "  $pins MiB of the host were pinned in $made s"
  fi
  [ $has_python = no ] || [ "$ranks" -gt 1 ] || figures
  return $trained
}
# With a quarter of the model data on the device and updates on the CPU, and with all of it and updates on the device,
# which is the fastest form; both have the same bits. Activations come out of the same budget, so room for them is added
# to the quarter.
train_pair() { # seconds of each
  train "gpt_capped_$batch" "$1" "$pinned" --steps 8 --transfer planned --update cpu --device-memory "$((data / 4 + working))MiB"
  train "gpt_whole_$batch" "$1" "$pinned" --steps 8 --transfer planned --update gpu --device-memory "${device_room}MiB"
}
# The device of a GPT that does not fit the card: all room, or a quarter of the model data where the host cannot hold
# four times the card.
device_of_data() { smaller "$device_room" $((data / 4 + working)); }
say_share() { # what it is, MiB of four times the memory, why there are not as many
  held="$1: $(gib $((data * ranks))) of model data on $ranks x $(gib "$(device_of_data)") of device memory"
  if [ $((data * ranks)) -ge "$2" ]; then
    say "$held, four times the memory of $ranks x $(gib "$memory")"
  else
    say "$held, where four times the memory of $ranks x $(gib "$memory") is $(gib "$2"): $3"
  fi
}
cells=
pin_rate=

# ---- modes

first() {
  configure configure 60 -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON || stop "$needed"
  check 50 15
  build_all 125
  tests 60
  sanitizers 25 20
  benches 20 10
  if [ $trains = no ] || ! has_program gpt_cuda; then return; fi
  pair_data=$(smaller $((memory / 4)) 12288)  # more would take longer and show the same
  shape "$(smaller "$pair_data" $fits)" 16 24 8 && train_pair 30
  cells="pair: $sizes, $data MiB"
  four_times 80
}
# four_times SECONDS: a GPT of four times the card's memory, or of the host's, or of the memory that can be pinned in
# two thirds of the time that is left, which is at least SECONDS.
four_times() {
  wanted=$((4 * memory))
  most=$(smaller $((wanted * 51 / 50)) $fits)  # a layer more, so that it is not less
  why="the host has $host_free MiB free, and $(gib $fits) of model data fit it"
  if [ $dry = no ]; then
    left=$((limit - kept - $(date +%s) + begin))
    timely=$((left * 2 / 3 * ${pin_rate:-3072} * 8 / 9))  # 3 GiB/s is assumed where nothing was measured
    if [ $timely -lt "$most" ]; then
      most=$timely
      why="more is not pinned in time at ${pin_rate:-3072} MiB/s, with $left s left"
    fi
  fi
  if ! shape "$most" 14 96 4; then
    left_out largest "$(gib "$most") of model data are less than a layer"
    return
  fi
  say_share largest $wanted "$why"
  cells="$cells | four times: $sizes, $data MiB, device $(device_of_data) MiB, pinned $pinned MiB"
  takes_rest=yes
  train "largest_$((data / 1024))" "$1" "$pinned" --steps 2 --update cpu --gradient in_place --clip 1 --device-memory "$(device_of_data)MiB"
}

full() {
  has_torch=no
  torch=
  if [ $dry = yes ]; then
    has_torch=yes
    torch='PYTORCH'
  elif torch=$("$PYTHON" -c 'import torch; assert torch.cuda.is_available(); print(torch.utils.cmake_prefix_path)' 2>/dev/null); then
    has_torch=yes
  else
    left_out libtorch "$PYTHON has no PyTorch with CUDA"
  fi
  has_libtorch=$has_torch
  # A PyTorch whose CMake files refuse this CUDA makes configuring fail: once more without it then, which is no failure.
  if ! configure configure 60 "-DCMAKE_PREFIX_PATH=$torch" -DCMAKE_DISABLE_FIND_PACKAGE_Torch=OFF || [ $dry = yes ]; then
    [ $dry = yes ] || rm -f "$build/CMakeCache.txt"  # what PyTorch's files left in it
    configure configure_without_torch 60 -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON || stop "$needed"
    if [ $dry = no ]; then
      failed=
      has_libtorch=no
      left_out libtorch "CMake was refused with this PyTorch, see configure.txt"
    fi
  fi
  check 240 60
  build_all 600
  part build_host 240 cmake --build "$build" --parallel "$jobs" --target adam_bandwidth_bench
  [ $has_libtorch = no ] || part build_libtorch 240 cmake --build "$build" --parallel "$jobs" --target libtorch_gpt || has_libtorch=no
  tests 600
  sanitizers 300 300
  benches 60 60
  bench steady_state_bench 60 4096 5120
  if [ $trains = no ] || ! has_program gpt_cuda; then return; fi
  at_t_star
  largest
}
# Rates of this machine, T*, and the sizes that follow.
at_t_star() {
  if [ $dry = yes ]; then
    part rates 60 "$PYTHON" "$here/bench/gpu_rates.py" --adam "$build/bin/adam_bandwidth_bench" --context 1024 --out "$out/rates.json"
    "$PYTHON" -B "$here/bench/gpu_rates.py" --nominal --context 1024 --out "$out/rates.json" >"$out/rates.txt" || failed="$failed rates"
  elif [ $has_torch = no ]; then
    left_out rates "without PyTorch T* is not known, so its trainings are left out too"
    return
  else
    part rates 60 "$PYTHON" "$here/bench/gpu_rates.py" --adam "$build/bin/adam_bandwidth_bench" --context 1024 --out "$out/rates.json"
  fi
  batches=$("$PYTHON" -c "import json; print(*json.load(open('$out/rates.json'))['batches'])" 2>/dev/null)
  if [ -z "$batches" ]; then
    left_out 'trainings at T*' "rates are not known"
    return
  fi
  # shellcheck disable=SC2086  # a list of words
  set -- $batches
  half=$1 one=$2 four=$3
  say "T*: $("$PYTHON" -c "import json; r = json.load(open('$out/rates.json')); print(r['t_star'], 'tokens', r['from'])")"
  most=$(smaller $((memory * 3 / 8)) $fits)
  shape "$most" 16 40 "$one" && train_pair 120
  cells="at T*: $sizes, $data MiB"
  # LibTorch with chunkmem, its activations beside the budget, and FSDP2 with both choices of pinned memory: the same model, tokens, recomputation.
  if [ $has_torch = yes ]; then
    same="$sizes --steps 8 --warm-up 3"
    # shellcheck disable=SC2086
    [ $has_libtorch = no ] || part libtorch 180 "$build/bin/libtorch_gpt" --cuda $same --recompute --late --threads "$threads" \
      --device $((data / 4))MiB --report "$out/libtorch.json"
    for pin in yes no; do
      # shellcheck disable=SC2086
      part fsdp2_pin_$pin 180 "$PYTHON" "$here/bench/fsdp2.py" $same --pin $pin --report "$out/fsdp2_pin_$pin.json"
    done
  fi
  shape "$most" 16 40 "$half" && train_pair 120
  shape "$most" 16 40 "$four" && train_pair 180
}
# All that the host holds, or three quarters, or half of it: a size that does not fit is refused before it trains, one
# that takes too long is made smaller, and any other end is a failure.
largest() {
  for quarters in 4 3 2; do
    shape $((fits * quarters / 4)) 14 96 4 || break
    cells="$cells | largest: $sizes, $data MiB"
    part_name=largest_$((data / 1024))
    train "$part_name" 420 "$pinned" --steps 2 --update cpu --gradient in_place --clip 1 --device-memory "$(device_of_data)MiB" &&
      [ $dry = no ] && return
    case $status in
      124 | 137)
        failed=${failed% "$part_name"}
        say "largest: the limit of time, not memory, decided against $data MiB of model data"
        ;;
      2)
        if grep -q -e 'is too small:' -e 'is more than the' -e 'not fit the' "$out/$part_name.txt"; then
          failed=${failed% "$part_name"}
        fi
        ;;
    esac
  done
  [ $dry = yes ] || failed="$failed largest"
}

ranks() {
  configure configure 60 -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON || stop "$needed"
  check 60 15
  part build 120 cmake --build "$build" --parallel "$jobs" --target gpt_cuda
  [ $dry = yes ] || [ -x "$build/bin/gpt_cuda" ] || stop "the first error says why gpt_cuda was not built"
  # Small, and in every stage the same bits as with all memory and another division.
  for stage in 0 1 2 3; do
    part "ranks_stage_$stage" 30 "$build/bin/gpt_cuda" --ranks "$ranks" --shard "$stage" --layers 4 --width 128 --heads 4 --context 64 --batch 4 \
      --steps 8 --verify
  done
  [ $trains = yes ] || return
  over="--ranks $ranks --shard 3 --update cpu"
  shape $(($(smaller $((memory / 4)) $((fits / ranks))) * ranks)) 16 24 8
  cells="pair: $sizes, $data MiB a card"
  # shellcheck disable=SC2086
  train ranks_capped 60 "$pinned" $over --steps 8 --device-memory "$((data / 4 + working))MiB"
  # shellcheck disable=SC2086
  train ranks_whole 60 "$pinned" $over --steps 8 --device-memory "${device_room}MiB"
  wanted=$((4 * memory * ranks))
  most=$(smaller $((wanted * 51 / 50)) $fits)
  shape "$most" 16 96 4
  say_share ranks_largest $wanted "the host has $host_free MiB free, and $(gib $fits) of model data fit it"
  cells="$cells | four times: $sizes, $data MiB a card, device $(device_of_data) MiB, pinned $pinned MiB"
  takes_rest=yes
  # shellcheck disable=SC2086
  train ranks_largest 390 "$pinned" $over --steps 2 --clip 1 --device-memory "$(device_of_data)MiB"
}

$mode

# ---- figures, and their bounds

if [ $dry = yes ]; then
  say "figures (10 s): $PYTHON $here/bench/gpu_figures.py $out"
  say "limits: $sum s of parts, 10 s for figures, 5 s for ends of what hangs: $((sum + kept)) of $limit"
  say "| $card | $ranks x $memory MiB | host $host_free MiB | ${cells:-no training} | $((sum + kept)) s |"
  [ $((sum + kept)) -le "$limit" ] || { say "gpu.sh: limits add up to more than $limit s"; exit 1; }
  [ -z "$failed" ]
  exit $?
fi
if [ $has_python = no ]; then
  left_out 'figures of trainings' "$PYTHON is not here"
elif [ $mode != ranks ]; then
  figures || failed="$failed figures"
  tee -a "$log" <"$out/figures.txt"
fi
if ls "$out/figures/"*.json >/dev/null 2>&1; then
  timeout -k 2 8 cmake "-DFIGURES=$out/figures" -P "$here/cmake/print_figures.cmake" >"$out/bounds.txt" 2>&1 || failed="$failed bounds"
  tee -a "$log" <"$out/bounds.txt"
fi
end
