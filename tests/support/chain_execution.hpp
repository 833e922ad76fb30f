// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/checkpointed.hpp>
#include <chunkmem/activation/planners.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <support/oracles/random_chain.hpp>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace support {

/// A random chain in whole frames, as `checkpointed` can run it: no tensor is carried past a block, a run that saves
/// nothing makes the same tensors as one that does, and the first block reads no tensor. A copy moves one frame.
/// @param unit   seconds of the shortest run
inline chain_problem roll_executable_chain(dice& dice, const chain_traits& traits, chunkmem::bytes frame, double unit)
{
  chain_problem made = roll_chain(dice, traits);
  const auto frames = [&](chunkmem::bytes count) { return count * frame.count(); };
  for (chunkmem::activation::chain_block& block : made.chain.blocks) {
    block.forward_seconds *= unit;
    block.backward_seconds *= unit;
    block.recompute_seconds *= unit;
    for (auto* const size :
         {&block.saved, &block.boundary, &block.gradient, &block.forward_working, &block.backward_working})
      *size = frames(*size);
    block.passing_working = block.inner() + block.forward_working;
    block.carried = {};
  }
  made.chain.input = {};
  made.chain.blocks.front().reads_input = false;
  made.budget.device = frames(made.budget.device);
  made.budget.frame = frame;
  made.budget.copy = frame;
  const double rate = static_cast<double>(frame.count()) / unit;
  made.budget.to_host_bytes_per_second *= rate;
  made.budget.to_device_bytes_per_second *= rate;
  made.budget.seconds_per_copy *= unit;
  return made;
}

/// The links of a budget, for a backend in virtual time.
inline chunkmem::backend::cost_table costs_of(const chunkmem::activation::activation_budget& budget)
{
  const auto latency = static_cast<std::uint64_t>(std::llround(budget.seconds_per_copy * 1e9));
  chunkmem::backend::cost_table costs;
  costs.to_device = {latency, budget.to_device_bytes_per_second};
  costs.to_host = {latency, budget.to_host_bytes_per_second};
  return costs;
}

/// Runs a plan of a chain with the manager on a backend whose agents work for a while (`advance`). Saved bytes, outputs
/// and gradients are tensors of one frame each, so any free frame is enough. Callbacks take the times of the chain, and
/// read and write no byte.
///
///     chain_execution execution{memory, it.chain, it.budget, plan};
///     for (int step = 0; step < 5; ++step) execution.step();
template <class Backend, class Transfer = chunkmem::transfer::planned>
class chain_execution {
 public:
  using manager_type = chunkmem::manager<Backend, Transfer>;

  /// @param memory, chain   outlive this   @pre sizes are whole frames
  chain_execution(Backend& memory, const chunkmem::activation::layer_chain& chain,
                  const chunkmem::activation::activation_budget& budget, chunkmem::activation::activation_plan plan)
      : memory_{memory},
        chain_{chain},
        frame_{budget.frame},
        manager_{memory, {.chunk_bytes = budget.frame}},
        network_{manager_, {.budget = budget}}
  {
    for (std::uint32_t block = 0; block < chain.size(); ++block) declare(block);
    network_.use(std::move(plan));
  }

  void step()
  {
    auto iteration = network_.iteration();
    network_.run(iteration);
  }
  [[nodiscard]] chunkmem::report report() const { return manager_.report(); }

 private:
  using network_type = chunkmem::activation::checkpointed<manager_type, chunkmem::activation::keep_all>;
  using run_type = typename network_type::block_type::run_type;
  using tensor = chunkmem::tensor<std::uint8_t>;
  using tensors = std::vector<tensor>;
  static constexpr chunkmem::agent compute = chunkmem::agent::compute;

  /// The tensors of a block.
  struct part {
    tensors inner;
    tensors output;
    tensors gradient;
  };

  void declare(std::uint32_t index)
  {
    const chunkmem::activation::chain_block& known = chain_.blocks[index];
    auto& block = network_.add(known.name);
    part& it = parts_.emplace_back();
    const chunkmem::shape of_frame{frame_.count()};
    for (chunkmem::bytes size{}; size < known.inner(); size += frame_)
      it.inner.push_back(block.template saves<std::uint8_t>(of_frame));
    for (chunkmem::bytes size{}; size < known.boundary; size += frame_)
      it.output.push_back(block.template outputs<std::uint8_t>(of_frame));
    for (chunkmem::bytes size{}; size < known.gradient; size += frame_)
      it.gradient.push_back(manager_.template add<std::uint8_t>(of_frame, chunkmem::role::activation));
    block.reads_input = known.reads_input;
    block.forward = [this, index](run_type& run) { forward(index, run); };
    block.backward = [this, index](run_type& run) { backward(index, run); };
  }

  void forward(std::uint32_t index, run_type& run)
  {
    const chunkmem::activation::chain_block& known = chain_.blocks[index];
    const auto save = [&](tensor each) { return run.save(each, compute); };
    const auto input = input_of(index, run);
    const auto inner = pinned(parts_[index].inner, save);
    const auto output = pinned(parts_[index].output, save);
    work(run.is_again() ? known.again_seconds() : known.forward_seconds, known.forward_working);
  }
  void backward(std::uint32_t index, run_type& run)
  {
    const chunkmem::activation::chain_block& known = chain_.blocks[index];
    const bool is_last = index + 1 == chain_.size();
    const auto restore = [&](tensor each) { return run.restore(each, chunkmem::access::read, compute); };
    const auto change = [&](tensor each) {
      return manager_.acquire(each, is_last ? chunkmem::access::write : chunkmem::access::read_write, compute);
    };
    const auto make = [&](tensor each) { return manager_.acquire(each, chunkmem::access::write, compute); };
    {
      const auto inner = pinned(parts_[index].inner, restore);
      const auto output = pinned(parts_[index].output, restore);
      const auto input = known.reads_input ? input_of(index, run) : decltype(inner){};
      const auto slope = pinned(parts_[index].gradient, change);
      const auto before = pinned(index > 0 ? parts_[index - 1].gradient : tensors{}, make);
      work(known.backward_seconds, known.backward_working);
    }
    for (const tensor each : parts_[index].gradient) manager_.drop(each);
  }
  [[nodiscard]] auto input_of(std::uint32_t index, run_type& run)
  {
    return pinned(index > 0 ? parts_[index - 1].output : tensors{},
                  [&](tensor each) { return run.input(each, compute); });
  }
  template <class Acquire>
  [[nodiscard]] static auto pinned(const tensors& wanted, Acquire acquire)
  {
    std::vector<decltype(acquire(tensor{}))> pins;
    for (const tensor each : wanted) pins.push_back(acquire(each));
    return pins;
  }
  void work(double seconds, chunkmem::bytes size)
  {
    std::vector<decltype(manager_.lease(chunkmem::tier::device, frame_, compute))> leases;
    for (chunkmem::bytes leased{}; leased < size; leased += frame_)
      leases.push_back(manager_.lease(chunkmem::tier::device, frame_, compute));
    if (!manager_.rehearsing()) memory_.advance(compute, static_cast<std::uint64_t>(std::llround(seconds * 1e9)));
  }

  Backend& memory_;
  const chunkmem::activation::layer_chain& chain_;
  chunkmem::bytes frame_;
  manager_type manager_;
  network_type network_;
  std::vector<part> parts_;
};

}  // namespace support
