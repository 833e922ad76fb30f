// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "random.hpp"
#include "text.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace gpt {

/// The text that a row of a step learns from: `context` bytes, and the one after them.
/// @param step   from 0
/// @param row    counted over all micro-batches of the step
[[nodiscard]] inline const unsigned char* training_tokens(const training_text& text, std::size_t context,
                                                          std::uint64_t seed, std::size_t step, std::size_t row)
{
  const std::span<const unsigned char> all = text.training();
  const counter_random random{seed, stream::batches + step};
  return all.data() + random.below(all.size() - context, row);
}

/// One of `count` windows that lie evenly in the text that is never trained on. @pre count > 1
[[nodiscard]] inline const unsigned char* held_out_tokens(const training_text& text, std::size_t context,
                                                          std::size_t which, std::size_t count)
{
  const std::span<const unsigned char> all = text.held_out();
  const std::size_t last = all.size() - context - 1;
  return all.data() + last * which / (count - 1);
}

}  // namespace gpt
