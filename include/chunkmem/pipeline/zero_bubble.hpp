// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/greedy_orders.hpp>
#include <chunkmem/pipeline/order_search.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// Divided backward runs in the order that a search finds, under a limit of what a stage saves.
///
/// The search reads the times of the shape. A limit of 1 is ZB-1p: no stage saves more than the first stage of
/// `one_f_one_b` does. A limit of 2 is ZB-2p: little idle time is left. Good where `zb_h1` and `zb_h2` idle because
/// F, B and W differ. Source: zero bubble pipelines (Qi et al., 2023, arXiv 2401.10241); rules and search are our own.
/// Cost: O((1,701 d + trials) m d).
///
///     const schedule plan = make_schedule(zero_bubble{.limit = 2, .kept = 0.37},
///                                         {.stages = 8, .micro_batches = 32, .seconds = measured});
class zero_bubble {
 public:
  using policy_kind = pipeline_kind;
  static constexpr std::string_view name = "zero_bubble";

  double limit = 2;   ///< of what a stage saves, counted in what it saves for d micro-batches
  double kept = 0.5;  ///< what the gradients of weights read, as a part of all that a forward run saves; at most 1
  std::uint32_t trials = 50'000;  ///< of the search

  /// @throws config_error   a limit below one micro-batch, or no part from 0 to 1
  [[nodiscard]] schedule orders(const pipeline_shape& shape) const
  {
    return searched_schedule(empty_schedule(name, shape), shape, limit, kept, rules(), trials);
  }

 private:
  [[nodiscard]] static std::vector<greedy_rules> rules()
  {
    using enum greedy_rules::order;
    std::vector<greedy_rules> all;
    for (const auto turn : {backward_first, forward_first, alternate})
      for (const double wait : {0.0, 0.75, 1.0})
        for (const double gap : {0.0, 0.75, 1.0})
          for (int slope = 4; slope <= 12; ++slope)
            for (int offset = -3; offset <= 3; ++offset)
              all.push_back({.turn = turn, .wait = wait, .gap = gap, .slope = slope / 4.0, .offset = offset});
    return all;
  }
};

static_assert(schedule_generator<zero_bubble>);

}  // namespace pipeline

}  // namespace chunkmem::inline v0
