// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __cplusplus < 202002L
#error "chunkmem needs C++20: compile with -std=c++20 or newer"
// there is no such file: a missing one ends the compilation, so that nothing hides the sentence above
#include <needs_c++20>
#endif

#if defined(__FAST_MATH__)
#error "chunkmem promises the same bits everywhere: compile without -ffast-math"
#endif

/// major * 10000 + minor * 100 + patch. CMake reads the version from this line.
#define CHUNKMEM_VERSION 100
