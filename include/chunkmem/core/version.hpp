// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __cplusplus < 202002L
#error "chunkmem needs C++20: compile with -std=c++20 or newer"
// there is no such file: a missing one ends the compilation, so that nothing hides the sentence above
#include <needs_c++20>
#endif

#ifndef __cpp_exceptions
#error "chunkmem reports errors by exceptions: compile without -fno-exceptions"
// there is no such file, as above
#include <needs_exceptions>
#endif

#if (defined(__apple_build_version__) && __clang_major__ < 15) ||                        \
    (!defined(__apple_build_version__) && defined(__clang__) && __clang_major__ < 16) || \
    (!defined(__clang__) && defined(__GNUC__) && __GNUC__ < 12)
#error "chunkmem needs a newer compiler: g++ 12, clang 16 (Xcode 15), or newer"
// there is no such file, as above
#include <needs_c++20>
#endif

// Flags that change what arithmetic gives: docs/numerics.md lists them, and those that keep the bits.
#if __SIZEOF_POINTER__ != 8
#error "chunkmem is for 64-bit systems: compile without -m32"
#elif defined(__FAST_MATH__)
#error "chunkmem promises the same bits everywhere: compile without -ffast-math and -Ofast (-O3 is -Ofast without it)"
#elif defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0
#error "chunkmem promises the same bits everywhere: compile without -ffinite-math-only"
#elif defined(__ASSOCIATIVE_MATH__)
#error "chunkmem promises the same bits everywhere: compile without -funsafe-math-optimizations and -fassociative-math"
#elif defined(__RECIPROCAL_MATH__)
#error "chunkmem promises the same bits everywhere: compile without -freciprocal-math"
#elif defined(__NO_SIGNED_ZEROS__)
#error "chunkmem promises the same bits everywhere: compile without -fno-signed-zeros"
#elif defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "chunkmem promises the same bits everywhere: compile without -mfpmath=387 (FLT_EVAL_METHOD is not 0)"
#else
static_assert(sizeof(1.0) == 8,
              "chunkmem promises the same bits everywhere: compile without -fsingle-precision-constant");
#if defined(__clang__) && !defined(__CUDA_ARCH__)
namespace chunkmem::inline v0 {
namespace detail {
/// clang has no macro for parts of -ffast-math, and refuses this line where one is on.
inline void refuse_flags_that_change_bits()
{
#pragma STDC FENV_ACCESS ON  // chunkmem: compile without -funsafe-math-optimizations and each of its parts
}
}  // namespace detail
}  // namespace chunkmem::inline v0
#endif
#endif

/// major * 10000 + minor * 100 + patch. CMake reads the version from this line.
#define CHUNKMEM_VERSION 100
