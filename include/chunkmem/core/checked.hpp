// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <compare>
#include <cstdint>

namespace chunkmem::inline v0 {

/// A count that cannot wrap around, for formulas: elements, operations. What bytes is to sizes.
///
///     const std::uint64_t elements = (checked{12} * layers * hidden * hidden).value();
///
/// It comes from a whole number without a word, so that a formula reads as it stands in a book. Cost: one compare for
/// each operation.
class checked {
 public:
  constexpr checked() = default;
  constexpr checked(std::uint64_t value) noexcept : value_{value} {}

  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }
  [[nodiscard]] constexpr auto operator<=>(const checked&) const noexcept = default;
  [[nodiscard]] constexpr bool operator==(const checked&) const noexcept = default;

  /// @throws size_overflow   the result needs more than 64 bits; nothing was changed
  constexpr checked& operator+=(checked other)
  {
    if (other.value_ > UINT64_MAX - value_) throw size_overflow{"a sum", value_, other.value_};
    value_ += other.value_;
    return *this;
  }
  constexpr checked& operator*=(checked other)
  {
    if (other.value_ != 0 && value_ > UINT64_MAX / other.value_) throw size_overflow{"a product", value_, other.value_};
    value_ *= other.value_;
    return *this;
  }
  [[nodiscard]] friend constexpr checked operator+(checked left, checked right) { return left += right; }
  [[nodiscard]] friend constexpr checked operator*(checked left, checked right) { return left *= right; }

 private:
  std::uint64_t value_ = 0;
};

}  // namespace chunkmem::inline v0
