// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_budget.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// A chain with its sizes in slots, for dynamic programs over memory. Sizes are rounded up, the budget down: a plan
/// that fits in slots fits in bytes.
///
///     const chain_slots slots{chain, budget, 500};
///     const bool fits = slots.saved[0] <= slots.budget;
///
/// By stage, which is the index of a block. `input` and `gradient` have an entry more: the last entry of `input` is the
/// chain's output; `gradient[i]` is that of the input of stage i.
struct chain_slots {
  std::uint32_t budget = 0;
  double bytes_per_slot = 1;
  std::vector<std::uint32_t> input;
  std::vector<std::uint32_t> gradient;
  std::vector<std::uint32_t> saved;  ///< by the saving run of a stage, its output included
  std::vector<std::uint32_t> forward_working;
  std::vector<std::uint32_t> passing_working;
  std::vector<std::uint32_t> backward_working;
  std::vector<double> forward;  ///< of the first run [s]
  std::vector<double> again;    ///< of each other forward run [s]
  std::vector<double> backward;

  chain_slots() = default;
  static constexpr std::uint32_t most_slots = 1U << 20;  ///< a table of more has no room on any machine

  /// @param most   slots that the budget is divided into, at most
  /// @throws config_error   0 slots, or more than `most_slots`
  chain_slots(const layer_chain& chain, const activation_budget& budgeted, std::uint32_t most)
  {
    if (most == 0 || most > most_slots)
      throw config_error{error_text{} << "chunkmem: a budget of activations cannot be divided into " << most
                                      << " slots (give 1 to " << most_slots
                                      << ", or 0 to a planner for its own number)"};
    const std::uint64_t device = budgeted.device.count();
    const std::uint64_t slot = std::max<std::uint64_t>(1, device / most + (device % most > 0 ? 1 : 0));
    budget = static_cast<std::uint32_t>(device / slot);
    bytes_per_slot = static_cast<double>(slot);
    const auto in_slots = [&](std::uint64_t size) {
      const std::uint64_t count = size / slot + (size % slot > 0 ? 1 : 0);
      return static_cast<std::uint32_t>(std::min<std::uint64_t>(count, budget + std::uint64_t{1}));
    };
    const auto of = [&](bytes size) { return in_slots(budgeted.in_frames(size)); };
    gradient.push_back(0);
    for (std::uint32_t stage = 0; stage < chain.size(); ++stage) {
      const chain_block& block = chain.blocks[stage];
      input.push_back(of(chain.input_of(stage)));
      gradient.push_back(of(block.gradient));
      saved.push_back(in_slots(budgeted.in_frames(block.inner()) + budgeted.in_frames(block.boundary)));
      forward_working.push_back(of(block.forward_working) + of(block.carried));
      passing_working.push_back(of(block.passing_working) + of(block.carried));
      backward_working.push_back(of(block.backward_working) + of(block.carried));
      forward.push_back(block.forward_seconds);
      again.push_back(block.again_seconds());
      backward.push_back(block.backward_seconds);
    }
    input.push_back(of(chain.blocks.back().boundary));
  }

  [[nodiscard]] std::uint32_t stages() const noexcept { return static_cast<std::uint32_t>(backward.size()); }
};

}  // namespace activation

}  // namespace chunkmem::inline v0
