// SPDX-License-Identifier: Apache-2.0
// Eigen packs parts of a product into scratch memory, on the stack up to this limit. So no product touches the heap.
#define EIGEN_STACK_ALLOCATION_LIMIT (4 * 1024 * 1024)

#include "kernels.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace out_of_core::kernels {
namespace {

using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using matrix = Eigen::Map<row_major>;
using const_matrix = Eigen::Map<const row_major>;

constexpr float growth = 8.0F / 7.0F;  // of the numbers that dropout keeps

/// Calls `visit(row, column, position)` for each patch and each of its nine neighbours that lies in the picture. `row`
/// is the index of the patch, `column` that of the neighbour in it, `position` that of the neighbour in the picture.
template <class Visit>
void each_neighbour(index side, const Visit& visit)
{
  for (index y = 0; y < side; ++y)
    for (index x = 0; x < side; ++x)
      for (index column = 0; column < 9; ++column) {
        const index at_y = y + column / 3 - 1;
        const index at_x = x + column % 3 - 1;
        if (at_y >= 0 && at_y < side && at_x >= 0 && at_x < side) visit(y * side + x, column, at_y * side + at_x);
      }
}

}  // namespace

void patches_of(const float* x, float* patches, const planes& shape, index pictures)
{
  std::fill_n(patches, pictures * shape.patch_numbers(), 0.0F);
  for (index picture = 0; picture < pictures; ++picture) {
    const float* const from = x + picture * shape.numbers();
    float* const to = patches + picture * shape.patch_numbers();
    each_neighbour(shape.side, [&](index row, index column, index position) {
      std::copy_n(from + position * shape.channels, shape.channels, to + row * shape.patch() + column * shape.channels);
    });
    for (index row = 0; row < shape.positions(); ++row) to[(row + 1) * shape.patch() - 1] = 1.0F;
  }
}

void add_patches(const float* patches, float* x, const planes& shape, index pictures)
{
  for (index picture = 0; picture < pictures; ++picture) {
    const float* const from = patches + picture * shape.patch_numbers();
    float* const to = x + picture * shape.numbers();
    each_neighbour(shape.side, [&](index row, index column, index position) {
      add(from + row * shape.patch() + column * shape.channels, to + position * shape.channels, shape.channels);
    });
  }
}

void multiply(const float* left, const float* right, float* out, index rows, index inner, index columns)
{
  matrix{out, rows, columns}.noalias() = const_matrix{left, rows, inner} * const_matrix{right, inner, columns};
}

void multiply_transposed(const float* left, const float* right, float* out, index rows, index inner, index columns)
{
  matrix{out, rows, inner}.noalias() =
      const_matrix{left, rows, columns} * const_matrix{right, inner, columns}.transpose();
}

void weight_gradient(const float* x, const float* slope, float beta, float* gradient, index rows, index inputs,
                     index outputs)
{
  matrix all{gradient, inputs, outputs};
  if (beta == 0.0F) all.setZero();
  all.noalias() += const_matrix{x, rows, inputs}.transpose() * const_matrix{slope, rows, outputs};
}

void add(const float* x, float* y, index numbers)
{
  for (index each = 0; each < numbers; ++each) y[each] += x[each];
}

void relu(float* y, index numbers)
{
  for (index each = 0; each < numbers; ++each) y[each] = std::max(y[each], 0.0F);
}

void relu_backward(const float* y, float* slope, index numbers)
{
  for (index each = 0; each < numbers; ++each) slope[each] = y[each] > 0.0F ? slope[each] : 0.0F;
}

void relu_dropout(float* y, index numbers, const chunkmem::rounding_key& key, index first)
{
  std::array<std::uint16_t, 128> bits{};
  for (index begin = 0; begin < numbers; begin += std::ssize(bits)) {
    const index count = std::min<index>(std::ssize(bits), numbers - begin);
    chunkmem::random_bits(key, static_cast<std::uint64_t>(first + begin),
                          std::span{bits}.first(static_cast<std::size_t>(count)));
    for (index each = 0; each < count; ++each) {
      float& number = y[begin + each];
      number = (bits[static_cast<std::size_t>(each)] & 7U) != 0 && number > 0.0F ? number * growth : 0.0F;
    }
  }
}

void relu_dropout_backward(const float* y, float* slope, index numbers)
{
  for (index each = 0; each < numbers; ++each) slope[each] = y[each] > 0.0F ? slope[each] * growth : 0.0F;
}

void halve(const float* x, float* out, const planes& shape, index pictures)
{
  const index half = shape.side / 2;
  const index line = shape.side * shape.channels;
  for (index row = 0; row < pictures * half; ++row)  // each row of the small pictures has two rows of the large ones
    for (index column = 0; column < half; ++column)
      for (index channel = 0; channel < shape.channels; ++channel) {
        const float* const from = x + 2 * row * line + 2 * column * shape.channels + channel;
        out[(row * half + column) * shape.channels + channel] =
            0.25F * (from[0] + from[shape.channels] + from[line] + from[line + shape.channels]);
      }
}

void halve_backward(const float* slope_of_out, float* slope, const planes& shape, index pictures)
{
  const index half = shape.side / 2;
  for (index row = 0; row < pictures * shape.side; ++row)
    for (index column = 0; column < shape.side; ++column)
      for (index channel = 0; channel < shape.channels; ++channel)
        slope[(row * shape.side + column) * shape.channels + channel] =
            0.25F * slope_of_out[(row / 2 * half + column / 2) * shape.channels + channel];
}

double softmax_cross_entropy(float* logits, const std::uint8_t* labels, float scale, index rows, index classes)
{
  double loss = 0;
  for (index row = 0; row < rows; ++row) {
    float* const of_row = logits + row * classes;
    const float largest = *std::max_element(of_row, of_row + classes);
    float sum = 0;
    for (index each = 0; each < classes; ++each) sum += std::exp(of_row[each] - largest);
    loss += static_cast<double>(std::log(sum) + largest - of_row[labels[row]]);
    for (index each = 0; each < classes; ++each) of_row[each] = std::exp(of_row[each] - largest) / sum * scale;
    of_row[labels[row]] -= scale;
  }
  return loss;
}

index hits(const float* logits, const std::uint8_t* labels, index rows, index classes)
{
  index count = 0;
  for (index row = 0; row < rows; ++row) {
    const float* const of_row = logits + row * classes;
    count += std::max_element(of_row, of_row + classes) - of_row == labels[row] ? 1 : 0;
  }
  return count;
}

}  // namespace out_of_core::kernels
