// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// The fate of the bytes that a block saves between its forward and its backward run.
enum class block_action : std::uint8_t {
  keep,       ///< the bytes stay on the device
  swap,       ///< the bytes leave for the host and come back
  recompute,  ///< the bytes are dropped, and the block runs forward again
};

inline constexpr std::size_t block_action_count = 3;

[[nodiscard]] constexpr std::string_view name_of(block_action action) noexcept
{
  constexpr std::string_view names[block_action_count] = {"keep", "swap", "recompute"};
  return names[static_cast<std::size_t>(action)];
}

/// A run of one block.
enum class chain_run : std::uint8_t {
  saving,    ///< forward; all that backward needs is saved
  passing,   ///< forward; the output alone is made
  backward,  ///< after it the block's saved bytes are dead
};

/// One step of a plan.
///
///     for (const chain_step& step : plan.steps)
///       if (step.run == chain_run::saving) std::cout << step.block << '\n';
struct chain_step {
  chain_run run = chain_run::saving;
  std::uint32_t block = 0;

  [[nodiscard]] constexpr bool operator==(const chain_step&) const noexcept = default;
};

/// The costs of a plan, on virtual clocks.
///
///     if (!plan.costs.fits) std::cerr << plan.costs.missing.count() << " B are missing\n";
struct plan_costs {
  bool fits = false;
  bytes missing{};                ///< where the plan does not fit: bytes that the fullest step lacks
  double seconds = 0;             ///< of a step
  double unlimited_seconds = 0;   ///< of a step that has all memory
  double bound_seconds = 0;       ///< no plan is faster, see activation_bound
  double recomputed_seconds = 0;  ///< of forward runs after the first one
  bytes moved{};                  ///< both directions
  bytes device_peak{};            ///< in frames
  bytes host_peak{};              ///< in frames

  [[nodiscard]] bool operator==(const plan_costs&) const noexcept = default;
};

/// The order in which the blocks of a chain run, and the tensors that leave the device in between.
///
/// A tensor leaves at most once: after its last use before the first backward run. It comes back for its next use. A
/// tensor that no later step reads is dropped. The library finds both moments in the steps.
///
/// Every planner makes this type. `checkpointed` executes it.
///
///     const activation_plan plan = karma{}.plan(chain, budget);
///     std::cout << report_of(plan);
struct activation_plan {
  std::string planner;
  std::vector<chain_step> steps;
  std::vector<std::uint8_t> inner_leaves;  ///< by block: 1 if the saved bytes leave, the output aside
  std::vector<std::uint8_t> input_leaves;  ///< by block: 1 if its input leaves, which is the output of the block before
  plan_costs costs;
  /// The chain that it was made for, as chain_fingerprint tells; 0: steps by hand, of any chain with as many blocks.
  std::uint64_t chain = 0;

  [[nodiscard]] bool operator==(const activation_plan&) const = default;

  /// The fate of a block's saved bytes in this plan. Cost: O(steps).
  [[nodiscard]] block_action action_of(std::uint32_t block) const noexcept
  {
    const auto runs_forward = [&](const chain_step& step) {
      return step.block == block && step.run != chain_run::backward;
    };
    if (std::ranges::count_if(steps, runs_forward) > 1) return block_action::recompute;
    return inner_leaves[block] != 0 ? block_action::swap : block_action::keep;
  }
};

/// The steps of one action for each block: all blocks forward, then each block backward, after a second forward run
/// where its action says so. The input of a block that is recomputed stays on the device.
/// @pre actions has an entry for each block   @complexity O(blocks)
inline void set_actions(activation_plan& plan, const std::vector<block_action>& actions)
{
  const auto blocks = static_cast<std::uint32_t>(actions.size());
  plan.steps.clear();
  plan.inner_leaves.assign(blocks, 0);
  plan.input_leaves.assign(blocks, 0);
  for (std::uint32_t block = 0; block < blocks; ++block) {
    const bool is_again = actions[block] == block_action::recompute;
    const bool is_output_swapped = block > 0 && actions[block - 1] == block_action::swap;
    plan.steps.push_back({is_again ? chain_run::passing : chain_run::saving, block});
    plan.inner_leaves[block] = actions[block] == block_action::swap ? 1 : 0;
    plan.input_leaves[block] = is_output_swapped && !is_again ? 1 : 0;
  }
  for (std::uint32_t block = blocks; block-- > 0;) {
    if (actions[block] == block_action::recompute) plan.steps.push_back({chain_run::saving, block});
    plan.steps.push_back({chain_run::backward, block});
  }
}

/// Checks that a plan is one of this chain: each block runs backward once, in reverse; the input of each run was made
/// before.
/// @throws config_error   names the step and the block that break this   @complexity O(steps)
inline void expect_plan_fits(const activation_plan& plan, std::uint32_t blocks)
{
  const auto refuse = [](std::size_t step, std::uint32_t block, std::string_view why) {
    throw config_error{error_text{} << "chunkmem: a plan is not one of this chain: step " << step << ", block " << block
                                    << ": " << why << " (plan again with this chain)"};
  };
  if (plan.inner_leaves.size() != blocks || plan.input_leaves.size() != blocks)
    refuse(0, static_cast<std::uint32_t>(plan.inner_leaves.size()), "it has another number of blocks");
  std::vector<std::uint8_t> has_output(blocks, 0);
  std::vector<std::uint8_t> has_saved(blocks, 0);
  std::uint32_t backward = blocks;
  for (std::size_t index = 0; index < plan.steps.size(); ++index) {
    const auto [run, block] = plan.steps[index];
    if (block >= blocks) refuse(index, block, "there is no such block");
    if (run != chain_run::backward) {
      if (block >= backward) refuse(index, block, "it runs forward after its backward run");
      if (block > 0 && has_output[block - 1] == 0) refuse(index, block, "its input was never made");
      has_output[block] = 1;
      has_saved[block] = run == chain_run::saving ? 1 : 0;  // a run that passes leaves the output alone
      continue;
    }
    if (block + 1 != backward) refuse(index, block, "backward runs are not in reverse order");
    if (has_saved[block] == 0) refuse(index, block, "it runs backward, and its last run saved nothing");
    backward = block;
  }
  if (backward != 0) refuse(plan.steps.size(), backward - 1, "it never runs backward");
}

/// A number for the names, sizes and order of a chain's blocks, on which a plan rests. Times are left out: they are
/// measured, and differ from run to run. Two chains have one number by chance alone. Never 0.
///
///     if (plan.chain == chain_fingerprint(chain)) network.use(plan);
///
/// Source: the mixing of SplitMix (Steele, Lea and Flood 2014). Cost: O(bytes of names).
[[nodiscard]] inline std::uint64_t chain_fingerprint(const layer_chain& chain) noexcept
{
  std::uint64_t hash = 0;
  const auto add = [&hash](std::uint64_t value) {
    hash = (hash ^ value) + 0x9e3779b97f4a7c15U;
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9U;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebU;
    hash ^= hash >> 31;
  };
  add(chain.size());
  for (const chain_block& block : chain.blocks) {
    add(block.name.size());
    for (const char letter : block.name) add(static_cast<unsigned char>(letter));
    add(block.saved.count());
    add(block.boundary.count());
    add(block.reads_input ? 1 : 0);
  }
  return hash != 0 ? hash : 1;
}

/// The same, and the plan was made for this chain and for no other one of as many blocks.
/// @throws config_error   as above; or the plan is of a chain with other names, sizes or another order
inline void expect_plan_fits(const activation_plan& plan, const layer_chain& chain)
{
  expect_plan_fits(plan, chain.size());
  if (plan.chain == 0 || plan.chain == chain_fingerprint(chain)) return;
  throw config_error{error_text{} << "chunkmem: a plan of " << plan.planner << " is not one of this chain: it was made "
                                  << "for a chain of as many blocks, but of other names, other sizes or another order "
                                     "(this one begins with \""
                                  << chain.blocks.front().name << "\", saves " << chain.saved().count() << " B and has "
                                  << chain.size() << " blocks; plan again with this chain)"};
}

}  // namespace activation

}  // namespace chunkmem::inline v0
