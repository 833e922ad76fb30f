// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/hostile.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// A toy network for training in 32 and 16 bits: its shapes, its kernels, and the results of training.
///
/// Residual blocks on a table whose rows are the inputs and whose product is the head; layers 0 and 2 share a matrix,
/// so that its gradient is begun before its last read; a frozen gate; biases in single precision with 16-bit weights.
/// Kernels see elements through views with `get(i)` and `set(i, x)`, so the view decides how bytes are stored and
/// rounded. No product feeds a sum except in plus_product: all compilers and flags give the same bits.
namespace support::mixed {

inline constexpr std::uint64_t batch = 2;
inline constexpr std::uint64_t width = 32;
inline constexpr std::uint64_t hidden = 72;
inline constexpr std::uint64_t words = 130;  // the table has more than 4096 elements: more than one block of a norm
inline constexpr std::uint32_t layers = 3;

/// Element types of a run.
enum class precision : std::uint8_t { fp32, bf16, fp16 };

/// The same number on every machine, between -1/2 and 1/2.
[[nodiscard]] inline float noise(std::uint64_t key) noexcept
{
  return static_cast<float>(scrambled(key) >> 40) / 16777216.0F - 0.5F;
}
inline void fill(std::span<float> values, std::uint64_t key) noexcept
{
  for (std::size_t index = 0; index < values.size(); ++index) values[index] = 0.2F * noise(key * 1'000'003 + index);
}
[[nodiscard]] inline std::uint64_t word_of(std::uint64_t key, std::uint64_t row) noexcept
{
  return static_cast<std::uint64_t>((noise(key * 977 + row) + 0.5F) * (static_cast<float>(words) - 0.01F));
}
[[nodiscard]] constexpr std::uint64_t key_of(std::uint32_t step, std::uint32_t micro_batch) noexcept
{
  return std::uint64_t{step} * 16 + micro_batch;
}

// Parameters, in the order of declaration: the table, those of each layer, two mixing matrices, one that no step uses.

enum class part : std::uint32_t { up, up_bias, down, down_bias };

/// The properties of a parameter.
struct parameter {
  std::uint64_t rows = 1;
  std::uint64_t cols = 1;
  bool single = false;      ///< float32 whatever the run's precision
  std::uint32_t group = 0;  ///< 1: the biases, which have settings of their own
  std::uint32_t stack = 1;  ///< layers of the stack that begins here; 0: a later layer of one

  [[nodiscard]] std::uint64_t size() const noexcept { return rows * cols; }
};

[[nodiscard]] constexpr std::size_t index_of(std::uint32_t layer, part which) noexcept
{
  return 1 + std::size_t{layer} * 4 + static_cast<std::size_t>(which);
}
[[nodiscard]] constexpr std::size_t mix_of(std::uint32_t layer) noexcept
{
  return 1 + std::size_t{layers} * 4 + layer % 2;
}
inline constexpr std::size_t idle = 3 + std::size_t{layers} * 4;

[[nodiscard]] inline std::vector<parameter> parameters()
{
  std::vector<parameter> all{{words, width}};
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    for (const parameter& it : {parameter{width, hidden}, parameter{1, hidden, true, 1}, parameter{hidden, width},
                                parameter{1, width, false, 1}})
      all.push_back(it);
  all.push_back({width, width});
  all.push_back({width, width});
  all.push_back({8, 8});
  return all;
}

/// First values; the same for each precision, before its rounding.
[[nodiscard]] inline float initial(std::size_t parameter, std::uint64_t index) noexcept
{
  return 0.3F * noise((parameter + 1) * 1'000'003 + index);
}
[[nodiscard]] inline float initial_gate(std::uint64_t index) noexcept
{
  return 0.75F + 0.5F * noise(77'000'000 + index);
}

/// a * b + c, with the same bits whether or not a compiler contracts it: the product is exact in double. std::fma for
/// each element would take most of the time of these trainings.
[[nodiscard]] constexpr float plus_product(float a, float b, float c) noexcept
{
  return static_cast<float>(static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c));
}

// Kernels on views, for `rows` rows. Those named `float*` are workspace in single precision.

/// out (rows x n) = [out +] a (rows x m) * b (m x n)
template <class A, class B>
void multiply(float* out, A a, B b, std::uint64_t m, std::uint64_t n, bool add = false,
              std::uint64_t rows = batch) noexcept
{
  for (std::uint64_t row = 0; row < rows; ++row) {
    float* const target = out + row * n;
    if (!add) std::memset(target, 0, n * sizeof(float));
    for (std::uint64_t k = 0; k < m; ++k) {
      const float factor = a.get(row * m + k);
      for (std::uint64_t col = 0; col < n; ++col) target[col] = plus_product(factor, b.get(k * n + col), target[col]);
    }
  }
}
/// out (rows x m) = [out +] a (rows x n) * b (m x n) transposed
template <class A, class B>
void multiply_transposed(float* out, A a, B b, std::uint64_t m, std::uint64_t n, bool add,
                         std::uint64_t rows = batch) noexcept
{
  for (std::uint64_t row = 0; row < rows; ++row)
    for (std::uint64_t k = 0; k < m; ++k) {
      float sum = 0;
      for (std::uint64_t col = 0; col < n; ++col) sum = plus_product(a.get(row * n + col), b.get(k * n + col), sum);
      out[row * m + k] = add ? out[row * m + k] + sum : sum;
    }
}
/// out (m x n) = beta * out + a (rows x m) transposed * b (rows x n); beta is 0 or 1, and 0 reads nothing
template <class Out, class A, class B>
void outer(Out out, A a, B b, std::uint64_t m, std::uint64_t n, float beta, std::uint64_t rows = batch) noexcept
{
  for (std::uint64_t k = 0; k < m; ++k)
    for (std::uint64_t col = 0; col < n; ++col) {
      float sum = beta == 0.0F ? 0.0F : out.get(k * n + col);
      for (std::uint64_t row = 0; row < rows; ++row) sum = plus_product(a.get(row * m + k), b.get(row * n + col), sum);
      out.set(k * n + col, sum);
    }
}
template <class Out>
void sum_rows(Out out, const float* a, std::uint64_t n, float beta, std::uint64_t rows = batch) noexcept
{
  for (std::uint64_t col = 0; col < n; ++col) {
    float sum = beta == 0.0F ? 0.0F : out.get(col);
    for (std::uint64_t row = 0; row < rows; ++row) sum += a[row * n + col];
    out.set(col, sum);
  }
}
template <class Bias>
void add_bias(float* out, Bias bias, std::uint64_t n, std::uint64_t rows = batch) noexcept
{
  for (std::uint64_t index = 0; index < rows * n; ++index) out[index] += bias.get(index % n);
}
template <class Out>
void store(Out out, const float* values, std::uint64_t count) noexcept
{
  for (std::uint64_t index = 0; index < count; ++index) out.set(index, values[index]);
}
template <class Out>
void store_softsign(Out out, const float* values, std::uint64_t count) noexcept
{
  for (std::uint64_t index = 0; index < count; ++index)
    out.set(index, values[index] / (1.0F + std::fabs(values[index])));
}
template <class Value>
void softsign_backward(float* slope, Value value, std::uint64_t count) noexcept
{
  for (std::uint64_t index = 0; index < count; ++index) {
    const float rest = 1.0F - std::fabs(value.get(index));
    slope[index] *= rest * rest;
  }
}
/// out = x + gate * delta
template <class Out, class X, class Gate>
void gate_forward(Out out, X x, Gate gate, const float* delta) noexcept
{
  for (std::uint64_t index = 0; index < batch * width; ++index)
    out.set(index, plus_product(gate.get(index % width), delta[index], x.get(index)));
}
template <class Gate>
void gate_backward(float* out, const float* flow, Gate gate) noexcept
{
  for (std::uint64_t index = 0; index < batch * width; ++index) out[index] = flow[index] * gate.get(index % width);
}
template <class Out, class Table>
void embed(Out out, Table table, std::uint64_t key) noexcept
{
  for (std::uint64_t row = 0; row < batch; ++row)
    for (std::uint64_t col = 0; col < width; ++col)
      out.set(row * width + col, table.get(word_of(key, row) * width + col));
}
/// Adds to the gradient, which already has the part of the head.
template <class Out>
void embed_backward(Out table, const float* slope, std::uint64_t key) noexcept
{
  for (std::uint64_t row = 0; row < batch; ++row)
    for (std::uint64_t col = 0; col < width; ++col) {
      const std::uint64_t index = word_of(key, row) * width + col;
      table.set(index, table.get(index) + slope[row * width + col]);
    }
}
/// loss[0] is the sum of squares; logits become their slopes, times `factor`; a spoilt one begins with infinity.
inline void square_loss(float* loss, float* logits, std::uint64_t key, float factor, bool spoilt) noexcept
{
  float sum = 0;
  for (std::uint64_t row = 0; row < batch; ++row)
    for (std::uint64_t word = 0; word < words; ++word) {
      float& value = logits[row * words + word];
      const float error = value - (word == word_of(key + 5000, row) ? 1.0F : 0.0F);
      sum = plus_product(error, error, sum);
      value = error * factor;
    }
  loss[0] = sum;
  if (spoilt) logits[0] = std::numeric_limits<float>::infinity();
}
/// Running means in rows that take turns, one more than a step has micro-batches, so that a repeated step finds its
/// first input and gives the same bits.
template <class X>
void update_running(float* running, X values, std::uint64_t turn, std::uint64_t rows) noexcept
{
  float* const fresh = running + (turn % rows) * width;
  const float* const old = running + ((turn + rows - 1) % rows) * width;
  for (std::uint64_t col = 0; col < width; ++col) fresh[col] = plus_product(0.1F, values.get(col) - old[col], old[col]);
}
template <class Values>
[[nodiscard]] float sum_of(Values values, std::uint64_t count) noexcept
{
  float sum = 0;
  for (std::uint64_t index = 0; index < count; ++index) sum += values.get(index);
  return sum;
}

// Kernels of networks that map inputs of `width` to as many outputs, whatever lies between.

template <class Out>
void draw_input(Out x, std::uint64_t key) noexcept
{
  for (std::uint64_t index = 0; index < batch * width; ++index) x.set(index, noise(key * 7919 + index));
}
/// next = x + delta
template <class Out, class X>
void residual(Out next, X x, const float* delta) noexcept
{
  for (std::uint64_t index = 0; index < batch * width; ++index) next.set(index, x.get(index) + delta[index]);
}
/// loss[0] is the sum of squares to numbers drawn for `key`; y becomes its slope, times `factor`; a spoilt one begins
/// with infinity.
inline void regression_loss(float* loss, float* y, std::uint64_t key, float factor, bool spoilt) noexcept
{
  float sum = 0;
  for (std::uint64_t index = 0; index < batch * width; ++index) {
    const float error = y[index] - noise(key * 104'729 + index);
    sum = plus_product(error, error, sum);
    y[index] = error * factor;
  }
  loss[0] = sum;
  if (spoilt) y[0] = std::numeric_limits<float>::infinity();
}

/// Floats as a view.
struct floats {
  float* data;
  [[nodiscard]] float get(std::uint64_t index) const noexcept { return data[index]; }
  void set(std::uint64_t index, float value) const noexcept { data[index] = value; }
};

/// All results of a training, piece by piece. Equal means equal bits.
class outcome {
 public:
  template <class Element>
  void add(std::string name, std::span<const Element> values)
  {
    const auto bytes = std::as_bytes(values);
    pieces_.push_back({std::move(name), {bytes.begin(), bytes.end()}});
  }
  template <class Element>
  void add(std::string name, const std::vector<Element>& values)
  {
    add(std::move(name), std::span<const Element>{values});
  }

  /// Names the first piece that differs, or nothing.
  [[nodiscard]] std::string difference(const outcome& other) const
  {
    if (pieces_.size() != other.pieces_.size()) return "the number of pieces";
    for (std::size_t index = 0; index < pieces_.size(); ++index) {
      if (pieces_[index].name != other.pieces_[index].name)
        return pieces_[index].name + " against " + other.pieces_[index].name;
      if (pieces_[index].bytes != other.pieces_[index].bytes) return describe(pieces_[index], other.pieces_[index]);
    }
    return {};
  }

 private:
  struct piece {
    std::string name;
    std::vector<std::byte> bytes;
  };
  [[nodiscard]] static std::string describe(const piece& left, const piece& right)
  {
    if (left.bytes.size() != right.bytes.size()) return left.name + ": the size";
    const auto [here, there] = std::mismatch(left.bytes.begin(), left.bytes.end(), right.bytes.begin());
    return left.name + " from byte " + std::to_string(here - left.bytes.begin()) + " of " +
           std::to_string(left.bytes.size());
  }

  std::vector<piece> pieces_;
};

}  // namespace support::mixed
