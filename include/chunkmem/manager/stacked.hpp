// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

/// Tensors of one shape, one for each layer, declared together.
///
///     const stacked<float> weights = m.add_stacked<float>(12, {1'024, 1'024}, role::parameter);
///     const tensor<float> of_last_layer = weights.slice(11);
template <element Element>
struct stacked {
  tensor<Element> first;
  std::uint32_t layers = 0;

  /// The tensor of a layer. @throws usage_error   there is no such layer
  [[nodiscard]] constexpr tensor<Element> slice(std::uint32_t layer) const
  {
    if (layer >= layers)
      throw usage_error{error_text{} << "chunkmem: layer " << layer << " of a stack of " << layers
                                     << " tensors (layers count from 0)"};
    return {{tensor_id{index_of(first.id) + layer}, first.owner}};
  }
};

}  // namespace chunkmem::inline v0
