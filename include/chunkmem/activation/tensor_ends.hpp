// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_budget.hpp>
#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/chain_rows.hpp>
#include <chunkmem/activation/layer_chain.hpp>

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// The tensors that no later step of a plan reads. The executor of the plan drops these tensors after the step.
///
/// A passing run is followed by the end of the bytes that it would have saved, since its callback may have written
/// them. Gradients are not among the tensors. `after` does not allocate. Cost of `read`: O(steps).
///
/// Use:
///
///     tensor_ends ends;
///     ends.read(plan, chain);
///     for (const tensor_ends::end& each : ends.after(step)) drop(each.block, each.part);
class tensor_ends {
 public:
  struct end {
    std::uint32_t step = 0;
    std::uint32_t block = 0;
    tensor_part part = tensor_part::output;
  };

  /// @pre expect_plan_fits(plan, chain.size()) does not throw
  void read(const activation_plan& plan, const layer_chain& chain)
  {
    const activation_budget boundless{.device = bytes{std::numeric_limits<std::uint64_t>::max()}};
    chain_rows rows{chain, boundless};
    rows.read(plan);
    ends_.clear();
    for (const tensor_life& life : rows.tensors())
      if (life.block != tensor_life::never && life.part != tensor_part::gradient)
        ends_.push_back({life.last, life.block, life.part});
    for (std::uint32_t step = 0; step < plan.steps.size(); ++step)
      if (plan.steps[step].run == chain_run::passing)
        ends_.push_back({step, plan.steps[step].block, tensor_part::inner});
    std::ranges::stable_sort(ends_, {}, &end::step);
    first_.assign(plan.steps.size() + 1, 0);
    for (const end& each : ends_) ++first_[each.step + 1];
    for (std::size_t step = 1; step < first_.size(); ++step) first_[step] += first_[step - 1];
  }
  [[nodiscard]] std::span<const end> after(std::uint32_t step) const noexcept
  {
    return std::span{ends_}.subspan(first_[step], first_[step + 1] - first_[step]);
  }

 private:
  std::vector<end> ends_;             // by step
  std::vector<std::uint32_t> first_;  // by step: index of its first end
};

}  // namespace activation

}  // namespace chunkmem::inline v0
