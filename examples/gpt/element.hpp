// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace gpt
