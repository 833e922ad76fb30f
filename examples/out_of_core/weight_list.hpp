// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memory.hpp"

#include "../gpt/random.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace out_of_core {

/// The weights of a network, and their first values.
class weight_list {
 public:
  /// @param m   outlives the list
  explicit weight_list(manager& m) : m_{m} {}

  /// Declares a weight of `inputs` rows, and one more row for biases.
  tensor add_with_bias(index inputs, index outputs) { return add(inputs + 1, outputs, inputs, 1.0F); }
  /// Declares a weight without biases. @param gain   factor of its first values
  tensor add(index inputs, index outputs, float gain) { return add(inputs, outputs, inputs, gain); }

  [[nodiscard]] const std::vector<tensor>& all() const noexcept { return tensors_; }

  /// Gives weights the first values of He et al. 2015 (arXiv 1502.01852), and biases 0.
  void fill()
  {
    for (std::size_t each = 0; each < tensors_.size(); ++each) {
      const gpt::counter_random random{1, gpt::stream::weights + each};
      const auto pin = m_.acquire(tensors_[each], chunkmem::access::write);
      for (std::size_t at = 0; at < pin.size(); ++at)
        pin.data()[at] = at < starts_[each].numbers ? (2.0F * random.uniform(at) - 1.0F) * starts_[each].most : 0.0F;
    }
  }

 private:
  struct start {
    std::size_t numbers{};  ///< without biases
    float most{};           ///< the first values are between -most and most
  };

  tensor add(index rows, index columns, index inputs, float gain)
  {
    starts_.push_back(
        {static_cast<std::size_t>(inputs * columns), gain * std::sqrt(6.0F / static_cast<float>(inputs))});
    const auto extent = [](index number) { return static_cast<std::uint64_t>(number); };
    return tensors_.emplace_back(m_.add<float>({extent(rows), extent(columns)}, chunkmem::role::parameter));
  }

  manager& m_;
  std::vector<tensor> tensors_{};
  std::vector<start> starts_{};  // by weight
};

}  // namespace out_of_core
