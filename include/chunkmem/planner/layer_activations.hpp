// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/workload/transformer_costs.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// The fate of the activations of all layers of a transformer, between their forward and their backward pass.
///
///     const auto checkpointed = layer_activations::all(shape.layers, true);
///     const auto half = layer_activations::spread(shape.layers, shape.layers / 2);
struct layer_activations {
  std::vector<std::uint8_t> again;  ///< by layer: 1 if it keeps its input alone, and runs forward again
  /// The bytes that layers keep are tensors, which the manager moves to the host and back as it moves weights. False:
  /// they are leases, which stay on the device.
  bool moves = false;

  [[nodiscard]] bool operator==(const layer_activations&) const = default;

  /// All layers alike.
  [[nodiscard]] static layer_activations all(std::uint64_t layers, bool again, bool moves = false)
  {
    return {std::vector<std::uint8_t>(layers, again ? 1 : 0), moves};
  }
  /// So many layers run forward again, at equal distances; the last of them is as far from the end as from the next
  /// one. @pre count <= layers
  [[nodiscard]] static layer_activations spread(std::uint64_t layers, std::uint64_t count)
  {
    layer_activations made = all(layers, false, true);
    for (std::uint64_t layer = 0; layer < layers; ++layer)
      made.again[layer] = (layer + 1) * count / layers > layer * count / layers ? 1 : 0;
    return made;
  }
  /// The first layers run forward again. @pre count <= layers
  [[nodiscard]] static layer_activations first(std::uint64_t layers, std::uint64_t count)
  {
    layer_activations made = all(layers, false, true);
    std::fill_n(made.again.begin(), count, std::uint8_t{1});
    return made;
  }

  [[nodiscard]] std::uint64_t recomputed() const noexcept
  {
    return static_cast<std::uint64_t>(std::ranges::count(again, 1));
  }
  /// The bytes that a layer keeps for its backward pass.
  [[nodiscard]] bytes kept(const workload::transformer_costs& costs, std::uint64_t layer) const noexcept
  {
    return again[layer] != 0 ? costs.checkpoint() : costs.layer().kept;
  }
};

}  // namespace planner

}  // namespace chunkmem::inline v0
