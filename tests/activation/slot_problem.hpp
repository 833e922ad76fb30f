// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/core/bytes.hpp>
#include <support/oracles/chain_checkpointing.hpp>
#include <support/oracles/dice.hpp>

#include <cstdint>

namespace support {

/// A chain of a few bytes, and the same chain for the oracles: a byte is a slot. An oracle's gradient of a tensor has
/// the tensor's size. The library has no gradient of the chain's input, so these bytes are working bytes of the first
/// block.
struct slot_problem {
  slot_chain slots;
  chunkmem::activation::layer_chain chain;
  chunkmem::activation::activation_budget budget;

  [[nodiscard]] std::uint32_t device() const { return static_cast<std::uint32_t>(budget.device.count()); }
  [[nodiscard]] std::uint32_t last() const { return chain.size() - 1; }
};

inline void add_stage(slot_problem& to, dice& dice)
{
  using chunkmem::bytes;
  const std::uint32_t output = dice.between(1, 4);
  const std::uint32_t saved = output + dice.below(6);
  const std::uint32_t forward = dice.below(3);
  const std::uint32_t backward = dice.below(3);
  chunkmem::activation::chain_block block{.name = "stage"};
  block.forward_seconds = dice.between(1, 5);
  block.backward_seconds = dice.between(2, 9);
  block.saved = bytes{saved};
  block.boundary = block.gradient = bytes{output};
  block.forward_working = block.passing_working = bytes{forward};
  block.backward_working = bytes{backward} + (to.chain.blocks.empty() ? to.chain.input : bytes{});
  to.slots.input.push_back(output);
  to.slots.saved.push_back(saved);
  to.slots.forward_extra.push_back(forward);
  to.slots.backward_extra.push_back(backward);
  to.slots.forward.push_back(block.forward_seconds);
  to.slots.backward.push_back(block.backward_seconds);
  to.chain.blocks.push_back(block);
}

inline slot_problem roll_slots(dice& dice, std::uint32_t most_stages)
{
  slot_problem made;
  const std::uint32_t input = dice.between(1, 4);
  made.chain.input = chunkmem::bytes{input};
  made.slots.input = {input};
  made.slots.saved = {0};
  for (std::uint32_t stage = dice.between(2, most_stages); stage > 0; --stage) add_stage(made, dice);
  made.budget.device = chunkmem::bytes{dice.between(8, 32)};
  made.budget.to_host_bytes_per_second = dice.between(1, 128) / 64.0;
  made.budget.to_device_bytes_per_second = dice.between(1, 128) / 64.0;
  for (chunkmem::activation::chain_block& block : made.chain.blocks) {
    block.reads_input = dice.one_in(2);
    made.slots.reads_input.push_back(block.reads_input ? 1 : 0);
  }
  return made;
}

}  // namespace support
