// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "element.hpp"
#include "kernels.hpp"

#include <chunkmem/tensor/dtype.hpp>

namespace gpt {

namespace kernels {

/// wide = stored. Exact.
void widen(const chunkmem::bf16* stored, float* wide, index elements);
void widen(const chunkmem::fp16* stored, float* wide, index elements);

/// stored = beta * stored + fresh, with beta 0 or 1: added in single precision, then rounded to nearest, ties to even.
/// With beta 0 the old bytes are not read.
void add_rounded(const float* fresh, float beta, chunkmem::bf16* stored, index elements);
void add_rounded(const float* fresh, float beta, chunkmem::fp16* stored, index elements);

}  // namespace kernels

}  // namespace gpt
