// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/pass_orders.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// How a stage chooses its next run.
///
///     const greedy_rules rules{.turn = greedy_rules::order::alternate, .slope = 2};
struct greedy_rules {
  enum class order : std::uint8_t { backward_first, forward_first, alternate };

  order turn = order::backward_first;  ///< where a forward and a backward run can begin
  double wait = 0;   ///< a forward run is left where a backward run can begin within this part of its time
  double gap = 0;    ///< a gradient of weights fills a gap that is at least this part of its time
  double slope = 0;  ///< forward runs without a backward run: at most slope (d - s) + offset; 0: no limit
  std::int32_t offset = 0;
  bool deep_forward = false;  ///< of two forward runs the one of the later part
};

/// Orders of one batch, made in time: each stage takes the run that its rules prefer of those that can begin.
///
/// The idea is the heuristic of zero bubble pipelines (Qi et al., 2023, arXiv 2401.10241): gradients of weights fill
/// gaps, and make room where the limit is reached. The rules are our own.
///
///     const pass_orders orders = greedy_orders{problem}.make({.slope = 1});
///
/// Cost: O(runs times stages).
class greedy_orders {
 public:
  /// @param problem   outlives this
  explicit greedy_orders(const order_problem& problem) : problem_{problem} {}

  /// No stage has a run where these rules lead to no end.
  [[nodiscard]] pass_orders make(const greedy_rules& rules)
  {
    begin();
    for (;;) {
      std::uint32_t stage = problem_.stages;
      for (std::uint32_t it = 0; it < problem_.stages; ++it)
        if (!is_done(it) && stages_[it].wakes < never &&
            (stage == problem_.stages || stages_[it].wakes < stages_[stage].wakes))
          stage = it;
      if (stage == problem_.stages) break;
      step(stage, rules);
    }
    for (std::uint32_t stage = 0; stage < problem_.stages; ++stage)
      if (!is_done(stage)) return pass_orders(problem_.stages);
    return orders_;
  }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();
  using enum operation_kind;

  struct stage_state {
    std::vector<std::uint32_t> parts;
    double wakes = 0;
    double saved = 0;
    bool waits = false;
    bool came_back = false;      // its last run was a backward run
    std::uint32_t forwards = 0;  // of all its parts
    std::uint32_t backwards = 0;
    std::uint32_t weights = 0;
  };
  /// The next run of a kind, and when its input is there.
  struct candidate {
    std::uint32_t part = 0;
    double ready = never;
  };

  void begin()
  {
    const std::size_t cells = std::size_t{problem_.part_count()} * problem_.micro_batches;
    inputs_.assign(cells, never);
    std::fill_n(inputs_.begin(), problem_.micro_batches, 0.0);
    gradients_.assign(cells, never);
    forwards_.assign(problem_.part_count(), 0);
    backwards_.assign(problem_.part_count(), 0);
    stages_.assign(problem_.stages, {});
    for (std::uint32_t part = 0; part < problem_.part_count(); ++part)
      stages_[problem_.owners[part]].parts.push_back(part);
    orders_.assign(problem_.stages, {});
  }

  [[nodiscard]] bool is_done(std::uint32_t stage) const
  {
    return stages_[stage].weights == stages_[stage].parts.size() * problem_.micro_batches;
  }

  void step(std::uint32_t stage, const greedy_rules& rules)
  {
    stage_state& it = stages_[stage];
    const double now = it.wakes;
    const candidate back = next_backward(it, now);
    bool wants_room = false;
    const candidate go = may_run_ahead(stage, rules) ? next_forward(it, now, rules, wants_room) : candidate{};
    const bool has_weights = it.weights < it.backwards;
    const double soon = std::min(back.ready, go.ready);
    if (back.ready <= now) {
      if (go.ready <= now && forward_first(it, rules)) return take(stage, forward, go.part);
      return take(stage, backward_input, back.part);
    }
    if (go.ready <= now) {
      if (back.ready >= now + rules.wait * problem_.forward) return take(stage, forward, go.part);
      if (has_weights && now + problem_.backward_weight <= back.ready) return take(stage, backward_weight, 0);
      return wait_until(it, back.ready);
    }
    const bool is_wide = soon == never || soon - now >= std::min(rules.gap, 1.0) * problem_.backward_weight;
    if (has_weights && (wants_room || is_wide)) return take(stage, backward_weight, 0);
    wait_until(it, soon);
  }

  /// The parts of a stage that a micro-batch passes later: room for one run of each has to stay, or no run could go on.
  [[nodiscard]] static double deeper_parts(const stage_state& it, std::uint32_t part)
  {
    return static_cast<double>(it.parts.end() - std::ranges::upper_bound(it.parts, part));
  }
  [[nodiscard]] static bool forward_first(const stage_state& it, const greedy_rules& rules)
  {
    return rules.turn == greedy_rules::order::forward_first ||
           (rules.turn == greedy_rules::order::alternate && it.came_back);
  }
  [[nodiscard]] bool may_run_ahead(std::uint32_t stage, const greedy_rules& rules) const
  {
    const double most = std::floor(rules.slope * (problem_.stages - stage)) + rules.offset;
    return rules.slope == 0 || stages_[stage].forwards - stages_[stage].backwards < std::max(1.0, most);
  }
  /// @param wants_room   becomes true where a forward run could begin if less were saved
  [[nodiscard]] candidate next_forward(const stage_state& it, double now, const greedy_rules& rules,
                                       bool& wants_room) const
  {
    candidate best;
    for (const std::uint32_t part : it.parts) {
      if (forwards_[part] == problem_.micro_batches) continue;
      const double ready = std::max(now, inputs_[cell(part, forwards_[part])]);
      if (!problem_.has_room(it.saved + deeper_parts(it, part))) {
        wants_room = wants_room || ready <= now;
        continue;
      }
      if (ready < best.ready || (ready < never && ready == best.ready && rules.deep_forward)) best = {part, ready};
    }
    return best;
  }
  [[nodiscard]] candidate next_backward(const stage_state& it, double now) const
  {
    candidate best;
    for (const std::uint32_t part : it.parts) {
      if (backwards_[part] == forwards_[part]) continue;
      const double ready = std::max(now, gradients_[cell(part, backwards_[part])]);
      if (ready < best.ready) best = {part, ready};
    }
    return best;
  }

  /// Without a time, until another stage sends something.
  static void wait_until(stage_state& it, double seconds)
  {
    it.waits = true;
    it.wakes = seconds;
  }

  void take(std::uint32_t stage, operation_kind kind, std::uint32_t part)
  {
    stage_state& it = stages_[stage];
    const double now = it.wakes;
    const double end = now + problem_.seconds_of(kind);
    orders_[stage].push_back({kind, part});
    it.waits = false;
    it.wakes = end;
    it.saved += problem_.change_of(kind);
    it.came_back = kind == backward_input;
    if (kind == backward_weight) {
      ++it.weights;
    } else if (kind == forward) {
      ++it.forwards;
      const std::uint32_t micro_batch = forwards_[part]++;
      if (part + 1 == problem_.part_count()) gradients_[cell(part, micro_batch)] = end;
      if (part + 1 < problem_.part_count()) pass_on(stage, inputs_, part + 1, micro_batch, now, end);
    } else {
      ++it.backwards;
      const std::uint32_t micro_batch = backwards_[part]++;
      if (part > 0) pass_on(stage, gradients_, part - 1, micro_batch, now, end);
    }
  }
  void pass_on(std::uint32_t stage, std::vector<double>& there, std::uint32_t part, std::uint32_t micro_batch,
               double now, double end)
  {
    const std::uint32_t other = problem_.owners[part];
    there[cell(part, micro_batch)] = end + (other == stage ? 0 : problem_.transfer);
    if (other != stage && stages_[other].waits) stages_[other].wakes = std::min(stages_[other].wakes, now);
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
  std::vector<stage_state> stages_;
  pass_orders orders_;
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
