// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// A hash of 64 bits, the same on every machine. Different numbers have different hashes, and each bit of a hash
/// depends on all bits of the number.
///
///     hash = mixed_bits((hash ^ word) + splitmix64::step);
///
/// Source: the finalizer of SplitMix (Steele, Lea and Flood 2014). Cost: some five instructions.
[[nodiscard]] constexpr std::uint64_t mixed_bits(std::uint64_t bits) noexcept
{
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
  return bits ^ (bits >> 31);
}

/// Pseudo-random numbers for searches: the same ones on every machine. Not for arithmetic of a training; see philox.
///
///     splitmix64 numbers;
///     const std::uint64_t guess = numbers.next() % 6;
///
/// Source: SplitMix (Steele, Lea and Flood 2014). Cost: some five instructions.
class splitmix64 {
 public:
  static constexpr std::uint64_t step = 0x9E3779B97F4A7C15U;

  constexpr explicit splitmix64(std::uint64_t seed = 0) noexcept : counter_{seed} {}

  [[nodiscard]] constexpr std::uint64_t next() noexcept { return mixed_bits(counter_ += step); }

 private:
  std::uint64_t counter_;
};

}  // namespace chunkmem::inline v0
