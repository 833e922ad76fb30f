// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/pipeline/greedy_orders.hpp>
#include <chunkmem/pipeline/order_search.hpp>
#include <chunkmem/pipeline/pass_orders.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// Two parts on each stage, in the shape of a V: the parts go down the stages and come back.
///
/// Stage s owns the parts s and 2d - 1 - s. So the first and the last part share a stage, every stage saves equally
/// much, at most what `one_f_one_b` saves on its first stage, and where F = B = W no stage is idle. Twice as many bytes
/// cross between stages. Source: ZB-V of zero bubble pipelines (Qi et al., 2023, arXiv 2401.10241); rules and search
/// are our own. Cost: O((9 + trials) m d).
///
///     const schedule plan = make_schedule(zb_v{}, {.stages = 4, .micro_batches = 8});
class zb_v {
 public:
  using policy_kind = pipeline_kind;
  static constexpr std::string_view name = "zb_v";

  double limit = 1;   ///< of what a stage saves, counted in what it saves for d micro-batches
  double kept = 0.5;  ///< what the gradients of weights read, as a part of all that a forward run saves; at most 1
  std::uint32_t trials = 20'000;  ///< of the search, where the rules leave idle time

  /// @throws config_error   a limit below one micro-batch, or no part from 0 to 1
  [[nodiscard]] schedule orders(const pipeline_shape& shape) const
  {
    if (!(kept >= 0 && kept <= 1))
      throw config_error{"what gradients of weights read is no part of what is saved (give kept from 0 to 1)"};
    if (!(limit * shape.stages >= 1))
      throw config_error{"a stage cannot save a single micro-batch (give a limit of at least 1 over the stages)"};
    schedule plan = empty_schedule(name, shape);
    for (std::uint32_t stage = shape.stages; stage-- > 0;) plan.owners.push_back(stage);
    const order_problem problem{.stages = shape.stages,
                                .micro_batches = shape.micro_batches,
                                .owners = plan.owners,
                                .forward = shape.seconds.forward / 2,
                                .backward_input = shape.seconds.backward_input / 2,
                                .backward_weight = shape.seconds.backward_weight / 2,
                                .transfer = shape.seconds.transfer,
                                .kept = kept,
                                .limit = 2 * limit * shape.stages};
    const pass_orders found = order_search{problem}.best(rules(), trials);
    for (std::uint32_t batch = 0; batch < shape.batches; ++batch) append_orders(plan, found, batch);
    return plan;
  }

 private:
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

}  // namespace pipeline

}  // namespace chunkmem::inline v0
