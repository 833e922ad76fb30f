// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/pass_orders.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The times of one batch in some orders, for searches: no steps, no transfers that wait.
///
///     pass_clock clock{problem};
///     const double seconds = clock.run(orders).longest;
///
/// Cost: O(runs). Room is kept, so runs of one problem soon allocate nothing.
class pass_clock {
 public:
  static constexpr double never = std::numeric_limits<double>::infinity();

  struct spans {
    double longest = never;  ///< from the first begin to the last end of a stage [s]; `never`: stages wait for ever
    double sum = 0;          ///< over stages [s]
    double ends = 0;         ///< of all runs but gradients of weights, added up [s]
  };

  /// @param problem   outlives the clock
  explicit pass_clock(const order_problem& problem) : problem_{problem} {}

  [[nodiscard]] spans run(const pass_orders& orders)
  {
    begin();
    ends_ = 0;
    while (!ready_.empty()) {
      const std::uint32_t stage = ready_.back();
      ready_.pop_back();
      std::size_t& next = next_[stage];
      while (next < orders[stage].size() && take(stage, orders[stage][next])) ++next;
    }
    spans all{.longest = 0, .sum = 0, .ends = ends_};
    for (std::uint32_t stage = 0; stage < problem_.stages; ++stage) {
      if (next_[stage] < orders[stage].size()) return {};
      const double span = free_[stage] - std::max(0.0, first_[stage]);
      all.longest = std::max(all.longest, span);
      all.sum += span;
    }
    return all;
  }

 private:
  static constexpr double unknown = -1;

  void begin()
  {
    const std::size_t cells = std::size_t{problem_.part_count()} * problem_.micro_batches;
    inputs_.assign(cells, unknown);
    std::fill_n(inputs_.begin(), problem_.micro_batches, 0.0);
    gradients_.assign(cells, unknown);
    forwards_.assign(problem_.part_count(), 0);
    backwards_.assign(problem_.part_count(), 0);
    next_.assign(problem_.stages, 0);
    free_.assign(problem_.stages, 0);
    first_.assign(problem_.stages, unknown);
    ready_.clear();
    for (std::uint32_t stage = problem_.stages; stage-- > 0;) ready_.push_back(stage);
  }

  /// @return   whether the run's input is there
  bool take(std::uint32_t stage, const pass& run)
  {
    double start = free_[stage];
    if (run.kind != operation_kind::backward_weight) {
      const bool is_forward = run.kind == operation_kind::forward;
      const std::uint32_t micro_batch = is_forward ? forwards_[run.part] : backwards_[run.part];
      const double there = (is_forward ? inputs_ : gradients_)[cell(run.part, micro_batch)];
      if (there == unknown) return false;
      start = std::max(start, there);
      const double end = start + problem_.seconds_of(run.kind);
      ends_ += end;
      pass_on(stage, run.part, micro_batch, is_forward, end);
      ++(is_forward ? forwards_ : backwards_)[run.part];
    }
    if (first_[stage] == unknown) first_[stage] = start;
    free_[stage] = start + problem_.seconds_of(run.kind);
    return true;
  }

  void pass_on(std::uint32_t stage, std::uint32_t part, std::uint32_t micro_batch, bool is_forward, double end)
  {
    if (is_forward && part + 1 == problem_.part_count()) {
      gradients_[cell(part, micro_batch)] = end;
      return;
    }
    if (!is_forward && part == 0) return;
    const std::uint32_t next = is_forward ? part + 1 : part - 1;
    const bool crosses = problem_.owners[next] != stage;
    (is_forward ? inputs_ : gradients_)[cell(next, micro_batch)] = end + (crosses ? problem_.transfer : 0);
    if (crosses) ready_.push_back(problem_.owners[next]);
  }
  [[nodiscard]] std::size_t cell(std::uint32_t part, std::uint32_t micro_batch) const
  {
    return std::size_t{part} * problem_.micro_batches + micro_batch;
  }

  const order_problem& problem_;
  std::vector<double> inputs_;  // by part and micro-batch: when they are there
  std::vector<double> gradients_;
  std::vector<std::uint32_t> forwards_;  // by part: runs so far
  std::vector<std::uint32_t> backwards_;
  std::vector<std::size_t> next_;  // by stage
  std::vector<double> free_;
  std::vector<double> first_;
  std::vector<std::uint32_t> ready_;  // stages to look at, some of them twice
  double ends_ = 0;
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
