// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "problem.hpp"
#include "random.hpp"
#include "text.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace gpt {

/// The text of a row of a step: `context` bytes, and the byte after them.
/// @param step   from 0
/// @param row    counted over all micro-batches of the step
[[nodiscard]] inline const unsigned char* training_tokens(const training_text& text, std::size_t context,
                                                          std::uint64_t seed, std::size_t step, std::size_t row)
{
  const std::span<const unsigned char> all = text.training();
  const counter_random random{seed, stream::batches + step};
  return all.data() + random.below(all.size() - context, row);
}

/// How a text becomes windows.
enum class window_choice : std::uint8_t {
  random,  ///< they begin anywhere
  fixed,   ///< they follow each other in the text; each is used once in an epoch, in another order each time
};

/// The windows of all steps. A fixed window has a lasting number, by which a trainer recognizes it.
///
///     const training_windows windows{text, context, seed, window_choice::fixed, rows_of_a_step};
///     learn(windows.tokens(step, row));
///
/// An epoch has only whole steps: the windows that are left over are others in each epoch. So no window comes twice in
/// a step, and the windows of a step do not depend on how ranks and micro-batches divide its rows.
class training_windows {
 public:
  /// @param text   outlives this   @param rows   of a step, over all ranks and micro-batches
  /// @throws problem   the text has fewer fixed windows than a step has rows
  training_windows(const training_text& text, std::size_t context, std::uint64_t seed, window_choice choice,
                   std::uint64_t rows)
      : text_{text}, context_{context}, seed_{seed}, rows_{rows}
  {
    if (choice == window_choice::random) return;
    count_ = (text.training().size() - 1) / context;
    if (count_ < rows)
      throw problem{"--windows fixed cuts " + text.name() + " into " + std::to_string(count_) + " windows of " +
                    std::to_string(context) + " bytes, fewer than the " + std::to_string(rows) +
                    " rows of a step (give a longer text, a smaller --context or a smaller --batch)"};
    while ((std::uint64_t{1} << 2 * half_) < count_) ++half_;
  }

  /// Of fixed windows; 0 where they are random.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// The number of a row's window: its index among fixed windows, or its begin in the text.
  /// @param row   counted over all ranks and micro-batches
  [[nodiscard]] std::uint64_t number(std::size_t step, std::size_t row) const noexcept
  {
    if (count_ == 0)
      return static_cast<std::uint64_t>(training_tokens(text_, context_, seed_, step, row) - text_.training().data());
    const std::uint64_t steps = count_ / rows_;
    return shuffled(step / steps, step % steps * rows_ + row);
  }
  [[nodiscard]] const unsigned char* tokens(std::size_t step, std::size_t row) const noexcept
  {
    return text_.training().data() + number(step, row) * (count_ == 0 ? 1 : context_);
  }

 private:
  /// A permutation of the numbers below `count_`: rounds of a Feistel network, until the result is one of them.
  [[nodiscard]] std::uint64_t shuffled(std::uint64_t epoch, std::uint64_t place) const noexcept
  {
    const counter_random random{seed_, stream::batches + epoch};
    const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
    do {
      std::uint64_t left = place >> half_, right = place & mask;
      for (std::uint64_t round = 0; round < 4; ++round) {
        const std::uint64_t mixed = left ^ (random.bits(round << 32U | right) & mask);
        left = right;
        right = mixed;
      }
      place = left << half_ | right;
    } while (place >= count_);
    return place;
  }

  const training_text& text_;
  std::size_t context_;
  std::uint64_t seed_;
  std::uint64_t rows_;
  std::uint64_t count_ = 0;
  unsigned half_ = 0;  // bits of half a place
};

/// One of `count` windows, evenly spaced in the held-out text. @pre count > 1
[[nodiscard]] inline const unsigned char* held_out_tokens(const training_text& text, std::size_t context,
                                                          std::size_t which, std::size_t count)
{
  const std::span<const unsigned char> all = text.held_out();
  const std::size_t last = all.size() - context - 1;
  return all.data() + last * which / (count - 1);
}

}  // namespace gpt
