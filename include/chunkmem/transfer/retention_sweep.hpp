// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/retention_problem.hpp>
#include <chunkmem/transfer/row_prices.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Goes through the rows in time, keeps every gap that begins, and gives up what is worth least where room ends.
///
/// A gap is worth its moves, times a weight, less the price until its end. With prices of one it is what demand paging
/// does: weight 0 is Belady's rule, a large one puts cost first. Several laps, since an iteration begins where it
/// ended, and rules take a few to settle; the last one has to close. Cost: O(gaps log gaps) for each lap.
class retention_sweep {
 public:
  static constexpr std::size_t visits_of_all_laps = 20'000;  ///< gaps; what is larger takes two laps

  explicit retention_sweep(const retention_problem& problem)
      : problem_{problem}, survived_(problem.gaps().size()), held_(problem.gaps().size()), left_(problem.gaps().size())
  {
    laps_ = std::clamp<std::size_t>(visits_of_all_laps / (problem.gaps().size() + 1), 2, 12);
    for (std::uint32_t which = 0; which < problem.gaps().size(); ++which) by_end_.push_back(which);
    by_begin_ = by_end_;
    std::ranges::stable_sort(by_begin_, {}, [&](std::uint32_t which) { return problem.gaps()[which].first; });
    std::ranges::stable_sort(by_end_, {}, [&](std::uint32_t which) { return problem.gaps()[which].last; });
  }

  /// One for each gap that stays; they fit together. @param cost_weight   price that one move of a byte is worth
  const std::vector<std::uint8_t>& operator()(const row_prices& price, double cost_weight)
  {
    std::ranges::fill(survived_, std::uint8_t{1});
    std::ranges::fill(held_, std::uint8_t{0});
    std::ranges::fill(left_, std::uint8_t{0});
    heap_.clear();
    bytes_ = 0;
    for (std::size_t left = laps_; left-- > 0;) {
      closes_ = left == 0;
      lap(price, cost_weight);
      std::erase_if(heap_, [&](const entry& it) { return held_[it.which] == 0; });
      for (entry& it : heap_) it.worth += price.all();  // the same end is one lap nearer
      std::make_heap(heap_.begin(), heap_.end());
    }
    return survived_;
  }

 private:
  struct entry {
    double worth;
    std::uint32_t which;
    bool operator<(const entry& other) const noexcept  // the least worth comes out first
    {
      return worth != other.worth ? worth > other.worth : which > other.which;
    }
  };

  void lap(const row_prices& price, double cost_weight)
  {
    std::size_t begin = 0;
    std::size_t end = 0;
    for (std::uint32_t row = 0; row < problem_.room().size(); ++row) {
      for (; end < by_end_.size() && problem_.gaps()[by_end_[end]].last == row; ++end) finish(by_end_[end]);
      for (; begin < by_begin_.size() && problem_.gaps()[by_begin_[begin]].first == row; ++begin)
        start(by_begin_[begin], price, cost_weight);
      while (bytes_ > problem_.room()[row]) give_up();
    }
    for (; end < by_end_.size(); ++end) finish(by_end_[end]);
  }

  void start(std::uint32_t which, const row_prices& price, double cost_weight)
  {
    const retention_problem::gap& it = problem_.gaps()[which];
    if (closes_ && it.wraps && survived_[which] == 0) return;  // this lap has to end as it began
    const double until = price.before(it.last) + (it.wraps ? price.all() : 0.0);
    heap_.push_back({__builtin_fma(cost_weight, moves_of(it, which), -until), which});
    std::push_heap(heap_.begin(), heap_.end());
    held_[which] = survived_[which] = 1;
    left_[which] = 0;
    bytes_ += size_of(which);
  }

  void finish(std::uint32_t which)
  {
    if (held_[which] == 0) return;
    held_[which] = 0;
    bytes_ -= size_of(which);
  }

  void give_up()
  {
    std::pop_heap(heap_.begin(), heap_.end());
    const std::uint32_t which = heap_.back().which;
    heap_.pop_back();
    if (held_[which] == 0) return;
    finish(which);
    survived_[which] = 0;
    left_[which] = 1;
  }

  /// What a byte moves if it leaves: a load, and a write-back unless it left before in this epoch.
  [[nodiscard]] double moves_of(const retention_problem::gap& it, std::uint32_t which) const noexcept
  {
    const retention_problem::epoch& mine = problem_.epochs()[it.epoch];
    bool writes_back = mine.writes_back;
    for (std::uint32_t before = mine.begin; before < which; ++before) writes_back = writes_back && left_[before] == 0;
    return (it.loads ? 1.0 : 0.0) + (writes_back ? 1.0 : 0.0);
  }

  [[nodiscard]] std::int64_t size_of(std::uint32_t which) const noexcept
  {
    return static_cast<std::int64_t>(problem_.epochs()[problem_.gaps()[which].epoch].size);
  }

  const retention_problem& problem_;
  std::vector<std::uint32_t> by_begin_;
  std::vector<std::uint32_t> by_end_;
  std::vector<entry> heap_;
  std::vector<std::uint8_t> survived_;
  std::vector<std::uint8_t> held_;
  std::vector<std::uint8_t> left_;  // was given up when it was there last
  std::int64_t bytes_ = 0;
  std::size_t laps_ = 2;
  bool closes_ = false;  // this is the last lap
};

}  // namespace transfer

}  // namespace chunkmem::inline v0
