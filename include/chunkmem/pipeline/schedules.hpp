// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

// Generators that need no search: gpipe, one_f_one_b, eager_one_f_one_b, interleaved, pipedream_2bw, zb_h1 and zb_h2.
// Searched schedules are in pipeline/zero_bubble.hpp.

namespace chunkmem::inline v0 {

namespace pipeline {

/// The order of one stage that owns the part of its own number: some forward runs ahead, then a backward run and a
/// forward run in turn, then the remaining backward runs.
///
///     in_flight_order order{.ahead = 3};
///     order.append(plan, stage, 0, plan.micro_batches);
struct in_flight_order {
  static constexpr std::uint32_t fused = UINT32_MAX;

  std::uint32_t ahead = 1;           ///< forward runs before the first backward run; at least 1
  std::uint32_t weight_lag = fused;  ///< delay of the gradients of the weights, in backward runs; `fused`:
                                     ///< each in one run with the gradient of the input
  bool updates_within = false;       ///< an update after the last run of each batch; else one after the last run of all
  std::uint32_t update_delay = 0;    ///< delay of an update within, in pairs of runs

  /// Appends the steps of the micro-batches from `begin` to `end` - 1. @pre begin < end, whole batches
  void append(schedule& plan, std::uint32_t stage, std::uint32_t begin, std::uint32_t end) const
  {
    using enum operation_kind;
    std::vector<operation>& steps = plan.stages[stage];
    const auto run = [&](operation_kind kind, std::uint32_t micro_batch) {
      steps.push_back({kind, stage, micro_batch, plan.version_of(micro_batch)});
    };
    const auto add_update = [&](std::uint32_t batch) {
      steps.push_back({operation_kind::update, stage, (batch + 1) * plan.micro_batches - 1, batch + 1});
    };
    std::uint32_t next_forward = begin;
    std::uint32_t next_weight = begin;
    std::uint32_t next_update = plan.batch_of(begin);
    while (next_forward < std::min(end, begin + ahead)) run(forward, next_forward++);
    for (std::uint32_t micro_batch = begin; micro_batch < end; ++micro_batch) {
      run(weight_lag == fused ? backward : backward_input, micro_batch);
      if (weight_lag != fused && micro_batch - begin >= weight_lag) run(backward_weight, next_weight++);
      if (updates_within && micro_batch + 1 == (next_update + 1) * plan.micro_batches + update_delay)
        add_update(next_update++);
      if (next_forward < end) run(forward, next_forward++);
    }
    if (weight_lag != fused)
      while (next_weight < end) run(backward_weight, next_weight++);
    while (next_update < plan.batch_of(end)) add_update(next_update++);
  }
};

/// A schedule in which every batch ends before the next one begins.
/// @param order_of   gives the order of a stage
template <class OrderOf>
[[nodiscard]] schedule flushed_schedule(std::string_view name, const pipeline_shape& shape, const OrderOf& order_of)
{
  schedule plan = empty_schedule(name, shape);
  for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
    const in_flight_order order = order_of(stage);
    for (std::uint32_t batch = 0; batch < shape.batches; ++batch)
      order.append(plan, stage, batch * shape.micro_batches, (batch + 1) * shape.micro_batches);
  }
  return plan;
}

/// All forward runs of a batch, then all backward runs.
///
/// Every stage saves the activations of all micro-batches: good for few of them, or with recomputation. A batch takes
/// (m + d - 1)(F + B + W) without transfer times. Backward runs are in the order of the micro-batches. Source: GPipe
/// (Huang et al., 2019, arXiv 1811.06965). Cost: O(steps).
///
///     const schedule plan = make_schedule(gpipe{}, {.stages = 4, .micro_batches = 8});
class gpipe {
 public:
  using policy_kind = pipeline_kind;
  static constexpr std::string_view name = "gpipe";

  [[nodiscard]] schedule orders(const pipeline_shape& shape) const
  {
    return flushed_schedule(name, shape, [&](std::uint32_t) { return in_flight_order{.ahead = shape.micro_batches}; });
  }
};

static_assert(schedule_generator<gpipe>);

/// A forward run for each backward run, once stage s has d - s forward runs ahead; each batch ends before the next one
/// begins.
///
/// As fast as `gpipe`, and stage s saves the activations of at most min(d - s, m) micro-batches.
/// Source: PipeDream-Flush (Narayanan et al., 2021, arXiv 2006.09503), Megatron-LM's 1F1B. Cost: O(steps).
///
///     const schedule plan = make_schedule(one_f_one_b{}, {.stages = 4, .micro_batches = 8});
class one_f_one_b {
 public:
  using policy_kind = pipeline_kind;
  static constexpr std::string_view name = "one_f_one_b";

  [[nodiscard]] schedule orders(const pipeline_shape& shape) const
  {
    return flushed_schedule(name, shape,
                            [&](std::uint32_t stage) { return in_flight_order{.ahead = shape.stages - stage}; });
  }
};

static_assert(schedule_generator<one_f_one_b>);

/// As `one_f_one_b` with 2(d - s) - 1 forward runs ahead: transfers between stages overlap with runs.
///
/// Good where a transfer takes a notable part of a run: `one_f_one_b` waits for a round trip once in d micro-batches,
/// this one only when a batch begins and ends. Stage s saves the activations of at most min(2(d - s) - 1, m)
/// micro-batches.
/// Source: the overlap-friendly schedule of Alpa's code (Zheng et al., 2022, arXiv 2201.12023). Cost: O(steps).
///
///     const schedule plan = make_schedule(eager_one_f_one_b{}, {.stages = 4, .micro_batches = 8});
class eager_one_f_one_b {
 public:
  using policy_kind = pipeline_kind;
  static constexpr std::string_view name = "eager_one_f_one_b";

  [[nodiscard]] schedule orders(const pipeline_shape& shape) const
  {
    return flushed_schedule(
        name, shape, [&](std::uint32_t stage) { return in_flight_order{.ahead = 2 * (shape.stages - stage) - 1}; });
  }
};

static_assert(schedule_generator<eager_one_f_one_b>);

/// 1F1B with several parts of the model on each stage: less idle time, more transfers.
///
/// Stage s owns the parts s, s + d, s + 2d and so on. Micro-batches pass in groups: all micro-batches of a group pass a
/// part before the group's first one passes the stage's next part. The idle time is that of `one_f_one_b` over
/// `parts`, and `parts` times as many bytes cross between stages.
/// Source: Megatron-LM (Narayanan et al., 2021, arXiv 2104.04473). Cost: O(steps).
///
///     const schedule plan = make_schedule(interleaved{.parts = 2}, {.stages = 4, .micro_batches = 8});
class interleaved {
 public:
  using policy_kind = pipeline_kind;
  static constexpr std::string_view name = "interleaved";

  std::uint32_t parts = 2;  ///< of a stage
  std::uint32_t group = 0;  ///< micro-batches; 0: as many as stages

  /// @throws config_error   no part, or a group that does not work: smaller than the number of stages, larger than a
  ///   batch, or with fewer micro-batches than stages left for the last group
  [[nodiscard]] schedule orders(const pipeline_shape& shape) const
  {
    const std::uint32_t size = group == 0 ? shape.stages : group;
    check(shape, size);
    schedule plan = empty_schedule(name, shape);
    for (std::uint32_t part = shape.stages; part < shape.stages * parts; ++part)
      plan.owners.push_back(part % shape.stages);
    const std::vector<turn> turns = turns_of(shape.micro_batches, size);
    for (std::uint32_t stage = 0; stage < shape.stages; ++stage) {
      const std::uint32_t ahead =
          std::min(2 * (shape.stages - 1 - stage) + (parts - 1) * size, static_cast<std::uint32_t>(turns.size()));
      for (std::uint32_t batch = 0; batch < shape.batches; ++batch) append(plan, stage, batch, turns, ahead);
    }
    return plan;
  }

 private:
  struct turn {
    std::uint32_t micro_batch = 0;  // within its batch
    std::uint32_t round = 0;        // index of the part within the stage
  };

  void check(const pipeline_shape& shape, std::uint32_t size) const
  {
    if (parts == 0) throw config_error{"a stage has no part of the model (give parts 1 or more)"};
    if (std::uint64_t{parts} * shape.stages > UINT16_MAX)
      throw config_error{"a pipeline has more than 65,535 parts (give fewer)"};
    if (size < shape.stages || size > shape.micro_batches)
      throw config_error{error_text{} << "chunkmem: micro-batches cannot pass in groups of " << size
                                      << ": a group has at least as many as there are stages (" << shape.stages
                                      << "), and at most as many as a batch (" << shape.micro_batches << ")"};
    const std::uint32_t rest = shape.micro_batches % size;
    if (rest != 0 && rest < shape.stages)
      throw config_error{error_text{} << "chunkmem: " << shape.micro_batches << " micro-batches in groups of " << size
                                      << " leave a partial group of " << rest << ", fewer than the " << shape.stages
                                      << " stages (change the group or the batch)"};
  }

  [[nodiscard]] std::vector<turn> turns_of(std::uint32_t micro_batches, std::uint32_t size) const
  {
    std::vector<turn> turns;
    for (std::uint32_t first = 0; first < micro_batches; first += size)
      for (std::uint32_t round = 0; round < parts; ++round)
        for (std::uint32_t next = first; next < std::min(first + size, micro_batches); ++next)
          turns.push_back({next, round});
    return turns;
  }

  void append(schedule& plan, std::uint32_t stage, std::uint32_t batch, const std::vector<turn>& turns,
              std::uint32_t ahead) const
  {
    const std::uint32_t stages = plan.stage_count();
    std::vector<operation>& steps = plan.stages[stage];
    const auto run = [&](operation_kind kind, const turn& it, std::uint32_t round) {
      const std::uint32_t micro_batch = batch * plan.micro_batches + it.micro_batch;
      steps.push_back({kind, round * stages + stage, micro_batch, plan.version_of(micro_batch)});
    };
    for (std::size_t index = 0; index < turns.size() + ahead; ++index) {
      if (index < turns.size()) run(operation_kind::forward, turns[index], turns[index].round);
      if (index < ahead) continue;
      const turn& back = turns[index - ahead];
      run(operation_kind::backward, back, parts - 1 - back.round);
    }
    for (std::uint32_t round = 0; round < parts; ++round)
      steps.push_back(
          {operation_kind::update, round * stages + stage, (batch + 1) * plan.micro_batches - 1, batch + 1});
  }
};

static_assert(schedule_generator<interleaved>);

/// The fewest versions of the weights with which a pipeline never has to empty: 1 + ceil((d - 1) / m). @pre m > 0
[[nodiscard]] constexpr std::uint32_t fewest_versions(std::uint32_t stages, std::uint32_t micro_batches) noexcept
{
  return stages == 0 ? 1 : 1 + (stages - 1 + micro_batches - 1) / micro_batches;
}

/// Pairs of runs of a stage between the last backward run of a batch and the first forward run that reads the version
/// made by the batch: (K - 1) m - (d - 1 - s). An overlapping update of at most this time costs no time, if the stage
/// has two sets of gradients. @pre K versions are enough
[[nodiscard]] constexpr std::uint32_t update_slack(std::uint32_t stages, std::uint32_t micro_batches,
                                                   std::uint32_t versions, std::uint32_t stage) noexcept
{
  const std::uint64_t pairs = std::uint64_t{versions - 1} * micro_batches - (stages - 1 - stage);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(pairs, UINT32_MAX));
}

/// `one_f_one_b` that never empties between batches, with K versions of the weights.
///
/// Batch t reads version max(0, t - (K - 1)), so its gradients come K - 1 updates late: the bits are those of delayed
/// SGD. T batches take (T m + d - 1)(F + B + W) without transfer times. With two versions this is PipeDream-2BW; with
/// one micro-batch in a batch and d versions it is PipeDream with vertical sync.
/// Source: PipeDream-2BW (Narayanan et al., 2021, arXiv 2006.09503). Cost: O(steps).
///
///     const pipeline_shape shape{.stages = 4, .micro_batches = 8, .batches = 10};
///     const schedule plan = make_schedule(pipedream_2bw{.versions = 2}, shape);
class pipedream_2bw {
 public:
  using policy_kind = pipeline_kind;
  static constexpr std::string_view name = "pipedream_2bw";

  std::uint32_t versions = 2;      ///< of the weights; at least fewest_versions(d, m)
  std::uint32_t update_delay = 0;  ///< pairs of runs between the last backward run of a batch and its update; at most
                                   ///< update_slack. Above 0, a stage needs two sets of gradients.
  bool for_all_stages = false;  ///< an update needs gradients of all stages, such as a norm: stage s has its update s
                                ///< pairs later than stage 0, so that no stage waits. Needs two sets of gradients.
  std::uint32_t gradient_sets = 0;  ///< two let gradients of the next batch accumulate during an update; 0: the fewest

  /// @throws config_error   too few versions, or a delay above the slack of a stage
  [[nodiscard]] schedule orders(const pipeline_shape& shape) const
  {
    const std::uint32_t needed = fewest_versions(shape.stages, shape.micro_batches);
    if (versions < needed)
      throw config_error{error_text{} << "chunkmem: " << shape.stages << " stages with " << shape.micro_batches
                                      << " micro-batches in a batch need " << needed << " versions of the weights, not "
                                      << versions << " (add versions, or micro-batches)"};
    const std::uint32_t slack = update_slack(shape.stages, shape.micro_batches, versions, 0);
    if (update_delay > std::min(slack, shape.micro_batches))
      throw config_error{error_text{} << "chunkmem: an update cannot come " << update_delay
                                      << " pairs of runs late: stage 0 has " << slack << " pairs, and a batch has "
                                      << shape.micro_batches << " (choose a smaller delay)"};
    const std::uint64_t latest = std::uint64_t{update_delay} + (for_all_stages ? shape.stages - 1 : 0);
    if (for_all_stages && latest >= shape.micro_batches)
      throw config_error{error_text{} << "chunkmem: updates for all stages come up to " << latest
                                      << " pairs of runs late, and the next batch ends after " << shape.micro_batches
                                      << " (add micro-batches)"};
    schedule plan = empty_schedule(name, shape);
    plan.versions = versions;
    plan.gradient_sets = std::max(gradient_sets, latest == 0 ? 1U : 2U);
    for (std::uint32_t stage = 0; stage < shape.stages; ++stage)
      in_flight_order{.ahead = shape.stages - stage,
                      .updates_within = true,
                      .update_delay = update_delay + (for_all_stages ? stage : 0)}
          .append(plan, stage, 0, plan.all_micro_batches());
    return plan;
  }
};

static_assert(schedule_generator<pipedream_2bw>);

/// The name before 0.2.
using no_flush [[deprecated("use pipedream_2bw")]] = pipedream_2bw;

/// As `one_f_one_b`, with separate runs for the gradients of the weights, which fill gaps.
///
/// The idle time of a batch is (d - 1)(F + B - W) where W is at most F and B, and m is at least 2d. Stage s saves at
/// most d - s micro-batches, as `one_f_one_b`, and the inputs of weight gradients of up to s micro-batches. Source:
/// ZB-H1 of zero bubble pipelines (Qi et al., 2023, arXiv 2401.10241). Cost: O(steps).
///
///     const schedule plan = make_schedule(zb_h1{}, {.stages = 4, .micro_batches = 8});
class zb_h1 {
 public:
  using policy_kind = pipeline_kind;
  static constexpr std::string_view name = "zb_h1";

  [[nodiscard]] schedule orders(const pipeline_shape& shape) const
  {
    return flushed_schedule(name, shape, [&](std::uint32_t stage) {
      return in_flight_order{.ahead = shape.stages - stage, .weight_lag = stage};
    });
  }
};

static_assert(schedule_generator<zb_h1>);

/// As `zb_h1` with about twice the forward runs ahead, and less idle time.
///
/// The idle time of a batch is (d - 1)(F + B - 2W) where 2W is at most F + B, and m is at least 2d. Stage s saves at
/// most 2(d - s) - 1 micro-batches, and the inputs of weight gradients of up to 2s micro-batches. Source: ZB-H2 of zero
/// bubble pipelines (Qi et al., 2023, arXiv 2401.10241). Cost: O(steps).
///
///     const schedule plan = make_schedule(zb_h2{}, {.stages = 4, .micro_batches = 8});
class zb_h2 {
 public:
  using policy_kind = pipeline_kind;
  static constexpr std::string_view name = "zb_h2";

  [[nodiscard]] schedule orders(const pipeline_shape& shape) const
  {
    return flushed_schedule(name, shape, [&](std::uint32_t stage) {
      return in_flight_order{.ahead = 2 * (shape.stages - stage) - 1, .weight_lag = 2 * stage};
    });
  }
};

static_assert(schedule_generator<zb_h2>);

}  // namespace pipeline

}  // namespace chunkmem::inline v0
