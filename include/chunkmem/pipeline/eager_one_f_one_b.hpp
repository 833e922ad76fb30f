// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/in_flight_order.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace pipeline {

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

}  // namespace pipeline

}  // namespace chunkmem::inline v0
