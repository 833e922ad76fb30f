// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/pipeline/in_flight_order.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>

#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace pipeline {

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

}  // namespace pipeline

}  // namespace chunkmem::inline v0
