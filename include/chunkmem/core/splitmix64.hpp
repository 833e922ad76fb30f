// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// Pseudo-random numbers for searches: the same ones on every machine. Not for arithmetic of a training; see philox.
///
///     splitmix64 numbers;
///     const std::uint64_t guess = numbers.next() % 6;
///
/// Source: SplitMix (Steele, Lea and Flood 2014). Cost: some five instructions.
class splitmix64 {
 public:
  [[nodiscard]] std::uint64_t next() noexcept
  {
    counter_ += 0x9E3779B97F4A7C15U;
    std::uint64_t bits = counter_;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
    return bits ^ (bits >> 31);
  }

 private:
  std::uint64_t counter_ = 0;
};

}  // namespace chunkmem::inline v0
