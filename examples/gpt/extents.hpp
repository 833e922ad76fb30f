// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpt {

/// Tokens are bytes.
inline constexpr std::size_t vocabulary = 256;

/// Layers times rows of a micro-batch: each pair has tensors of its own.
inline constexpr std::size_t most_rows_of_layers = 16384;

/// The function between the two products of the MLP.
enum class nonlinearity : std::uint8_t {
  gelu,
  relu,  ///< its backward pass needs a bit for each number, so rows of the second product's input can be sampled
};

/// How large the model and its batches are.
struct extents {
  std::size_t layers = 6;
  std::size_t width = 192;
  std::size_t heads = 6;
  std::size_t context = 128;
  std::size_t batch = 4;          ///< windows that go through the model together
  std::size_t micro_batches = 1;  ///< batches whose gradients add up to one step
  std::size_t adapter_rank = 0;   ///< of the adapters beside frozen weights (LoRA); 0: all weights are trained
  nonlinearity mlp = nonlinearity::gelu;

  [[nodiscard]] constexpr std::uint64_t layer_parameters() const noexcept { return 12 * width * width + 13 * width; }
  [[nodiscard]] constexpr std::uint64_t parameters() const noexcept
  {
    return layers * layer_parameters() + (vocabulary + context + 2) * width;
  }
  [[nodiscard]] constexpr std::uint64_t tokens_per_step() const noexcept
  {
    return std::uint64_t{micro_batches} * batch * context;
  }
  /// Bytes of the largest tensor: a weight of the MLP or a table in single precision, such as a momentum, or one row's
  /// hidden activations.
  [[nodiscard]] constexpr std::uint64_t largest_tensor_bytes() const noexcept
  {
    const std::uint64_t rows = width > context ? width : context;
    const std::uint64_t block = 4 * rows * width;
    const std::uint64_t table = (vocabulary > context ? vocabulary : context) * width;
    return 4 * (block > table ? block : table);
  }
};

}  // namespace gpt
