// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/order_search.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// The three choices of filled_orders.
///
///     const filling_rules rules{.may_skip = true};
struct filling_rules {
  bool waits_for_none = false;  ///< a stage runs forward until its first gradient waits
  bool may_skip = false;  ///< a round may have no forward run, where a stage is two ahead and its idle time is small
  bool fills_any_gap = false;  ///< a gradient of weights begins in any gap, also in a short one

  /// All combinations.
  [[nodiscard]] static constexpr std::array<filling_rules, 8> all() noexcept
  {
    std::array<filling_rules, 8> every{};
    for (std::size_t it = 0; it < every.size(); ++it) every[it] = {(it & 1U) != 0, (it & 2U) != 0, (it & 4U) != 0};
    return every;
  }
};

/// Orders of one batch, made in rounds, for stages with one part each.
///
/// First each stage runs forward as often as it can before the gradient of the first micro-batch comes back, and less
/// often than the stage before. Then every round has a forward run and a gradient of inputs on each stage. Gradients of
/// weights fill the time in which a stage would wait, and make room where the limit is reached. A gradient that is
/// longer than the gap begins only where the stage would otherwise become the one with the longest idle time.
///
///     const pass_orders orders = filled_orders{problem}.make({.may_skip = true});
///
/// Source: the heuristic of zero bubble pipelines (Qi et al., 2023, arXiv 2401.10241), section 3.
/// Cost: O(runs + micro-batches times stages).
class filled_orders {
 public:
  /// @param problem   outlives this object   @pre stage s owns part s, and no other
  explicit filled_orders(const order_problem& problem) : problem_{problem} {}

  /// Makes the orders. Without any run where these rules lead to a deadlock.
  [[nodiscard]] pass_orders make(const filling_rules& rules)
  {
    rules_ = rules;
    stages_.assign(problem_.stages, {});
    orders_.assign(problem_.stages, {});
    bool ends = warm_up();
    for (std::uint32_t round = 1; ends && round < problem_.micro_batches; ++round) {
      const std::vector<bool> goes = forwards_of_round();
      for (std::uint32_t stage = 0; ends && stage < problem_.stages; ++stage) ends = !goes[stage] || put_forward(stage);
      ends = ends && put_backwards();
    }
    if (!ends) return pass_orders(problem_.stages);
    for (std::uint32_t stage = 0; stage < problem_.stages; ++stage)
      while (has_weight(stages_[stage])) put_weight(stage);
    return orders_;
  }

 private:
  using enum operation_kind;

  struct stage_state {
    double free = 0;  // the end of its last run
    double saved = 0;
    double idle = 0;  // between its runs
    std::size_t weights = 0;
    std::vector<double> forward_ends;  // by micro-batch
    std::vector<double> backward_ends;
  };

  [[nodiscard]] static bool has_weight(const stage_state& it) { return it.weights < it.backward_ends.size(); }
  [[nodiscard]] double longest_idle() const { return std::ranges::max(stages_, {}, &stage_state::idle).idle; }

  void put(std::uint32_t stage, operation_kind kind, double ready)
  {
    stage_state& it = stages_[stage];
    const double start = std::max(it.free, ready);
    if (!orders_[stage].empty()) it.idle += start - it.free;
    it.free = start + problem_.seconds_of(kind);
    it.saved += problem_.change_of(kind);
    orders_[stage].push_back({kind, kind == backward_weight ? 0 : stage});
  }
  void put_weight(std::uint32_t stage)
  {
    put(stage, backward_weight, 0);
    ++stages_[stage].weights;
  }
  void fill_until(std::uint32_t stage, double ready)
  {
    const stage_state& it = stages_[stage];
    while (has_weight(it) && it.free + problem_.backward_weight <= ready) put_weight(stage);
    const double gap = ready - it.free;
    if (has_weight(it) && gap > 0 && (rules_.fills_any_gap || it.idle + gap > longest_idle())) put_weight(stage);
  }
  /// @return   the stage has room for the run
  bool put_forward(std::uint32_t stage)
  {
    stage_state& it = stages_[stage];
    while (!problem_.has_room(it.saved)) {
      if (!has_weight(it)) return false;
      put_weight(stage);
    }
    const std::size_t micro_batch = it.forward_ends.size();
    const double ready = stage == 0 ? 0 : stages_[stage - 1].forward_ends[micro_batch] + problem_.transfer;
    fill_until(stage, ready);
    put(stage, forward, ready);
    it.forward_ends.push_back(it.free);
    return true;
  }
  /// One backward run on each stage. @return   each had its forward run
  bool put_backwards()
  {
    double ready = stages_.back().forward_ends[stages_.back().backward_ends.size()];
    for (std::uint32_t stage = problem_.stages; stage-- > 0;) {
      stage_state& it = stages_[stage];
      if (it.backward_ends.size() == it.forward_ends.size()) return false;
      // Without forward runs stage 0 waits a round trip for each gradient of inputs, which none of its own runs delays.
      if (stage == 0 && it.forward_ends.size() == problem_.micro_batches)
        while (has_weight(it)) put_weight(stage);
      fill_until(stage, ready);
      put(stage, backward_input, ready);
      it.backward_ends.push_back(it.free);
      ready = it.free + problem_.transfer;
    }
    return true;
  }

  /// All runs up to the gradient of the first micro-batch on stage 0.
  bool warm_up()
  {
    for (std::uint32_t stage = 0; stage < problem_.stages; ++stage)
      if (!put_forward(stage)) return false;
    std::vector<std::uint32_t> more(problem_.stages, 0);  // forward runs before the first gradient
    double ready = stages_.back().free;                   // time of that gradient
    for (std::uint32_t stage = problem_.stages; stage-- > 0;) {
      std::uint32_t& count = more[stage];
      if (stage + 1 < problem_.stages) count = more[stage + 1];
      const auto end = [&](std::uint32_t runs) { return stages_[stage].free + runs * problem_.forward; };
      while (count + 1 < problem_.micro_batches && problem_.has_room(count + 1.0) &&
             (rules_.waits_for_none ? end(count) < ready : end(count + 1) <= ready))
        ++count;
      ready = std::max(ready, end(count)) + problem_.backward_input + problem_.transfer;
    }
    for (std::uint32_t stage = 1; stage < problem_.stages; ++stage)
      more[stage] = std::min(more[stage], std::max(more[stage - 1], 1U) - 1);
    for (std::uint32_t stage = 0; stage < problem_.stages; ++stage)
      for (std::uint32_t run = 0; run < more[stage]; ++run)
        if (!put_forward(stage)) return false;
    return put_backwards();
  }

  /// The stages that run forward in the next round.
  [[nodiscard]] std::vector<bool> forwards_of_round() const
  {
    std::vector<bool> goes(problem_.stages, false);
    const double longest = longest_idle();
    double ready = 0;        // time of the gradient of this round
    std::size_t behind = 0;  // forward runs of the next stage, with this round
    for (std::uint32_t stage = problem_.stages; stage-- > 0;) {
      const stage_state& it = stages_[stage];
      const bool is_last = stage + 1 == problem_.stages;
      const std::size_t done = it.forward_ends.size();
      const bool has_to = done == it.backward_ends.size() || (!is_last && done < behind);
      const bool could_skip = rules_.may_skip && !is_last && done >= behind + 2;
      goes[stage] = done < problem_.micro_batches &&
                    (has_to || (can_have_room(it) && !(could_skip && it.idle + wait_of(it, ready) <= longest)));
      behind = done + (goes[stage] ? 1 : 0);
      const double free = it.free + (goes[stage] ? problem_.forward : 0);
      ready = (is_last ? free : std::max(free, ready)) + problem_.backward_input + problem_.transfer;
    }
    return goes;
  }
  [[nodiscard]] bool can_have_room(const stage_state& it) const
  {
    return problem_.has_room(it.saved - problem_.kept * static_cast<double>(it.backward_ends.size() - it.weights));
  }
  /// The idle time until `ready`, without the time that gradients of weights fill.
  [[nodiscard]] double wait_of(const stage_state& it, double ready) const
  {
    const double fill = problem_.backward_weight * static_cast<double>(it.backward_ends.size() - it.weights);
    return std::max(0.0, ready - it.free - fill);
  }

  const order_problem& problem_;
  filling_rules rules_;
  std::vector<stage_state> stages_;
  pass_orders orders_;
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
