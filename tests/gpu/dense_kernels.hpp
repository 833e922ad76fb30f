// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstdint>

/// Kernels of a small network as kernels: run by a loop on the host and by CUDA on a GPU, they give the same bits.
namespace gpu {

template <class Element>
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline float number_of(Element value) noexcept
{
  if constexpr (sizeof(Element) == sizeof(float))
    return value;
  else
    return chunkmem::to_float(value);
}
template <class Element>
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline Element element_of(float value) noexcept
{
  if constexpr (sizeof(Element) == sizeof(float))
    return value;
  else
    return chunkmem::round_to<Element>(value);
}
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline float magnitude(float value) noexcept
{
  return value < 0.0F ? -value : value;
}

/// The same number on every machine, between -1/2 and 1/2.
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline float noise(std::uint64_t key) noexcept
{
  std::uint64_t mixed = (key + 1) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  return chunkmem::strict_fp::sum(static_cast<float>((mixed ^ (mixed >> 31)) >> 41) / 8388608.0F, -0.5F);
}

/// What all kernels here are: one call for each index, without anything prepared.
template <class Body>
struct plain_kernel {
  [[nodiscard]] CHUNKMEM_HOST_DEVICE Body prepared() const noexcept { return static_cast<const Body&>(*this); }
};

/// Where a matrix has its rows and columns. Transposed: the strides change places.
struct strides {
  std::uint32_t row;
  std::uint32_t column;
};

/// out (rows x columns) = beta * out + left (rows x inner) * right (inner x columns), added in the order of inner.
/// beta is 0 or 1, and 0 reads nothing.
template <class Out, class Left, class Right>
struct product_kernel : plain_kernel<product_kernel<Out, Left, Right>> {
  Out* out;
  const Left* left;
  const Right* right;
  std::uint32_t rows, columns, inner;
  strides of_left, of_right;
  float beta;

  product_kernel(Out* to, const Left* a, const Right* b, std::uint32_t m, std::uint32_t n, std::uint32_t k, strides sa,
                 strides sb, float add)
      : out{to}, left{a}, right{b}, rows{m}, columns{n}, inner{k}, of_left{sa}, of_right{sb}, beta{add}
  {
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return std::uint64_t{rows} * columns; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept
  {
    const std::uint64_t row = index / columns;
    const std::uint64_t column = index % columns;
    float sum = beta == 0.0F ? 0.0F : number_of(out[index]);
    for (std::uint64_t position = 0; position < inner; ++position)
      sum = chunkmem::strict_fp::fused(number_of(left[row * of_left.row + position * of_left.column]),
                                       number_of(right[position * of_right.row + column * of_right.column]), sum);
    out[index] = element_of<Out>(sum);
  }
};

/// Numbers that depend on a key: the input of a step.
struct noise_kernel : plain_kernel<noise_kernel> {
  float* out;
  std::uint64_t size, key;

  noise_kernel(float* to, std::uint64_t elements, std::uint64_t step) : out{to}, size{elements}, key{step * elements} {}
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return size; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept { out[index] = noise(key + index); }
};

/// value / (1 + |value|), in place
struct softsign_kernel : plain_kernel<softsign_kernel> {
  float* values;
  std::uint64_t size;

  softsign_kernel(float* of, std::uint64_t elements) : values{of}, size{elements} {}
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return size; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept
  {
    const float value = values[index];
    values[index] = chunkmem::strict_fp::quotient(value, chunkmem::strict_fp::sum(1.0F, magnitude(value)));
  }
};

/// The slope of what went into softsign, in place, from the slope of what came out.
struct softsign_slope_kernel : plain_kernel<softsign_slope_kernel> {
  float* slopes;
  const float* values;  ///< that came out
  std::uint64_t size;

  softsign_slope_kernel(float* of, const float* results, std::uint64_t elements)
      : slopes{of}, values{results}, size{elements}
  {
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return size; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept
  {
    const float rest = chunkmem::strict_fp::sum(1.0F, -magnitude(values[index]));
    slopes[index] = chunkmem::strict_fp::product(slopes[index], chunkmem::strict_fp::product(rest, rest));
  }
};

/// The slope of half the squared distance from a target that depends on a key.
struct distance_kernel : plain_kernel<distance_kernel> {
  float* slopes;
  const float* values;
  std::uint64_t size, key;

  distance_kernel(float* to, const float* of, std::uint64_t elements, std::uint64_t step)
      : slopes{to}, values{of}, size{elements}, key{~step * elements}
  {
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return size; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept
  {
    slopes[index] = chunkmem::strict_fp::sum(values[index], -noise(key + index));
  }
};

/// The sum of squares, added in order by one thread.
struct loss_kernel : plain_kernel<loss_kernel> {
  float* loss;
  const float* slopes;
  std::uint64_t size;

  loss_kernel(float* to, const float* of, std::uint64_t elements) : loss{to}, slopes{of}, size{elements} {}
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return 1; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t) const noexcept
  {
    float sum = 0;
    for (std::uint64_t index = 0; index < size; ++index)
      sum = chunkmem::strict_fp::fused(slopes[index], slopes[index], sum);
    *loss = sum;
  }
};

}  // namespace gpu
