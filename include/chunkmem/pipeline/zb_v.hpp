// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/greedy_orders.hpp>
#include <chunkmem/pipeline/order_search.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// Two parts on each stage, in the shape of a V: the parts go down the stages and come back.
///
/// Stage s owns the parts s and 2d - 1 - s. So the first and the last part share a stage, and every stage saves equally
/// much, at most what `one_f_one_b` saves on its first stage. No stage is idle where F = B = W and m is at least
/// 2d - 1. Twice as many bytes cross between stages.
/// Source: ZB-V of zero bubble pipelines (Qi et al., 2023, arXiv 2401.10241); rules and search are our own. Cost:
/// O((9 d + trials) m d).
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
    schedule plan = empty_schedule(name, shape);
    for (std::uint32_t stage = shape.stages; stage-- > 0;) plan.owners.push_back(stage);
    return searched_schedule(std::move(plan), shape, limit, kept, rules(), trials);
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
