#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# older_standard.sh <top of the tree> <compiler>: a file that is compiled as C++17 gets one sentence, and nothing else.
#
# Every header of the library begins with one of its own, and the chain of those ends at core/version.hpp, which has the
# check. So only a few are compiled, and for all it is checked that no other chain ends (fwd.hpp has only declarations,
# which C++17 knows).
top=$1
compiler=$2
sentence='chunkmem needs C++20: compile with -std=c++20 or newer'
cd "$top/include" || exit 1

ends=$(grep -L '#include <chunkmem/' -r chunkmem | sort | tr '\n' ' ')
if [ "$ends" != "chunkmem/core/version.hpp chunkmem/fwd.hpp " ]; then
  echo "headers that include nothing of chunkmem, core/version.hpp at least: $ends"
  exit 1
fi
for header in chunkmem.hpp backend/cuda_device.hpp optimizer/update_kernel.hpp manager/pin.hpp; do
  output=$(echo "#include <chunkmem/$header>" | $compiler -std=c++17 -fsyntax-only -I. -x c++ - 2>&1)
  if [ "$(printf '%s\n' "$output" | grep -c 'error: ')" -ne 2 ] ||
    ! printf '%s\n' "$output" | grep 'error: ' | sed -n 1p | grep -q -F "$sentence" ||
    ! printf '%s\n' "$output" | grep -q 'fatal error: .*needs_c++20'; then
    printf '%s as C++17 says:\n%s\n' "$header" "$output"
    exit 1
  fi
done
echo "older_standard: one sentence"
