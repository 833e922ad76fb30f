// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "extents.hpp"

#include <chunkmem/chunkmem.hpp>

#include <cstdint>

namespace gpt::cuda {

using chunkmem::bf16;

/// The tensors that a layer may save for its backward run in addition to its input, for all rows of a micro-batch.
/// Norms and GELU run again in any case.
struct saved_activations {
  chunkmem::tensor<bf16> qkv{};       ///< [rows, 3 width]
  chunkmem::tensor<bf16> attended{};  ///< [rows, width]; none where rows of it are sampled
  chunkmem::tensor<bf16> middle{};    ///< [rows, width], between attention and MLP
  chunkmem::tensor<bf16> hidden{};    ///< [rows, 4 width], before GELU

  bool has_attended = true;

  template <class Visit>
  void for_each(Visit visit) const
  {
    visit(qkv);
    if (has_attended) visit(attended);
    visit(middle);
    visit(hidden);
  }
};

/// @param manager    not sealed
/// @param samples    rows of the output of attention are kept: it has no tensor of its own
template <class Manager>
[[nodiscard]] saved_activations declare_saved(Manager& manager, const extents& size, bool samples)
{
  const auto declare = [&](std::uint64_t columns) {
    return manager.template add<bf16>({size.batch * size.context, columns}, chunkmem::role::activation);
  };
  saved_activations saved;
  saved.qkv = declare(3 * size.width);
  saved.has_attended = !samples;
  if (!samples) saved.attended = declare(size.width);
  saved.middle = declare(size.width);
  saved.hidden = declare(4 * size.width);
  return saved;
}

/// The addresses of those numbers: in pins of the tensors, or in a lease.
template <class Element>
struct activation_places {
  Element* qkv = nullptr;
  Element* attended = nullptr;
  Element* middle = nullptr;
  Element* hidden = nullptr;

  [[nodiscard]] activation_places<const Element> as_read() const noexcept { return {qkv, attended, middle, hidden}; }
};

}  // namespace gpt::cuda
