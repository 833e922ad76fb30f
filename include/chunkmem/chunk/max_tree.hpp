// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/version.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

/// A segment tree of maxima: finds the first number that is large enough. Cost: O(log size); allocates where it grows.
///
///     max_tree room;
///     for (const std::uint64_t free : {10, 40, 30}) room.push_back(free);
///     const std::size_t first = room.first(0, 20);  // 1
class max_tree {
 public:
  static constexpr std::size_t none = SIZE_MAX;

  void clear() noexcept
  {
    std::fill(nodes_.begin(), nodes_.end(), 0);
    size_ = 0;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t at(std::size_t index) const noexcept { return nodes_[leaves_ + index]; }

  void push_back(std::uint64_t value)
  {
    if (size_ == leaves_) grow();
    set(size_++, value);
  }
  void set(std::size_t index, std::uint64_t value) noexcept
  {
    std::size_t node = leaves_ + index;
    nodes_[node] = value;
    while (node > 1) {
      node /= 2;
      const std::uint64_t larger = std::max(nodes_[2 * node], nodes_[2 * node + 1]);
      if (nodes_[node] == larger) return;
      nodes_[node] = larger;
    }
  }

  /// The first index from `from` on with at least `need`, or none. @pre need > 0
  [[nodiscard]] std::size_t first(std::size_t from, std::uint64_t need) const noexcept
  {
    if (from >= size_) return none;
    std::size_t node = leaves_ + from;
    do {
      node >>= std::countr_zero(node);  // the largest part of the row that begins here
      if (nodes_[node] >= need) {
        while (node < leaves_) {
          node *= 2;
          if (nodes_[node] < need) ++node;
        }
        return node - leaves_;
      }
      ++node;
    } while (!std::has_single_bit(node));
    return none;
  }

  /// The largest of [begin, end), or 0 where that is empty.
  [[nodiscard]] std::uint64_t largest(std::size_t begin, std::size_t end) const noexcept
  {
    std::uint64_t result = 0;
    begin += leaves_;
    end += leaves_;
    for (; begin < end; begin /= 2, end /= 2) {
      if (begin % 2 != 0) result = std::max(result, nodes_[begin++]);
      if (end % 2 != 0) result = std::max(result, nodes_[--end]);
    }
    return result;
  }

 private:
  void grow()
  {
    const std::size_t leaves = std::max<std::size_t>(2 * leaves_, 16);
    sequence<std::uint64_t> nodes(2 * leaves, 0);
    for (std::size_t index = 0; index < size_; ++index) nodes[leaves + index] = nodes_[leaves_ + index];
    for (std::size_t node = leaves - 1; node > 0; --node) nodes[node] = std::max(nodes[2 * node], nodes[2 * node + 1]);
    nodes_.swap(nodes);
    leaves_ = leaves;
  }

  sequence<std::uint64_t> nodes_;  // nodes_[n] is the larger of its children 2n and 2n + 1
  std::size_t leaves_ = 0;
  std::size_t size_ = 0;
};

}  // namespace chunkmem::inline v0
