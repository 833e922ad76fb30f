// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/in_flight_order.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace pipeline {

/// All forward runs of a batch, then all backward runs.
///
/// Every stage saves the activations of all micro-batches: good for few of them, or with recomputing. A batch takes
/// (m + d - 1)(F + B + W) without transfer times. Backward runs come in the order of the micro-batches here.
/// Source: GPipe (Huang et al., 2019, arXiv 1811.06965). Cost: O(steps).
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

}  // namespace pipeline

}  // namespace chunkmem::inline v0
