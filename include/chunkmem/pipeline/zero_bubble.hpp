// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/filled_orders.hpp>
#include <chunkmem/pipeline/order_search.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// Orders in which every micro-batch repeats the runs of the one before, six slots later, on stages with two parts in a
/// V shape.
///
///     const repeated_pattern pattern{slots, 32};
///     const pass_orders orders = pattern.orders();
///
/// Gradients of weights fill free slots. Then both ends are settled: runs before the first gradient reaches stage 0,
/// and runs after its last forward run, move to the earliest slot that is after their input and lets no stage save
/// more. At last, empty slots are removed. Source: stable patterns of V-Half and V-Min (Qi et al., 2024, arXiv
/// 2405.15362). Cost: each run of both ends tries free slots up to its own, and looks at all slots of its stage for
/// each.
class repeated_pattern {
 public:
  /// Slots of the first micro-batch: forward through the first part of a stage and through its second one, back through
  /// the second and the first.
  using slots = std::array<std::uint32_t, 4>;
  static constexpr std::uint32_t period = 6;

  /// @param first   by stage
  repeated_pattern(std::span<const slots> first, std::uint32_t micro_batches) : stages_(first.size())
  {
    for (std::size_t it = 0; it < first.size(); ++it) {
      stages_[it].slot_of.resize(kinds);
      for (std::uint32_t kind = 0; kind < weight; ++kind)
        for (std::uint32_t batch = 0; batch < micro_batches; ++batch)
          put(stages_[it], {kind, batch}, first[it][kind] + period * batch);
      place_weights(stages_[it]);
    }
    repeated_ = orders();
    most_saved_ = most_saved();
    settle(true);
    squeeze();
    for (stage& it : stages_) remove_weights(it);
    most_saved_ = most_saved();
    settle(false);
    for (stage& it : stages_) place_weights(it);
    squeeze();
  }

  /// The orders before both ends were settled.
  [[nodiscard]] const pass_orders& repeated() const noexcept { return repeated_; }
  [[nodiscard]] pass_orders orders() const
  {
    using enum operation_kind;
    pass_orders all(stages_.size());
    const auto parts = static_cast<std::uint32_t>(2 * stages_.size());
    for (std::uint32_t it = 0; it < stages_.size(); ++it)
      for (const std::uint8_t kind : stages_[it].row) {
        const std::uint32_t part = kind == 0 || kind == 3 ? it : parts - 1 - it;
        if (kind < 2) all[it].push_back({forward, part});
        if (kind == 2 || kind == 3) all[it].push_back({backward_input, part});
        if (kind == weight) all[it].push_back({backward_weight});
      }
    return all;
  }

 private:
  static constexpr std::uint8_t weight = 4;  // after the kinds of `slots`
  static constexpr std::uint8_t kinds = 5;
  static constexpr std::uint8_t idle = 5;

  struct run {
    std::uint32_t kind = 0;
    std::uint32_t micro_batch = 0;  // of gradients of weights: their number
  };
  struct stage {
    std::vector<std::uint8_t> row;                    // by slot: the kind of its run
    std::vector<std::vector<std::uint32_t>> slot_of;  // by kind and micro-batch
  };

  static void put(stage& it, const run& which, std::uint32_t slot)
  {
    if (it.row.size() <= slot) it.row.resize(slot + std::size_t{1}, idle);
    it.row[slot] = static_cast<std::uint8_t>(which.kind);
    std::vector<std::uint32_t>& of_kind = it.slot_of[which.kind];
    if (of_kind.size() <= which.micro_batch) of_kind.resize(which.micro_batch + std::size_t{1});
    of_kind[which.micro_batch] = slot;
  }
  [[nodiscard]] static bool is_free(const stage& it, std::uint32_t slot)
  {
    return slot >= it.row.size() || it.row[slot] == idle;
  }

  /// Places each in the first free slot after its gradient of an input.
  static void place_weights(stage& it)
  {
    std::uint32_t waiting = 0;
    std::uint32_t number = 0;
    for (std::uint32_t slot = 0; slot < it.row.size() || waiting > 0; ++slot) {
      if (!is_free(it, slot)) {
        waiting += it.row[slot] == 2 || it.row[slot] == 3 ? 1U : 0U;
      } else if (waiting > 0) {
        put(it, {weight, number++}, slot);
        --waiting;
      }
    }
  }
  static void remove_weights(stage& it)
  {
    std::ranges::replace(it.row, weight, idle);
    it.slot_of[weight].clear();
  }

  /// The most parts with activations on a stage. Gradients of weights without slots take free ones.
  [[nodiscard]] static std::uint32_t saved(const stage& it)
  {
    const bool has_weights = !it.slot_of[weight].empty();
    std::uint32_t now = 0, most = 0, waiting = 0;
    for (const std::uint8_t kind : it.row) {
      if (kind < 2) most = std::max(most, ++now);
      if (kind == 2 || kind == 3) ++waiting;
      const bool fills = kind == idle && !has_weights && waiting > 0;
      if (fills) --waiting;
      if (fills || kind == weight) --now;
    }
    return most;
  }
  [[nodiscard]] std::uint32_t most_saved() const
  {
    std::uint32_t most = 0;
    for (const stage& it : stages_) most = std::max(most, saved(it));
    return most;
  }

  /// The first slot after all runs that a run waits for.
  [[nodiscard]] std::uint32_t ready(std::uint32_t where, const run& it) const
  {
    const auto behind = [&](std::uint32_t other, std::uint32_t kind, std::uint32_t batch) {
      return stages_[other].slot_of[kind][batch] + 1;
    };
    std::uint32_t slot = it.micro_batch == 0 ? 0 : behind(where, it.kind, it.micro_batch - 1);
    if (it.kind == weight) return std::max(slot, behind_gradient(stages_[where], it.micro_batch));
    if (it.kind > 0) slot = std::max(slot, behind(where, it.kind - 1, it.micro_batch));
    const bool goes_down = it.kind % 2 == 0;
    if (goes_down && where > 0) slot = std::max(slot, behind(where - 1, it.kind, it.micro_batch));
    if (!goes_down && where + 1 < stages_.size()) slot = std::max(slot, behind(where + 1, it.kind, it.micro_batch));
    return slot;
  }
  /// The slot after the gradient of an input with this number on a stage.
  [[nodiscard]] static std::uint32_t behind_gradient(const stage& it, std::uint32_t number)
  {
    for (std::uint32_t slot = 0;; ++slot)
      if ((it.row[slot] == 2 || it.row[slot] == 3) && number-- == 0) return slot + 1;
  }

  /// All runs in the order of their slots: (slot, stage, kind, micro-batch).
  using event = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  [[nodiscard]] std::vector<event> events() const
  {
    std::vector<event> all;
    for (std::uint32_t where = 0; where < stages_.size(); ++where)
      for (std::uint32_t kind = 0; kind < kinds; ++kind)
        for (std::uint32_t batch = 0; batch < stages_[where].slot_of[kind].size(); ++batch)
          all.emplace_back(stages_[where].slot_of[kind][batch], where, kind, batch);
    std::ranges::sort(all);
    return all;
  }

  /// Moves runs of the ends to earlier slots. @param both   also those of the beginning
  void settle(bool both)
  {
    const std::uint32_t first_back = stages_[0].slot_of[3].front();
    const std::uint32_t last_forward = stages_[0].slot_of[0].back();
    for (const auto& [slot, where, kind, batch] : events()) {
      if (slot < first_back ? !both : slot <= last_forward) continue;
      stage& it = stages_[where];
      const run which{kind, batch};
      it.row[slot] = idle;
      for (std::uint32_t earlier = ready(where, which); earlier <= slot; ++earlier) {
        if (!is_free(it, earlier)) continue;
        put(it, which, earlier);
        if (earlier == slot || saved(it) <= most_saved_) break;
        it.row[earlier] = idle;
      }
    }
  }

  /// Moves every run as early as the order of its stage and its input allow.
  void squeeze()
  {
    const std::vector<event> all = events();
    for (stage& it : stages_) it.row.clear();
    for (const auto& [slot, where, kind, batch] : all) {
      stage& it = stages_[where];
      const run which{kind, batch};
      const auto end = static_cast<std::uint32_t>(it.row.size());
      put(it, which, kind == weight ? end : std::max(end, ready(where, which)));
    }
  }

  std::uint32_t most_saved_ = 0;
  pass_orders repeated_;
  std::vector<stage> stages_;
};

/// Two parts on each stage, in a V shape: the parts go down the stages and come back.
///
/// Stage s owns the parts s and 2d - 1 - s. So the first and the last part share a stage, and every stage saves equally
/// much, at most as much as the first stage of `one_f_one_b`. No stage is idle where F = B = W and m is at least 2d -
/// 1. Twice as many bytes cross between stages. With a `limit` of ((d + 2) / 2) / d and `kept = 1` it saves as much as
/// V-Half, with ((d + 4) / 3) / d as V-Min. Inner brackets are integer quotients. The search also begins with the
/// orders of both: see repeated_pattern. Source: ZB-V of zero bubble pipelines (Qi et al., 2023, arXiv 2401.10241),
/// V-Half and V-Min (Qi et al., 2024, arXiv 2405.15362); rules and search differ from the papers. Cost: O((9 d +
/// trials) m d), and that of two repeated_pattern.
///
///     const schedule plan = make_schedule(zb_v{}, {.stages = 4, .micro_batches = 8});
class zb_v {
 public:
  using policy_kind = pipeline_kind;
  static constexpr std::string_view name = "zb_v";

  double limit = 1;   ///< of what a stage saves, counted in what it saves for d micro-batches
  double kept = 0.5;  ///< what the gradients of weights read, as a part of all that a forward run saves; at most 1
  std::uint32_t trials = 20'000;   ///< of the search, where the rules leave idle time
  search_listener tell = nullptr;  ///< is called every 1,024 trials

  /// @throws config_error   a limit below one micro-batch, or no part from 0 to 1
  [[nodiscard]] schedule orders(const pipeline_shape& shape) const
  {
    schedule plan = empty_schedule(name, shape);
    for (std::uint32_t stage = shape.stages; stage-- > 0;) plan.owners.push_back(stage);
    const search_effort effort{.limit = limit, .kept = kept, .trials = trials, .tell = tell};
    const order_problem problem = problem_of(plan, shape, effort);
    return searched_schedule(std::move(plan), shape, problem, effort, rules(), patterns(shape));
  }

 private:
  /// Orders with the memory of V-Half and of V-Min.
  [[nodiscard]] static std::vector<pass_orders> patterns(const pipeline_shape& shape)
  {
    const std::uint32_t d = shape.stages;
    const std::uint32_t half = d % 2 == 0 ? 3 : 0;
    const std::uint32_t third = d % 3 == 0 ? 2 : 0;
    std::vector<repeated_pattern::slots> v_half;
    std::vector<repeated_pattern::slots> v_min;
    for (std::uint32_t i = 0; i < d; ++i) {
      v_half.push_back({2 * i, 3 * d - 2 - i, 3 * d + half - 1 + 2 * i, 6 * d + half - 2 - i});
      v_min.push_back({i, 2 * d - 1 - i, 2 * d + third + i, 4 * d + third - 1 - i});
    }
    const std::uint32_t m = shape.micro_batches;
    const repeated_pattern half_memory{v_half, m};
    const repeated_pattern least_memory{v_min, m};
    return {half_memory.orders(), half_memory.repeated(), least_memory.orders(), least_memory.repeated()};
  }
  [[nodiscard]] static std::vector<greedy_rules> rules()
  {
    using enum greedy_rules::order;
    std::vector<greedy_rules> all;
    for (const auto turn : {backward_first, forward_first, alternate})
      for (const double gap : {0.0, 0.5, 1.0}) all.push_back({.turn = turn, .gap = gap, .deep_forward = true});
    return all;
  }
};

static_assert(schedule_generator<zb_v>);

/// Divided backward runs in the order that a search finds, under a limit of saved bytes.
///
/// The search reads the times of the shape. A limit of 1 is ZB-1p: no stage saves more than the first stage of
/// `one_f_one_b` does. A limit of 2 is ZB-2p: little idle time is left. Good where `zb_h1` and `zb_h2` idle because
/// F, B and W differ. Source: zero bubble pipelines (Qi et al., 2023, arXiv 2401.10241): `filled_orders` are those of
/// its heuristic, greedy rules and annealing are additions. Cost: O((170 d + trials) m d).
///
///     const schedule plan = make_schedule(zero_bubble{.limit = 2, .kept = 0.37},
///                                         {.stages = 8, .micro_batches = 32, .seconds = measured});
class zero_bubble {
 public:
  using policy_kind = pipeline_kind;
  static constexpr std::string_view name = "zero_bubble";

  double limit = 2;   ///< of what a stage saves, counted in what it saves for d micro-batches
  double kept = 0.5;  ///< what the gradients of weights read, as a part of all that a forward run saves; at most 1
  std::uint32_t trials = 50'000;   ///< of the search
  search_listener tell = nullptr;  ///< is called every 1,024 trials

  /// @throws config_error   a limit below one micro-batch, or no part from 0 to 1
  [[nodiscard]] schedule orders(const pipeline_shape& shape) const
  {
    schedule plan = empty_schedule(name, shape);
    const search_effort effort{.limit = limit, .kept = kept, .trials = trials, .tell = tell};
    const order_problem problem = problem_of(plan, shape, effort);
    std::vector<pass_orders> known;
    filled_orders filled{problem};
    for (const filling_rules& it : filling_rules::all()) known.push_back(filled.make(it));
    return searched_schedule(std::move(plan), shape, problem, effort, rules(), known);
  }

 private:
  [[nodiscard]] static std::vector<greedy_rules> rules()
  {
    using enum greedy_rules::order;
    std::vector<greedy_rules> all;
    for (const auto turn : {backward_first, forward_first, alternate})
      for (const double gap : {0.0, 0.75, 1.0})
        for (int slope = 4; slope <= 12; ++slope)
          for (int offset = -1; offset <= 0; ++offset)
            all.push_back({.turn = turn, .gap = gap, .slope = slope / 4.0, .offset = offset});
    return all;
  }
};

static_assert(schedule_generator<zero_bubble>);

}  // namespace pipeline

}  // namespace chunkmem::inline v0
