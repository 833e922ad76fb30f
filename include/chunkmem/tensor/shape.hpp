// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/expects.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace chunkmem::inline v0 {

/// Extents of a tensor, row-major, at most six.
///
///     const shape weight{1'024, 4'096};
///     const std::uint64_t elements = weight.elements();  // 4194304
///
/// @throws usage_error     more than six extents, or one of them is zero
/// @throws size_overflow   the number of elements needs more than 64 bits
class shape {
 public:
  static constexpr std::size_t max_rank = 6;

  constexpr shape(std::initializer_list<std::uint64_t> extents) : shape{std::span{extents.begin(), extents.size()}} {}

  explicit constexpr shape(std::span<const std::uint64_t> extents) : rank_{extents.size()}
  {
    expects(rank_ > 0 && rank_ <= max_rank, "a shape has one to six extents");
    bytes total{1};
    for (std::size_t axis = 0; axis < rank_; ++axis) {
      if (extents[axis] == 0)
        throw usage_error{error_text{} << "chunkmem: an extent of a shape is zero: number " << axis << " of " << rank_};
      extents_[axis] = extents[axis];
      total *= extents[axis];
    }
    elements_ = total.count();
  }

  [[nodiscard]] constexpr std::size_t rank() const noexcept { return rank_; }
  [[nodiscard]] constexpr std::uint64_t elements() const noexcept { return elements_; }
  /// @throws usage_error   `axis` is not below the rank
  [[nodiscard]] constexpr std::uint64_t operator[](std::size_t axis) const
  {
    expects(axis < rank_, "an axis of a shape that it does not have");
    return extents_[axis];
  }
  [[nodiscard]] constexpr bool operator==(const shape&) const noexcept = default;

 private:
  std::uint64_t extents_[max_rank] = {};
  std::size_t rank_ = 0;
  std::uint64_t elements_ = 0;
};

}  // namespace chunkmem::inline v0
