// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/bytes.hpp>
#include <support/oracles/dice.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace support {

/// A chain and the memory that its activations may have.
struct chain_problem {
  chunkmem::activation::layer_chain chain;
  chunkmem::activation::activation_budget budget;
};

/// The traits of random chains.
struct chain_traits {
  std::uint32_t fewest_blocks = 1;
  std::uint32_t most_blocks = 6;
  bool has_all_members = true;  ///< gradients, working bytes, carried bytes, blocks that read their inputs, and so on
};

/// Whole seconds and bytes, and rates that are powers of two: sums of times are exact.
inline chunkmem::activation::chain_block roll_block(dice& dice, bool has_all_members)
{
  using chunkmem::bytes;
  chunkmem::activation::chain_block block;
  block.forward_seconds = dice.between(1, 9);
  block.backward_seconds = dice.between(1, 18);
  block.saved = bytes{dice.between(3, 24)};
  block.boundary = bytes{dice.between(1, static_cast<std::uint32_t>(block.saved.count()) / 3)};
  block.passing_working = block.inner();
  if (!has_all_members) return block;
  const auto rarely = [&](std::uint32_t most) { return dice.one_in(3) ? bytes{dice.below(most)} : bytes{}; };
  if (dice.one_in(3)) block.recompute_seconds = dice.between(1, 12);
  if (dice.one_in(4)) block.boundary = dice.one_in(2) ? block.saved : bytes{};
  block.gradient = dice.one_in(2) ? block.boundary : rarely(9);
  block.forward_working = rarely(9);
  if (dice.one_in(3)) block.passing_working = rarely(9);
  block.backward_working = rarely(9);
  block.carried = rarely(5);
  block.reads_input = dice.one_in(3);
  return block;
}

/// A chain with a name for each block, and a budget of some 35 to 95 % of its saved bytes. A copy moves a whole tensor.
inline chain_problem roll_chain(dice& dice, const chain_traits& traits = {})
{
  using chunkmem::bytes;
  chain_problem made;
  const std::uint32_t blocks = dice.between(traits.fewest_blocks, traits.most_blocks);
  for (std::uint32_t block = 0; block < blocks; ++block) {
    made.chain.blocks.push_back(roll_block(dice, traits.has_all_members));
    made.chain.blocks.back().name = "block " + std::to_string(block);
  }
  const auto rate = [&] { return static_cast<double>(1U << dice.below(6)) / 4; };
  made.budget.device = bytes{1 + made.chain.saved().count() * dice.between(35, 95) / 100};
  made.budget.to_host_bytes_per_second = rate();
  made.budget.to_device_bytes_per_second = rate();
  made.budget.copy = bytes{1'000};
  if (!traits.has_all_members) return made;
  made.chain.input = bytes{dice.below(6)};
  if (dice.one_in(3)) made.budget.seconds_per_copy = dice.between(1, 3);
  if (dice.one_in(3)) made.budget.frame = bytes{dice.between(2, 5)};
  if (dice.one_in(3)) made.budget.copy = bytes{dice.between(1, 9)};
  if (dice.one_in(3)) made.budget.device += bytes{dice.below(60)};
  return made;
}

/// Adds random skips to a chain of at least two blocks.
inline void roll_skips(dice& dice, chunkmem::activation::layer_chain& chain)
{
  for (std::uint32_t count = dice.between(1, 3); count > 0; --count) {
    chunkmem::activation::chain_skip skip{.from = dice.below(chain.size() - 1),
                                          .size = chunkmem::bytes{dice.below(12)}};
    for (std::uint32_t block = skip.from + 1; block < chain.size(); ++block)
      if (dice.one_in(2)) skip.readers.push_back(block);
    if (skip.readers.empty()) skip.readers.push_back(chain.size() - 1);
    chain.skips.push_back(skip);
  }
}

/// A random action for each block.
inline std::vector<chunkmem::activation::block_action> roll_actions(dice& dice, std::uint32_t blocks)
{
  std::vector<chunkmem::activation::block_action> actions;
  for (std::uint32_t block = 0; block < blocks; ++block)
    actions.push_back(static_cast<chunkmem::activation::block_action>(dice.below(4)));
  return actions;
}

/// Appends a random schedule of the blocks `first` to `last`: a block saves; or some blocks pass, the blocks after them
/// run in both passes, and the passed ones run again.
inline void roll_schedule(dice& dice, std::uint32_t first, std::uint32_t last,
                          std::vector<chunkmem::activation::chain_step>& steps)
{
  using chunkmem::activation::chain_run;
  if (first == last || dice.one_in(2)) {
    steps.push_back({chain_run::saving, first});
    if (first < last) roll_schedule(dice, first + 1, last, steps);
    steps.push_back({chain_run::backward, first});
    return;
  }
  const std::uint32_t split = dice.between(first + 1, last);
  for (std::uint32_t block = first; block < split; ++block) steps.push_back({chain_run::passing, block});
  roll_schedule(dice, split, last, steps);
  roll_schedule(dice, first, split - 1, steps);
}

/// A plan of actions, or one of nested segments with random tensors that leave.
inline chunkmem::activation::activation_plan roll_plan(dice& dice, std::uint32_t blocks)
{
  chunkmem::activation::activation_plan plan;
  plan.planner = "dice";
  if (dice.one_in(2)) {
    set_actions(plan, roll_actions(dice, blocks));
    return plan;
  }
  roll_schedule(dice, 0, blocks - 1, plan.steps);
  for (std::uint32_t block = 0; block < blocks; ++block) {
    plan.inner_leaves.push_back(dice.one_in(2) ? 1 : 0);
    plan.input_leaves.push_back(dice.one_in(2) ? 1 : 0);
  }
  return plan;
}

}  // namespace support
