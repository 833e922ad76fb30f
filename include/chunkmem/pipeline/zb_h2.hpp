// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/in_flight_order.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace pipeline {

/// As `zb_h1` with about twice the forward runs ahead, and less idle time.
///
/// The idle time of a batch is (d - 1)(F + B - 2W) where 2W is at most F + B, and m is at least 2d. Stage s saves at
/// most 2(d - s) - 1 micro-batches, and up to 2s of what the gradients of the weights read. Source: ZB-H2 of zero
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
