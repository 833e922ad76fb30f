// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model.hpp"

#include <chunkmem/activation/norm_cache.hpp>
#include <chunkmem/activation/sampled.hpp>
#include <chunkmem/activation/sampled_input.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace gpt {

/// Inputs of the projections behind attention. Some rows of each are kept for the gradient of the weight.
///
/// Of what a layer saves they alone have no other use in the backward pass: the other products read what a norm or GELU
/// computes again from numbers that their own backward pass needs. Windows lie anywhere in the text, so none comes
/// back, and there are no norms of earlier visits.
///
///     projection_samples<Manager> samples{m, net, 0.3, seed};
///     samples.begin(step), samples.set(row, where);   // then forward and backward
///     samples.of(layer, row).keep(samples.batch(row), attended);
template <class Manager>
class projection_samples {
 public:
  using input_type = chunkmem::activation::sampled_input<Manager, float>;

  /// @param ratio   of the rows that are kept
  projection_samples(Manager& manager, const model& net, double ratio, std::uint64_t seed)
      : norms_{{.name = "sampling", .samples = 0, .seed = seed}}, batch_{net.rows.size()}, numbers_(batch_)
  {
    const auto context = static_cast<std::uint32_t>(net.size.context);
    for (std::size_t layer = 0; layer < net.layers.size(); ++layer) {
      const auto site = norms_.add("layer " + std::to_string(layer) + " attended", context);
      for (std::size_t row = 0; row < batch_; ++row)
        inputs_.emplace_back(
            manager, norms_, site,
            chunkmem::activation::sampling_options{.rows = net.size.context, .width = net.size.width, .ratio = ratio},
            std::initializer_list<chunkmem::tensor_handle>{net.layers[layer].projection});
    }
    manager.use(norms_);
  }

  /// A micro-batch begins. Between the two passes of a training step alone rows are kept.
  void begin(std::uint64_t step) noexcept
  {
    step_ = step;
    is_training_ = true;
  }
  void end() noexcept { is_training_ = false; }
  /// @param where   its window begins in the text
  void set(std::size_t row, std::uint64_t where) noexcept { numbers_[row] = where; }

  [[nodiscard]] bool is_training() const noexcept { return is_training_; }
  [[nodiscard]] input_type& of(std::size_t layer, std::size_t row) noexcept { return inputs_[layer * batch_ + row]; }
  [[nodiscard]] chunkmem::activation::sampled_batch batch(std::size_t row) const noexcept
  {
    return {.step = step_, .samples = std::span{numbers_}.subspan(row, 1)};
  }

 private:
  chunkmem::activation::norm_cache norms_;
  std::size_t batch_;
  std::vector<std::uint64_t> numbers_;  // by row
  std::deque<input_type> inputs_;       // by layer, then by row
  std::uint64_t step_ = 0;
  bool is_training_ = false;
};

}  // namespace gpt
