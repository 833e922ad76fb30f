// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "team.hpp"

#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/philox.hpp>

#include <cmath>
#include <cstdint>

namespace gpt::cuda {

inline constexpr float gelu_scale = 0.7978845608F;  // sqrt(2 / pi)
inline constexpr float gelu_cubic = 0.044715F;

/// y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) (Hendrycks and Gimpel 2016, arXiv 1606.08415)
struct gelu_forward_kernel {
  const bf16* x;
  bf16* y;
  std::uint64_t elements;  ///< a multiple of 8

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return elements / pack; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const
  {
    eight values = load(x + index * pack);
    for (float& each : values.at)
      each = 0.5F * each * (1.0F + tanhf(gelu_scale * each * (1.0F + gelu_cubic * each * each)));
    store(y + index * pack, values);
  }
};

/// slope: on entry the gradient of the output of GELU, on return that of its input.
struct gelu_backward_kernel {
  const bf16* x;  ///< the input of GELU
  bf16* slope;
  std::uint64_t elements;  ///< a multiple of 8

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return elements / pack; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const
  {
    const eight values = load(x + index * pack);
    eight result = load(slope + index * pack);
    for (std::uint32_t i = 0; i < pack; ++i) {
      const float each = values.at[i];
      const float bend = tanhf(gelu_scale * each * (1.0F + gelu_cubic * each * each));
      const float inner = gelu_scale * (1.0F + 3.0F * gelu_cubic * each * each);
      result.at[i] *= 0.5F * (1.0F + bend) + 0.5F * each * (1.0F - bend * bend) * inner;
    }
    store(slope + index * pack, result);
  }
};

/// Rounds numbers to bf16 stochastically: the expected value is exact.
struct round_slopes_kernel {
  const float* from;
  bf16* to;
  std::uint64_t numbers;
  chunkmem::detail::rounding_stream random;

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return numbers; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const
  {
    to[index] = chunkmem::round_stochastic<bf16>(from[index], random.bits_of(index));
  }
};

}  // namespace gpt::cuda
