// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/retention_problem.hpp>
#include <chunkmem/transfer/room_tree.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// A choice of gaps that fit together, the bytes that it moves, and the room that it leaves.
///
/// Cost: O(log rows) for each call, O(gaps of one epoch) for prices of a change. @pre the problem outlives it
class kept_gaps {
 public:
  using gap = retention_problem::gap;
  using epoch = retention_problem::epoch;

  explicit kept_gaps(const retention_problem& problem)
      : problem_{&problem}, room_{problem.room()}, is_kept_(problem.gaps().size(), 0), dropped_(problem.epochs().size())
  {
    for (std::size_t at = 0; at < dropped_.size(); ++at) {
      const epoch& it = problem.epochs()[at];
      dropped_[at] = it.end - it.begin;
      moved_ += it.writes_back ? it.size : 0;
      for (std::uint32_t which = it.begin; which < it.end; ++which) moved_ += problem.gaps()[which].loads ? it.size : 0;
    }
  }

  [[nodiscard]] const retention_problem& problem() const noexcept { return *problem_; }
  [[nodiscard]] bool is_kept(std::size_t which) const noexcept { return is_kept_[which] != 0; }
  [[nodiscard]] const std::vector<std::uint8_t>& all() const noexcept { return is_kept_; }
  /// Bytes that the choice moves, besides the constant ones.
  [[nodiscard]] std::uint64_t moved_bytes() const noexcept { return moved_; }
  [[nodiscard]] std::uint32_t dropped_of(std::size_t epoch_index) const noexcept { return dropped_[epoch_index]; }
  [[nodiscard]] std::uint64_t size_of(std::size_t which) const noexcept
  {
    return problem_->epochs()[problem_->gaps()[which].epoch].size;
  }

  /// There is room to keep a gap that is dropped.
  [[nodiscard]] bool fits(std::size_t which) const noexcept
  {
    return room_over(which) >= static_cast<std::int64_t>(size_of(which));
  }

  /// Bytes still free over all rows of a gap.
  [[nodiscard]] std::int64_t room_over(std::size_t which) const noexcept
  {
    const gap& it = problem_->gaps()[which];
    if (!it.wraps) return room_.least(it.first, it.last);
    return std::min(room_.least(it.first, problem_->room().size()), room_.least(0, it.last));
  }

  /// The row of a gap in which the fewest bytes are free.
  [[nodiscard]] std::uint32_t tightest_row(std::size_t which) const noexcept
  {
    const gap& it = problem_->gaps()[which];
    const std::size_t rows = problem_->room().size();
    if (!it.wraps) return static_cast<std::uint32_t>(room_.where_least(it.first, it.last));
    const bool ends = room_.least(it.first, rows) <= room_.least(0, it.last);
    return static_cast<std::uint32_t>(ends ? room_.where_least(it.first, rows) : room_.where_least(0, it.last));
  }

  /// Bytes less to move if this gap is kept too. @pre it is dropped
  [[nodiscard]] std::uint64_t saving(std::size_t which) const noexcept
  {
    const gap& it = problem_->gaps()[which];
    const epoch& mine = problem_->epochs()[it.epoch];
    return (it.loads ? mine.size : 0) + (mine.writes_back && dropped_[it.epoch] == 1 ? mine.size : 0);
  }
  /// Bytes more to move if this gap is dropped too. @pre it is kept
  [[nodiscard]] std::uint64_t loss(std::size_t which) const noexcept
  {
    const gap& it = problem_->gaps()[which];
    const epoch& mine = problem_->epochs()[it.epoch];
    return (it.loads ? mine.size : 0) + (mine.writes_back && dropped_[it.epoch] == 0 ? mine.size : 0);
  }

  /// @pre it is dropped and fits
  void keep(std::size_t which) noexcept
  {
    moved_ -= saving(which);
    --dropped_[problem_->gaps()[which].epoch];
    is_kept_[which] = 1;
    take(which, -static_cast<std::int64_t>(size_of(which)));
  }
  /// @pre it is kept
  void drop(std::size_t which) noexcept
  {
    moved_ += loss(which);
    ++dropped_[problem_->gaps()[which].epoch];
    is_kept_[which] = 0;
    take(which, static_cast<std::int64_t>(size_of(which)));
  }

  /// Keeps all dropped gaps of an epoch, or none of them. @return   it did
  bool keep_epoch(std::size_t epoch_index) noexcept
  {
    const epoch& it = problem_->epochs()[epoch_index];
    for (std::uint32_t which = it.begin; which < it.end; ++which)  // gaps of one epoch share no row
      if (!is_kept(which) && !fits(which)) return false;
    for (std::uint32_t which = it.begin; which < it.end; ++which)
      if (!is_kept(which)) keep(which);
    return true;
  }

  /// Drops what saves nothing, and keeps gaps that fit and save something, in this order.
  template <class Gaps>
  void fill(const Gaps& order) noexcept
  {
    for (const auto which : order)
      if (is_kept(which) && loss(which) == 0) drop(which);
    for (const auto which : order)
      if (!is_kept(which) && saving(which) > 0 && fits(which)) keep(which);
  }

 private:
  void take(std::size_t which, std::int64_t value) noexcept
  {
    const gap& it = problem_->gaps()[which];
    if (!it.wraps) return room_.add(it.first, it.last, value);
    room_.add(it.first, problem_->room().size(), value);
    room_.add(0, it.last, value);
  }

  const retention_problem* problem_;
  room_tree room_;
  std::vector<std::uint8_t> is_kept_;
  std::vector<std::uint32_t> dropped_;  // gaps of each epoch
  std::uint64_t moved_ = 0;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
