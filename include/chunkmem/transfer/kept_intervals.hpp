// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/sequence.hpp>
#include <chunkmem/transfer/retention_problem.hpp>
#include <chunkmem/transfer/room_tree.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace transfer {

/// A choice of intervals that fit together, with the bytes that the choice moves and the room that it leaves.
///
///     kept_intervals choice{problem};
///     if (choice.fits(which) && choice.saving(which) > 0) choice.keep(which);
///     choice.moved_bytes();
///
/// Cost: O(log rows) for each call. @pre the problem outlives the choice
class kept_intervals {
 public:
  using interval = retention_problem::interval;
  using epoch = retention_problem::epoch;

  explicit kept_intervals(const retention_problem& problem)
      : problem_{&problem},
        room_{problem.room()},
        is_kept_(problem.intervals().size(), 0),
        dropped_(problem.epochs().size())
  {
    for (std::size_t index = 0; index < dropped_.size(); ++index) {
      const epoch& it = problem.epochs()[index];
      dropped_[index] = it.end - it.begin;
      moved_ += it.writes_back ? it.size : 0;
      for (std::uint32_t which = it.begin; which < it.end; ++which)
        moved_ += problem.intervals()[which].loads ? it.size : 0;
    }
  }

  [[nodiscard]] const retention_problem& problem() const noexcept { return *problem_; }
  [[nodiscard]] bool is_kept(std::size_t which) const noexcept { return is_kept_[which] != 0; }
  [[nodiscard]] const sequence<std::uint8_t>& all() const noexcept { return is_kept_; }
  /// Bytes that the choice moves, without the constant bytes.
  [[nodiscard]] std::uint64_t moved_bytes() const noexcept { return moved_; }
  [[nodiscard]] std::uint32_t dropped_of(std::size_t epoch_index) const noexcept { return dropped_[epoch_index]; }
  [[nodiscard]] std::uint64_t size_of(std::size_t which) const noexcept
  {
    return problem_->epochs()[problem_->intervals()[which].epoch].size;
  }

  /// There is room to keep a dropped interval.
  [[nodiscard]] bool fits(std::size_t which) const noexcept
  {
    return room_over(which) >= static_cast<std::int64_t>(size_of(which));
  }

  /// The fewest bytes that are free in a row of an interval.
  [[nodiscard]] std::int64_t room_over(std::size_t which) const noexcept
  {
    const interval& it = problem_->intervals()[which];
    if (!it.wraps) return room_.least(it.first, it.last);
    return std::min(room_.least(it.first, problem_->room().size()), room_.least(0, it.last));
  }

  /// Bytes that keeping the interval saves. @pre the interval is dropped
  [[nodiscard]] std::uint64_t saving(std::size_t which) const noexcept
  {
    const interval& it = problem_->intervals()[which];
    const epoch& mine = problem_->epochs()[it.epoch];
    return (it.loads ? mine.size : 0) + (mine.writes_back && dropped_[it.epoch] == 1 ? mine.size : 0);
  }
  /// Bytes that dropping the interval costs. @pre the interval is kept
  [[nodiscard]] std::uint64_t loss(std::size_t which) const noexcept
  {
    const interval& it = problem_->intervals()[which];
    const epoch& mine = problem_->epochs()[it.epoch];
    return (it.loads ? mine.size : 0) + (mine.writes_back && dropped_[it.epoch] == 0 ? mine.size : 0);
  }

  /// @pre the interval is dropped and fits
  void keep(std::size_t which) noexcept
  {
    moved_ -= saving(which);
    --dropped_[problem_->intervals()[which].epoch];
    is_kept_[which] = 1;
    take(which, -static_cast<std::int64_t>(size_of(which)));
  }
  /// @pre the interval is kept
  void drop(std::size_t which) noexcept
  {
    moved_ += loss(which);
    ++dropped_[problem_->intervals()[which].epoch];
    is_kept_[which] = 0;
    take(which, static_cast<std::int64_t>(size_of(which)));
  }

  /// Keeps all dropped intervals of an epoch, or none. @return   all are kept
  bool keep_epoch(std::size_t epoch_index) noexcept
  {
    const epoch& it = problem_->epochs()[epoch_index];
    for (std::uint32_t which = it.begin; which < it.end; ++which)  // intervals of one epoch share no row
      if (!is_kept(which) && !fits(which)) return false;
    for (std::uint32_t which = it.begin; which < it.end; ++which)
      if (!is_kept(which)) keep(which);
    return true;
  }

  /// Drops the intervals that save nothing. Then keeps each interval that fits and saves bytes, in the given order.
  template <class Intervals>
  void fill(const Intervals& order) noexcept
  {
    for (const auto which : order)
      if (is_kept(which) && loss(which) == 0) drop(which);
    for (const auto which : order)
      if (!is_kept(which) && saving(which) > 0 && fits(which)) keep(which);
  }

 private:
  void take(std::size_t which, std::int64_t value) noexcept
  {
    const interval& it = problem_->intervals()[which];
    if (!it.wraps) return room_.add(it.first, it.last, value);
    room_.add(it.first, problem_->room().size(), value);
    room_.add(0, it.last, value);
  }

  const retention_problem* problem_;
  room_tree room_;
  sequence<std::uint8_t> is_kept_;
  sequence<std::uint32_t> dropped_;  // intervals of each epoch
  std::uint64_t moved_ = 0;
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
