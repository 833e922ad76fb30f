#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh <compiler> <top of the tree> <folder for files> <seconds> <name> <include folder...>: builds tests/fuzz/<name>_fuzz.cpp with
# libFuzzer and the sanitizers, and lets it look for an input that ends it, from the seeds in tests/fuzz/seeds/<name> on. Inputs that were
# found are kept for the next run.
set -u
compiler=$1
top=$2
work=$3/$5
seconds=$4
name=$5
shift 5
flags="-std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I$top/include"
for folder in "$@"; do
  # The compilers' own folder, once more and earlier, would hide the standard library.
  [ "$folder" = /usr/include ] || flags="$flags -isystem $folder"
done
mkdir -p "$work/inputs"
cd "$work" || exit 1
printf '#include <cstddef>\n#include <cstdint>\nextern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }\n' > try.cpp
# shellcheck disable=SC2086  # flags is a list of words
if ! $compiler $flags try.cpp -o try 2> try.txt; then
  echo "SKIPPED: $compiler does not build with -fsanitize=fuzzer (Debian: apt-get install libclang-rt-16-dev)"
  exit 4
fi
# shellcheck disable=SC2086
$compiler $flags "$top/tests/fuzz/${name}_fuzz.cpp" -o "$name" || exit 1
./"$name" -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=1024 -dict="$top/tests/fuzz/$name.dict" \
  -print_final_stats=1 inputs "$top/tests/fuzz/seeds/$name"
