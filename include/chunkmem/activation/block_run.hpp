// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/random_stream.hpp>
#include <chunkmem/activation/saved_tensor.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/tensor/access.hpp>
#include <chunkmem/tensor/philox.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

namespace activation {

/// The step and the micro-batch of a run. Random numbers depend on both.
///
///     network.run(iteration, {.step = 7, .micro_batch = 1});
struct chain_moment {
  static constexpr std::uint64_t no_step = UINT64_MAX;

  std::uint64_t step = no_step;   ///< of the training, counted by the trainer: another number in each step
  std::uint32_t micro_batch = 0;  ///< of the iteration: another number in each run of one step

  [[nodiscard]] constexpr bool operator==(const chain_moment&) const noexcept = default;
};

/// The run of a block, as its callback sees the run: tensors, random numbers, the step.
///
///     layer.forward = [=](auto& run) {
///       const auto x = run.input(before);             // read
///       auto h = run.save(hidden);                    // write
///       dropout(h.span(), run.random());              // the same numbers in each run of this step
///     };
///     layer.backward = [=](auto& run) { const auto h = run.restore(hidden); ... };
///
/// Pins end with their scope. Weights, gradients and leases come from the manager as ever.
template <class Manager>
class block_run {
 public:
  using tensors_type = block_tensors<Manager>;
  /// Everything about a run that its callback does not choose.
  struct facts {
    Manager* manager = nullptr;
    const std::string* name = nullptr;
    const tensors_type* own = nullptr;
    const tensors_type* before = nullptr;  ///< of the block before; null: the trainer's own inputs, unchecked
    chain_run run = chain_run::saving;
    bool is_again = false;
    bool reads_input = false;
    std::uint32_t block = 0;
    const random_stream* numbers = nullptr;
    chain_moment moment;
    bool is_repeated = false;  ///< the same moment was run before in this iteration
  };
  explicit block_run(const facts& known) noexcept : known_{known} {}

  /// A saved tensor or an output, to be written by a forward callback.
  /// @throws usage_error   the block did not declare it, or the callback is the backward one; names the block; and as
  ///   the manager's `acquire`
  template <element Element>
  [[nodiscard]] auto save(tensor<Element> wanted, agent stream = agent::host)
  {
    if (known_.run == chain_run::backward) refuse("saves a tensor in its backward callback");
    expect_own(wanted, "saves a tensor that it did not declare");
    return acquired(wanted, access::write, stream);
  }
  /// A saved tensor or an output that was written before, in this run or in the forward run.
  /// @throws usage_error   the block did not declare it; names the block; and as the manager's `acquire`
  template <element Element, access_choice Access = access>
  [[nodiscard]] auto restore(tensor<Element> wanted, Access how = access::read, agent stream = agent::host)
  {
    expect_own(wanted, "restores a tensor that it did not save");
    return acquired(wanted, how, stream);
  }
  /// An output of the block before.
  /// @throws usage_error   the tensor is no output of that block; or the callback is the backward one, and the block
  ///   has not set reads_input; names the block; and as the manager's `acquire`
  template <element Element>
  [[nodiscard]] auto input(tensor<Element> wanted, agent stream = agent::host)
  {
    if (known_.run == chain_run::backward && !known_.reads_input)
      refuse("reads its input in its backward callback (set reads_input, so that plans keep it)");
    if (known_.before == nullptr) return acquired(wanted, access::read, stream);
    if (!tensors_type::has(known_.before->outputs, wanted))
      refuse("reads an input that the block before does not output");
    return acquired(wanted, access::read, stream);
  }

  /// The key of random_bits() for this run. Each run of this block in this step and micro-batch has the same key.
  /// Blocks, steps, micro-batches, and networks of other names or seeds have other keys.
  /// @throws usage_error   the network has no name, `checkpointed::run` was given no step, or it was given one
  ///   micro-batch twice in one iteration: numbers would repeat. Names the block
  [[nodiscard]] rounding_key random() const
  {
    expect_step("draws random numbers");
    if (known_.numbers->is_by_name() && known_.numbers->network().empty())
      refuse(
          "draws random numbers, and its network has no name: another network without a name would draw the same "
          "(give options::name, or random_rule::by_seed to go on with a training that was saved without a name)");
    if (known_.is_repeated)
      refuse(
          "draws the random numbers of a micro-batch that was run before in this iteration (give run() another "
          "micro-batch each time: network.run(iteration, {.step = step, .micro_batch = batch}))");
    return known_.numbers->key(known_.moment.step, known_.block, known_.moment.micro_batch);
  }
  /// The block ran forward before in this step. A callback that changes anything beside its own tensors, such as
  /// running statistics, does so where this is false.
  [[nodiscard]] bool is_again() const noexcept { return known_.is_again; }
  /// @throws usage_error   `checkpointed::run` was given no step; names the block
  [[nodiscard]] const chain_moment& moment() const
  {
    expect_step("asks for its step");
    return known_.moment;
  }
  [[nodiscard]] Manager& manager() const noexcept { return *known_.manager; }

 private:
  [[noreturn]] void refuse(std::string_view what, std::string_view more = {}) const
  {
    error_text text;
    text << "chunkmem: ";
    if (!known_.numbers->network().empty()) text << "network \"" << known_.numbers->network() << "\", ";
    throw usage_error{text << "block " << std::uint64_t{known_.block} << " (\"" << *known_.name << "\") " << what
                           << more};
  }
  void expect_step(std::string_view what) const
  {
    if (known_.moment.step == chain_moment::no_step)
      refuse(what, ", and run() was given no step (count the steps: network.run(iteration, {.step = step}))");
  }
  void expect_own(tensor_handle wanted, std::string_view otherwise) const
  {
    if (!tensors_type::has(known_.own->inner, wanted) && !tensors_type::has(known_.own->outputs, wanted))
      refuse(otherwise);
  }
  template <element Element, class Access>
  [[nodiscard]] auto acquired(tensor<Element> wanted, Access how, agent stream)
  {
    return stream == agent::host ? known_.manager->acquire(wanted, how) : known_.manager->acquire(wanted, how, stream);
  }

  facts known_;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
