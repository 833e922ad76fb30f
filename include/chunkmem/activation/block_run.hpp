// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>
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
  std::uint64_t step = 0;  ///< of the training, counted by the trainer
  std::uint32_t micro_batch = 0;
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
    std::uint64_t seed = 0;
    chain_moment moment;
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
  [[nodiscard]] rounding_key random() const noexcept
  {
    constexpr std::uint32_t of_activations = 0x8000'0000U;  // no list of an optimizer has this bit
    return {known_.seed, known_.moment.step, known_.block, of_activations | known_.moment.micro_batch};
  }
  /// The block ran forward before in this step.
  [[nodiscard]] bool is_again() const noexcept { return known_.is_again; }
  [[nodiscard]] const chain_moment& moment() const noexcept { return known_.moment; }
  [[nodiscard]] Manager& manager() const noexcept { return *known_.manager; }

 private:
  [[noreturn]] void refuse(std::string_view what) const
  {
    throw usage_error{error_text{} << "chunkmem: block " << std::uint64_t{known_.block} << " (\"" << *known_.name
                                   << "\") " << what};
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
