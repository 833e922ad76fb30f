// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/in_flight_order.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace pipeline {

/// As `one_f_one_b`, with the gradients of the weights in runs of their own, which fill gaps.
///
/// The idle time of a batch is (d - 1)(F + B - W) where W is at most F and B, and m is at least 2d. Stage s saves at
/// most d - s micro-batches, as `one_f_one_b`, and up to s micro-batches of what the gradients of the weights read.
/// Source: ZB-H1 of zero bubble pipelines (Qi et al., 2023, arXiv 2401.10241). Cost: O(steps).
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

}  // namespace pipeline

}  // namespace chunkmem::inline v0
