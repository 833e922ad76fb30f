// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/version.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace chunkmem::inline v0 {

namespace transfer {

/// A segment tree: adds a number to a range of a sequence, and finds the smallest number of a range.
///
///     room_tree room{bytes_of_row};
///     room.add(first, last, -size);
///     if (room.least(first, last) >= size) ...
///
/// Cost: O(log size) for each call, 32 bytes for each number.
class room_tree {
 public:
  static constexpr std::int64_t endless = std::numeric_limits<std::int64_t>::max();

  explicit room_tree(std::span<const std::int64_t> values)
  {
    while (leaves_ < values.size()) leaves_ *= 2;
    least_.assign(2 * leaves_, endless / 2);
    added_.assign(leaves_, 0);
    std::copy(values.begin(), values.end(), least_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (std::size_t node = leaves_; --node > 0;) least_[node] = std::min(least_[2 * node], least_[2 * node + 1]);
  }

  /// Adds to [begin, end).
  void add(std::size_t begin, std::size_t end, std::int64_t value) noexcept
  {
    if (begin >= end) return;
    std::size_t left = begin + leaves_;
    std::size_t right = end + leaves_;
    for (; left < right; left /= 2, right /= 2) {
      if (left % 2 != 0) add_to(left++, value);
      if (right % 2 != 0) add_to(--right, value);
    }
    mend(begin + leaves_);
    mend(end - 1 + leaves_);
  }

  /// The smallest number of [begin, end), or `endless` where the range is empty.
  [[nodiscard]] std::int64_t least(std::size_t begin, std::size_t end) const noexcept
  {
    return begin < end ? least_in(1, 0, leaves_, begin, end) : endless;
  }

 private:
  void add_to(std::size_t node, std::int64_t value) noexcept
  {
    least_[node] += value;
    if (node < leaves_) added_[node] += value;
  }

  void mend(std::size_t node) noexcept
  {
    while (node > 1) {
      node /= 2;
      least_[node] = std::min(least_[2 * node], least_[2 * node + 1]) + added_[node];
    }
  }

  [[nodiscard]] std::int64_t least_in(std::size_t node, std::size_t from, std::size_t size, std::size_t begin,
                                      std::size_t end) const noexcept
  {
    if (begin <= from && from + size <= end) return least_[node];
    const std::size_t half = size / 2;
    std::int64_t found = endless / 2;
    if (begin < from + half) found = least_in(2 * node, from, half, begin, end);
    if (end > from + half) found = std::min(found, least_in(2 * node + 1, from + half, half, begin, end));
    return found + added_[node];
  }

  std::size_t leaves_ = 1;
  sequence<std::int64_t> least_;  // by node: the smallest number below, with everything added at the node or below
  sequence<std::int64_t> added_;  // by node: added to all numbers below
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
