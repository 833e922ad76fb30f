// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "step_work.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace step_bound {

/// The reason why an access cannot begin earlier after another one.
enum class chain_kind : std::uint8_t {
  compute,           ///< the accesses between the two
  loads,             ///< loads that begin after the first access at the earliest, for uses until the second
  updates,           ///< updates on the host between them, with the copies before the first and after the last
  write_backs,       ///< write-backs that begin after the first access at the earliest, for uses until the second
  room_for_loads,    ///< at the first access there is little room for the bytes used until the second
  room_for_leaving,  ///< at the second access there is little room for the bytes released since the first
};

/// One link of a chain. Accesses are counted from the start of an iteration, and may be in later iterations.
struct chain_link {
  chain_kind kind = chain_kind::compute;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  double nanoseconds = 0;  ///< least time from the start of `from` to the start of `to`
};

/// The critical path around an iteration: the chain of constraints that takes longest, and its time.
///
///     critical_path path{work.clock(), access_indices};
///     path.add_queue(work.loads(), chain_kind::loads);
///     const double time = path.longest(busiest, chain);
///
/// The starts of accesses satisfy `start(b) >= start(a) + least(a, b)`. A chain that comes back to its access some
/// iterations later bounds the time of one iteration. The longest chain is found by lengthening: all constraints push
/// the starts back, one iteration after the other. Where an access pushes itself, its chain is the new length. Memory:
/// 18 bytes x accesses^2. Cost: O(accesses^2) for each family of constraints, and for each round of lengthening.
class critical_path {
 public:
  /// @param access_indices   the accesses of the graph, in order, the first one 0; constraints between others become
  ///   weaker
  critical_path(const compute_clock& clock, std::vector<std::uint32_t> access_indices)
      : clock_{&clock},
        access_indices_{std::move(access_indices)},
        count_{static_cast<std::int64_t>(access_indices_.size())}
  {
    const std::size_t size = access_indices_.size() * span_of(count_);
    least_.assign(size, -infinity);
    kind_.assign(size, chain_kind::compute);
    for (std::int64_t index = 0; index < count_; ++index)
      propose(index, index + 1, clock.at(access_index(index + 1)) - clock.at(access_index(index)), chain_kind::compute);
  }

  /// Pieces of one machine follow each other: the pieces that begin after the first access and end before the second
  /// are all between the two.
  void add_queue(std::span<const work_piece> pieces, chain_kind kind)
  {
    for_windows(pieces, &work_piece::to, [&](std::int64_t from, std::int64_t to, const window& all) {
      propose(from, to, (all.ready - time(from)) + all.nanoseconds + (time(to) - all.due), kind);
    });
  }

  /// Write-backs that begin after the first access leave no more on the device at the second than there is room for.
  /// @param room   at each access, as time of such copies [ns]
  void add_leaving(std::span<const work_piece> write_backs, std::span<const double> room)
  {
    for_windows(write_backs, &work_piece::leaves, [&](std::int64_t from, std::int64_t to, const window& all) {
      propose(from, to, (all.ready - time(from)) + all.nanoseconds - room[at(to)], chain_kind::room_for_leaving);
    });
  }

  /// The loads for uses after the first access have no more room than there is at that access.
  void add_room(std::span<const work_piece> loads, std::span<const double> room)
  {
    std::vector<window> of(static_cast<std::size_t>(3 * count_ + 1));
    for (const work_piece& it : loads)
      for (std::int64_t round = 0; round < 3; ++round)
        if (const std::int64_t to = upper(it.to) + round * count_; to <= 3 * count_)
          of[static_cast<std::size_t>(to)].add(it, clock_->whole() * static_cast<double>(round));
    for (std::int64_t from = 0; from < count_; ++from) {
      const double itself = clock_->at(access_index(from) + 1) - time(from);  // no more room until the access ends
      window all;
      for (std::int64_t to = from + 1; to <= from + 2 * count_; ++to) {
        all.add(of[static_cast<std::size_t>(to)]);
        if (all.nanoseconds <= 0) continue;
        propose(from, to, itself + all.nanoseconds - room[at(from)] + (time(to) - all.due), chain_kind::room_for_loads);
      }
    }
  }

  /// If the time of one iteration is above `at_least`, finds the chain that makes it so. @return   the greater of both
  /// [ns]
  double longest(double at_least, std::vector<chain_link>& chain)
  {
    std::vector<double> start(access_indices_.size(), 0);
    came_by_.assign(access_indices_.size(), 0);
    double time = at_least;
    for (int round = 0; round < most_rounds; ++round) {
      if (!push(start, time)) break;
      if (!find_chain(time, chain)) continue;
      std::ranges::fill(start, 0.0);
      std::ranges::fill(came_by_, 0);
    }
    return time;
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  static constexpr int most_rounds = 256;

  /// Pieces of a machine, as a group.
  struct window {
    double nanoseconds = 0;
    double ready = infinity;  // of the first
    double due = -infinity;   // of the last

    void add(const work_piece& it, double shift)
    {
      nanoseconds += it.nanoseconds;
      ready = std::min(ready, it.ready + shift);
      due = std::max(due, it.due + shift);
    }
    void add(const window& other)
    {
      nanoseconds += other.nanoseconds;
      ready = std::min(ready, other.ready);
      due = std::max(due, other.due);
    }
  };

  [[nodiscard]] static std::size_t span_of(std::int64_t count) noexcept { return static_cast<std::size_t>(2 * count); }
  [[nodiscard]] std::size_t at(std::int64_t node) const noexcept { return static_cast<std::size_t>(node % count_); }
  [[nodiscard]] std::int64_t access_index(std::int64_t node) const noexcept
  {
    return access_indices_[at(node)] + node / count_ * clock_->access_count();
  }
  [[nodiscard]] double time(std::int64_t node) const noexcept { return clock_->at(access_index(node)); }

  /// The last node at or before an access, and the first one at or after it.
  [[nodiscard]] std::int64_t lower(std::int64_t access_index) const noexcept
  {
    const std::int64_t round = (access_index + 8 * clock_->access_count()) / clock_->access_count() - 8;
    const auto inside = static_cast<std::uint32_t>(access_index - round * clock_->access_count());
    return std::ranges::upper_bound(access_indices_, inside) - access_indices_.begin() - 1 + round * count_;
  }
  [[nodiscard]] std::int64_t upper(std::int64_t access_index) const noexcept { return lower(access_index - 1) + 1; }

  /// Calls `visit(from, to, window)` for all pairs of nodes with pieces between them; `to` is in the third of three
  /// iterations.
  template <class Visit>
  void for_windows(std::span<const work_piece> pieces, std::int64_t work_piece::*end, Visit visit) const
  {
    std::vector<std::vector<std::pair<std::int64_t, const work_piece*>>> ends(static_cast<std::size_t>(3 * count_));
    for (const work_piece& it : pieces)
      if (it.from != work_piece::never && it.*end != work_piece::never)
        for (std::int64_t round = -2; round < 6; ++round) {
          const std::int64_t to = upper(it.*end) + round * count_;
          if (to >= 0 && to < 3 * count_ && lower(it.from) + round * count_ >= 0)
            ends[static_cast<std::size_t>(to)].emplace_back(round, &it);
        }
    std::vector<window> of(static_cast<std::size_t>(3 * count_));
    for (std::int64_t to = 0; to < 3 * count_; ++to) {
      for (const auto& [round, it] : ends[static_cast<std::size_t>(to)])
        of[static_cast<std::size_t>(lower(it->from) + round * count_)].add(
            *it, clock_->whole() * static_cast<double>(round));
      window all;
      for (std::int64_t from = to - 1; to >= 2 * count_ && from >= to - 2 * count_; --from) {
        all.add(of[static_cast<std::size_t>(from)]);
        if (all.ready < infinity) visit(from, to, all);
      }
    }
  }

  void propose(std::int64_t from, std::int64_t to, double nanoseconds, chain_kind kind)
  {
    const std::size_t place = at(from) * span_of(count_) + static_cast<std::size_t>(to - from - 1);
    if (nanoseconds <= least_[place]) return;
    least_[place] = nanoseconds;
    kind_[place] = kind;
  }

  /// Applies all constraints once, with `time` for each iteration. @return   some start was pushed back
  bool push(std::vector<double>& start, double time)
  {
    bool pushed = false;
    const double tiny = 1e-9 * time;
    for (std::int64_t from = 0; from < count_; ++from)
      for (std::int64_t step = 1; step <= 2 * count_; ++step) {
        const std::int64_t to = from + step;
        const double reached = start[at(from)] +
                               least_[at(from) * span_of(count_) + static_cast<std::size_t>(step - 1)] -
                               static_cast<double>(to / count_) * time;
        if (reached <= start[at(to)] + tiny) continue;
        start[at(to)] = reached;
        came_by_[at(to)] = step;
        pushed = true;
      }
    return pushed;
  }

  /// Finds an access that pushed itself, along the constraints that pushed last. @return   there is one, with a longer
  /// iteration
  bool find_chain(double& time, std::vector<chain_link>& chain) const
  {
    std::vector<std::int64_t> seen(access_indices_.size(), -1);
    for (std::int64_t first = 0; first < count_; ++first) {
      std::int64_t node = first;
      while (seen[at(node)] < 0 && came_by_[at(node)] != 0) {
        seen[at(node)] = first;
        node = before(node);
      }
      if (came_by_[at(node)] != 0 && seen[at(node)] == first) return take_chain(node, time, chain);
    }
    return false;
  }

  [[nodiscard]] std::int64_t before(std::int64_t node) const noexcept
  {
    return static_cast<std::int64_t>(at(node + 2 * count_ - came_by_[at(node)]));
  }

  bool take_chain(std::int64_t last, double& time, std::vector<chain_link>& chain) const
  {
    std::vector<chain_link> found;
    double sum = 0;
    std::int64_t steps = 0;
    std::int64_t node = last;
    do {
      const std::int64_t step = came_by_[at(node)];
      const std::int64_t from = before(node);
      const std::size_t place = at(from) * span_of(count_) + static_cast<std::size_t>(step - 1);
      found.push_back({kind_[place], static_cast<std::uint32_t>(access_index(from)),
                       static_cast<std::uint32_t>(access_index(from + step)), least_[place]});
      sum += least_[place];
      steps += step;
      node = from;
    } while (node != last);
    const double one = sum / static_cast<double>(steps / count_);
    if (one <= time) return false;
    time = one;
    chain.assign(found.rbegin(), found.rend());
    return true;
  }

  const compute_clock* clock_;
  std::vector<std::uint32_t> access_indices_;
  std::int64_t count_;
  std::vector<double> least_;  // by node and distance in nodes
  std::vector<chain_kind> kind_;
  std::vector<std::int64_t> came_by_;  // by node: distance to the node that pushed it last, 0: none
};

}  // namespace step_bound
