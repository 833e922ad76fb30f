// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace support {

/// The training of tests that lose a rank: two weights of a frame each, divided as ZeRO 3, over four ranks.
template <class Model>
class two_divided_tensors {
 public:
  static constexpr std::uint32_t ranks = 4;
  static constexpr chunkmem::bytes frame{ranks * 16384};

  template <class Backend, class Ranks>
  two_divided_tensors(Backend& backend, Ranks& all)
      : model_{backend, all, {.chunk_bytes = frame}, {.divided = chunkmem::sharding::zero_3, .sum_scale = 1.0F / ranks}}
  {
    model_.use(kernel_);
    for (int index = 0; index < 2; ++index)
      weights_.push_back(model_.template add<float>({frame.count() / sizeof(float)}, chunkmem::role::parameter));
    for (const auto it : weights_)
      for (float& value : model_.acquire(it, chunkmem::access::write).span()) value = 1;
  }
  void step()
  {
    const auto scope = model_.iteration();
    for (const auto it : weights_)
      const auto pin = model_.acquire(it, chunkmem::access::read, chunkmem::agent::compute);
    for (std::size_t index = weights_.size(); index-- > 0;) {
      auto gradient =
          model_.gradient(model_.acquire(weights_[index], chunkmem::access::read, chunkmem::agent::compute));
      model_.backend().fill(reinterpret_cast<std::byte*>(std::as_const(gradient).data()), std::byte{0x40}, frame,
                            chunkmem::agent::compute);
      model_.gradient_done(std::move(gradient));
    }
    (void)model_.step(kernel_, {.learning_rate = 0.125F, .clip = {.norm = 1e9F}});
  }

 private:
  Model model_;
  chunkmem::optimizer::sgd kernel_{{.momentum = 0}};
  std::vector<chunkmem::tensor<float>> weights_;
};

}  // namespace support
