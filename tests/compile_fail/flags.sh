#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# flags.sh <top of the tree> <compiler> [<compiler>...]: each flag that changes bits gets one sentence, in every header; a
# compiler that is too old gets one too. Flags that keep the bits are taken: equality.builds compares what they give.
#
# Every header of the library includes core/version.hpp (see older_standard.sh), which has the checks.
top=$1
shift
cd "$top/include" || exit 1

# said_once <sentence> <command...>: the only error is this sentence
said_once() {
  sentence=$1
  shift
  output=$(echo '#include <chunkmem/core/version.hpp>' | "$@" -std=c++20 -fsyntax-only -I. -x c++ - 2>&1)
  if [ "$(printf '%s\n' "$output" | grep 'error: ' | grep -v -c 'fatal error: .*needs_')" -ne 1 ] ||
    ! printf '%s\n' "$output" | grep -q -F -e "$sentence"; then
    printf '%s: the one error is not "%s":\n%s\n' "$*" "$sentence" "$output"
    exit 1
  fi
}
taken() {
  if ! output=$(echo '#include <chunkmem/core/version.hpp>' |
    "$@" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I. -x c++ - 2>&1); then
    printf '%s: refused\n%s\n' "$*" "$output"
    exit 1
  fi
}

for compiler in "$@"; do
  said_once 'compile without -ffast-math and -Ofast' "$compiler" -ffast-math
  said_once 'compile without -ffast-math and -Ofast' "$compiler" -Ofast
  said_once 'compile without -ffinite-math-only' "$compiler" -ffinite-math-only
  for flags in -funsafe-math-optimizations -freciprocal-math -fno-signed-zeros \
    '-fassociative-math -fno-signed-zeros -fno-trapping-math'; do
    # shellcheck disable=SC2086
    said_once "compile without -f" "$compiler" $flags
  done
  said_once 'compile without -fno-exceptions' "$compiler" -fno-exceptions
  said_once 'compile without -m32' "$compiler" -U__SIZEOF_POINTER__ -D__SIZEOF_POINTER__=4 -w
  for flags in '' -frounding-math -fno-trapping-math -fno-math-errno -ffp-contract=fast -ffp-contract=off; do
    # shellcheck disable=SC2086
    taken "$compiler" $flags
  done
  if "$compiler" --version | grep -q clang; then
    said_once 'compile without -funsafe-math-optimizations' "$compiler" -fapprox-func
    said_once 'compile without -mfpmath=387' "$compiler" -ffp-eval-method=double
    said_once 'chunkmem needs a newer compiler' "$compiler" -w -U__clang_major__ -D__clang_major__=15
  else
    said_once 'chunkmem needs a newer compiler' "$compiler" -w -U__GNUC__ -D__GNUC__=11
    said_once 'compile without -fsingle-precision-constant' "$compiler" -fsingle-precision-constant
    [ "$(uname -m)" = x86_64 ] && said_once 'compile without -mfpmath=387' "$compiler" -mfpmath=387
    [ "$(uname -m)" = x86_64 ] && said_once 'compile without -mfpmath=387' "$compiler" -mfpmath=both
  fi
done
echo "flags: $# compilers"
