// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/splitmix64.hpp>

#include <cstdint>

namespace gpt {

/// Random numbers as a function of a key and a counter: no state, so the order of calls does not change them.
///
/// Twice the finalizer of splitmix64 (Steele et al. 2014). Good for initial weights and batches, not for secrets.
class counter_random {
 public:
  /// @param seed     of the run
  /// @param stream   of one user within the run: a tensor, a step, the sampler
  constexpr counter_random(std::uint64_t seed, std::uint64_t stream) noexcept
      : key_{scramble(scramble(seed) ^ (stream * 0xd1342543de82ef95u))}
  {
  }

  [[nodiscard]] constexpr std::uint64_t bits(std::uint64_t counter) const noexcept
  {
    return scramble(key_ + counter * 0x9e3779b97f4a7c15u);
  }

  /// A number in [0, 1) with 24 random bits, exact in a float.
  [[nodiscard]] constexpr float uniform(std::uint64_t counter) const noexcept
  {
    return static_cast<float>(bits(counter) >> 40) * 0x1p-24f;
  }

  /// A number in [0, bound). @pre bound > 0
  [[nodiscard]] constexpr std::uint64_t below(std::uint64_t bound, std::uint64_t counter) const noexcept
  {
    return bits(counter) % bound;
  }

 private:
  [[nodiscard]] static constexpr std::uint64_t scramble(std::uint64_t value) noexcept
  {
    return chunkmem::mixed_bits(value + chunkmem::splitmix64::step);
  }

  std::uint64_t key_;
};

/// The streams of a run, far enough apart that they never overlap.
namespace stream {
inline constexpr std::uint64_t weights = 0;                       ///< plus the index of the tensor
inline constexpr std::uint64_t batches = std::uint64_t{1} << 40;  ///< plus the step
inline constexpr std::uint64_t sampling = std::uint64_t{2} << 40;
}  // namespace stream

}  // namespace gpt
