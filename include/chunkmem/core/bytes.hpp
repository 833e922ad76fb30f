// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <compare>
#include <cstdint>

namespace chunkmem::inline v0 {

/// A number of bytes that cannot wrap around.
///
///     const bytes budget = layers * 64_MiB + 512_B;  // throws size_overflow instead of wrapping
///
/// Sums, differences and products that do not fit 64 bits throw: a size that wraps around would silently make a wrong
/// budget. Cost: one compare per operation.
class bytes {
 public:
  constexpr bytes() = default;
  explicit constexpr bytes(std::uint64_t count) noexcept : count_{count} {}

  [[nodiscard]] constexpr std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] constexpr auto operator<=>(const bytes&) const noexcept = default;
  [[nodiscard]] constexpr bool operator==(const bytes&) const noexcept = default;

  /// @throws size_overflow   the result needs more than 64 bits or is below zero
  constexpr bytes& operator+=(bytes other)
  {
    if (other.count_ > UINT64_MAX - count_) throw size_overflow{"sum of bytes", count_, other.count_};
    count_ += other.count_;
    return *this;
  }
  constexpr bytes& operator-=(bytes other)
  {
    if (other.count_ > count_) throw size_overflow{"difference of bytes", count_, other.count_};
    count_ -= other.count_;
    return *this;
  }
  constexpr bytes& operator*=(std::uint64_t factor)
  {
    if (factor != 0 && count_ > UINT64_MAX / factor) throw size_overflow{"product of bytes", count_, factor};
    count_ *= factor;
    return *this;
  }
  [[nodiscard]] friend constexpr bytes operator+(bytes left, bytes right) { return left += right; }
  [[nodiscard]] friend constexpr bytes operator-(bytes left, bytes right) { return left -= right; }
  [[nodiscard]] friend constexpr bytes operator*(bytes left, std::uint64_t factor) { return left *= factor; }
  [[nodiscard]] friend constexpr bytes operator*(std::uint64_t factor, bytes right) { return right *= factor; }

 private:
  std::uint64_t count_ = 0;
};

/// The smallest multiple of `alignment` that is not below `size`. @pre alignment > 0
[[nodiscard]] constexpr bytes align_up(bytes size, bytes alignment)
{
  const std::uint64_t rest = size.count() % alignment.count();
  return rest == 0 ? size : size + bytes{alignment.count() - rest};
}

/// Every tensor starts at a multiple of this in every tier and layout (DLPack consumers and vector kernels expect it).
inline constexpr bytes tensor_alignment{256};

inline namespace literals {
inline namespace byte_literals {
[[nodiscard]] constexpr bytes operator""_B(unsigned long long count)
{
  return bytes{count};
}
[[nodiscard]] constexpr bytes operator""_KiB(unsigned long long count)
{
  return bytes{count} * 1024;
}
[[nodiscard]] constexpr bytes operator""_MiB(unsigned long long count)
{
  return bytes{count} * (1024 * 1024);
}
[[nodiscard]] constexpr bytes operator""_GiB(unsigned long long count)
{
  return bytes{count} * (1024 * 1024 * 1024);
}
}  // namespace byte_literals
}  // namespace literals

/// A count that cannot wrap around, for formulas: elements, operations. What bytes is to sizes.
///
///     const std::uint64_t elements = (checked{12} * layers * hidden * hidden).value();
///
/// Integers convert implicitly, so that a formula reads as in a paper. Cost: one compare for each operation.
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
