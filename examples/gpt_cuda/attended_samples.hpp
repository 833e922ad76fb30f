// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "network.hpp"

#include <chunkmem/activation/norm_cache.hpp>
#include <chunkmem/activation/sampled.hpp>
#include <chunkmem/activation/sampled_input.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <string>
#include <vector>

namespace gpt::cuda {

/// Inputs of the projections after attention, for all windows of a micro-batch. Some rows of each are kept for the
/// gradient of the weight: see gpt::projection_samples, the same on the CPU.
///
/// @tparam Launcher   `Math::sampler`
template <class Manager, class Launcher>
class attended_samples {
 public:
  using input_type = chunkmem::activation::sampled_input<Manager, bf16, Launcher>;

  /// @param ratio   of the rows that are kept
  attended_samples(Manager& manager, const batch_model& net, double ratio, std::uint64_t seed)
      : norms_{{.name = "sampling", .samples = 0, .seed = seed}}, seed_{seed}, numbers_(net.size.batch)
  {
    const std::uint64_t rows = net.size.batch * net.size.context;
    for (std::size_t layer = 0; layer < net.layers.size(); ++layer)
      inputs_.emplace_back(
          manager, norms_,
          norms_.add("layer " + std::to_string(layer) + " attended", static_cast<std::uint32_t>(net.size.context)),
          chunkmem::activation::sampling_options{.rows = rows, .width = net.size.width, .ratio = ratio},
          std::initializer_list<chunkmem::tensor_handle>{net.layers[layer].projection});
    manager.use(norms_);
  }

  void begin(std::uint64_t step, std::uint32_t micro_batch) noexcept
  {
    step_ = step;
    micro_batch_ = micro_batch;
  }
  /// @param where   begin of the window in the text
  void set(std::size_t window, std::uint64_t where) noexcept { numbers_[window] = where; }

  [[nodiscard]] input_type& of(std::size_t layer) noexcept { return inputs_[layer]; }
  [[nodiscard]] chunkmem::activation::sampled_batch batch() const noexcept
  {
    return {.step = step_, .samples = numbers_, .micro_batch = micro_batch_};
  }
  /// For the rounding of gradients to bf16: stochastic, so that the expected value is exact.
  [[nodiscard]] chunkmem::rounding_key key_of(std::size_t layer) const noexcept
  {
    constexpr std::uint32_t of_slopes = 0xc100'0000U;
    return {seed_, step_, static_cast<std::uint32_t>(layer), of_slopes + micro_batch_};
  }

 private:
  chunkmem::activation::norm_cache norms_;
  std::uint64_t seed_;
  std::vector<std::uint64_t> numbers_;  // by window
  std::deque<input_type> inputs_;       // by layer
  std::uint64_t step_ = 0;
  std::uint32_t micro_batch_ = 0;
};

/// None for a model over ranks, which keeps all rows.
template <class Manager, class Launcher>
struct samples_of {
  using type = attended_samples<Manager, Launcher>;
};
template <class Manager, class Launcher>
  requires requires(Manager& m) { m.ranks(); }
struct samples_of<Manager, Launcher> {
  struct type {};
};

}  // namespace gpt::cuda
