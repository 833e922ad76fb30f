#pragma once

#include "kernels.hpp"

#include <chunkmem/tensor/dtype.hpp>

namespace gpt {

/// Calls `work` with a value of the element type that `type` stands for: float, bf16 or fp16.
template <class Work>
decltype(auto) with_element(chunkmem::dtype type, Work work)
{
  switch (type) {
    case chunkmem::dtype::bfloat16: return work(chunkmem::bf16{});
    case chunkmem::dtype::float16: return work(chunkmem::fp16{});
    default: return work(float{});
  }
}

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
