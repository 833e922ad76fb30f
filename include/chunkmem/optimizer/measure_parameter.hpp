// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

template <real_element Element, executor Executor>
[[nodiscard]] gradient_measure measure_elements(std::span<const Element> all, Executor& workers)
{
  constexpr std::size_t blocks_at_once = 1024;  // their sums wait on the stack to be added in order
  constexpr std::size_t blocks_of_a_part = 8;
  const float_environment fixed;
  if (workers.threads() == 1 || all.size() <= blocks_of_a_part * measure_block) return measure(all);
  gradient_measure total;
  gradient_measure sums[blocks_at_once];
  for (std::size_t begin = 0; begin < all.size(); begin += blocks_at_once * measure_block) {
    const auto segment = all.subspan(begin, std::min(all.size() - begin, blocks_at_once * measure_block));
    const std::size_t blocks = (segment.size() + measure_block - 1) / measure_block;
    workers.run(static_cast<unsigned>((blocks + blocks_of_a_part - 1) / blocks_of_a_part), [&](unsigned part) {
      const float_environment same;
      for (std::size_t index = part * blocks_of_a_part; index < std::min(blocks, (part + 1) * blocks_of_a_part);
           ++index)
        sums[index] = measure_one_block(
            segment.subspan(index * measure_block, std::min(measure_block, segment.size() - index * measure_block)));
    });
    for (std::size_t index = 0; index < blocks; ++index) total.add(sums[index]);
  }
  return total;
}

}  // namespace detail

/// Norms of one gradient, block by block on all workers; block sums are added in order, so bits do not depend on them.
///
/// @param type   float32, bfloat16 or float16
/// Cost: one pass over the gradient; 40 KiB of stack, no allocation.
template <executor Executor>
[[nodiscard]] gradient_measure measure_parameter(const std::byte* gradient, dtype type, std::uint64_t elements,
                                                 Executor& workers)
{
  const auto of = [&]<class Element>(Element) {
    return detail::measure_elements(
        std::span{reinterpret_cast<const Element*>(gradient), static_cast<std::size_t>(elements)}, workers);
  };
  if (type == dtype::bfloat16) return of(bf16{});
  if (type == dtype::float16) return of(fp16{});
  return of(float{});
}

}  // namespace optimizer

}  // namespace chunkmem::inline v0
