// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels.hpp"

#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <span>
#include <string_view>

namespace plain_loops {

inline constexpr chunkmem::group_id decaying{1};  ///< matrices and tables; gains and biases are in group 0

/// The trainer's own AdamW as an optimizer kernel: two lists, and the loop from kernels.cpp over the runs that a step
/// passes to it.
class adamw {
 public:
  static constexpr std::string_view name = "plain_loops_adamw";

  explicit adamw(float weight_decay) : weight_decay_{weight_decay} {}

  [[nodiscard]] std::span<const chunkmem::list_spec> lists() const noexcept
  {
    static constexpr chunkmem::list_spec specs[] = {{"adamw/momentum"}, {"adamw/variance"}};
    return specs;
  }

  /// Computed once for each tensor, not for each run of its numbers.
  [[nodiscard]] auto prepared(const chunkmem::optimizer::step_settings& settings) const noexcept
  {
    const float decay = settings.group == decaying ? weight_decay_ : 0.0F;
    return [factors = adamw_prepare(settings.learning_rate, decay, settings.number)](
               const chunkmem::optimizer::update_spans& spans) noexcept {
      adamw_update(spans.parameter.data(), spans.gradient.data(), spans.lists[0].data(), spans.lists[1].data(),
                   static_cast<int>(spans.parameter.size()), factors);
    };
  }
  void update(const chunkmem::optimizer::update_spans& spans,
              const chunkmem::optimizer::step_settings& settings) const noexcept
  {
    prepared(settings)(spans);
  }

  chunkmem::optimizer::step_progress progress;

 private:
  float weight_decay_;
};

static_assert(chunkmem::optimizer_kernel<adamw>);

}  // namespace plain_loops
