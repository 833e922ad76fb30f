// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/optimizer/adam.hpp>
#include <support/hostile.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

/// A toy network and its training on plain vectors: the reference that a managed run must equal bit for bit.
///
/// Residual blocks of two matrices on a tied table: its rows are the inputs, and the head multiplies by it again. The
/// arithmetic is in kernels on pointers, which the managed trainer calls too; only the owner of the bytes differs.
namespace support::toy {

inline constexpr std::uint64_t batch = 3;
inline constexpr std::uint64_t width = 32;
inline constexpr std::uint64_t hidden = 72;
inline constexpr std::uint64_t words = 40;
inline constexpr std::uint32_t layers = 3;
inline constexpr float learning_rate = 0.01F;

/// The same number on every machine, between -1/2 and 1/2.
[[nodiscard]] inline float noise(std::uint64_t key) noexcept
{
  return static_cast<float>(scrambled(key) >> 40) / 16777216.0F - 0.5F;
}
[[nodiscard]] inline std::uint64_t word_of(std::uint32_t step, std::uint64_t row) noexcept
{
  return static_cast<std::uint64_t>((noise(std::uint64_t{step} * 977 + row) + 0.5F) * 39.99F);
}
inline void fill(std::span<float> values, std::uint64_t key) noexcept
{
  for (std::size_t index = 0; index < values.size(); ++index) values[index] = 0.2F * noise(key * 1'000'003 + index);
}

// Kernels. Not inlined, so that both trainers run the same instructions.

/// out (rows x n) = [out +] a (rows x m) * b (m x n)
[[gnu::noinline]] inline void multiply(float* out, const float* a, const float* b, std::uint64_t m, std::uint64_t n,
                                       bool add) noexcept
{
  for (std::uint64_t row = 0; row < batch; ++row) {
    float* const target = out + row * n;
    if (!add) std::memset(target, 0, n * sizeof(float));
    for (std::uint64_t k = 0; k < m; ++k) {
      const float factor = a[row * m + k];
      for (std::uint64_t col = 0; col < n; ++col) target[col] += factor * b[k * n + col];
    }
  }
}
/// out (rows x m) = [out +] a (rows x n) * b (m x n) transposed
[[gnu::noinline]] inline void multiply_transposed(float* out, const float* a, const float* b, std::uint64_t m,
                                                  std::uint64_t n, bool add) noexcept
{
  for (std::uint64_t row = 0; row < batch; ++row)
    for (std::uint64_t k = 0; k < m; ++k) {
      float sum = 0;
      for (std::uint64_t col = 0; col < n; ++col) sum += a[row * n + col] * b[k * n + col];
      out[row * m + k] = add ? out[row * m + k] + sum : sum;
    }
}
/// out (m x n) = beta * out + a (rows x m) transposed * b (rows x n); beta is 0 or 1, and 0 reads nothing
[[gnu::noinline]] inline void outer(float* out, const float* a, const float* b, std::uint64_t m, std::uint64_t n,
                                    float beta) noexcept
{
  for (std::uint64_t k = 0; k < m; ++k) {
    float* const target = out + k * n;
    if (beta == 0.0F) std::memset(target, 0, n * sizeof(float));
    for (std::uint64_t row = 0; row < batch; ++row) {
      const float factor = a[row * m + k];
      for (std::uint64_t col = 0; col < n; ++col) target[col] += factor * b[row * n + col];
    }
  }
}
[[gnu::noinline]] inline void add_bias(float* out, const float* bias, std::uint64_t n) noexcept
{
  for (std::uint64_t index = 0; index < batch * n; ++index) out[index] += bias[index % n];
}
[[gnu::noinline]] inline void sum_rows(float* out, const float* a, std::uint64_t n, float beta) noexcept
{
  for (std::uint64_t col = 0; col < n; ++col) {
    float sum = beta == 0.0F ? 0.0F : out[col];
    for (std::uint64_t row = 0; row < batch; ++row) sum += a[row * n + col];
    out[col] = sum;
  }
}
[[gnu::noinline]] inline void softsign(float* values, std::uint64_t count) noexcept
{
  for (std::uint64_t index = 0; index < count; ++index)
    values[index] /= 1.0F + (values[index] < 0 ? -values[index] : values[index]);
}
[[gnu::noinline]] inline void softsign_backward(float* slope, const float* value, std::uint64_t count) noexcept
{
  for (std::uint64_t index = 0; index < count; ++index) {
    const float rest = 1.0F - (value[index] < 0 ? -value[index] : value[index]);
    slope[index] *= rest * rest;
  }
}
[[gnu::noinline]] inline void embed(float* out, const float* table, std::uint32_t step) noexcept
{
  for (std::uint64_t row = 0; row < batch; ++row)
    std::memcpy(out + row * width, table + word_of(step, row) * width, width * sizeof(float));
}
[[gnu::noinline]] inline void embed_backward(float* table, const float* slope, std::uint32_t step) noexcept
{
  for (std::uint64_t row = 0; row < batch; ++row)
    for (std::uint64_t col = 0; col < width; ++col) table[word_of(step, row) * width + col] += slope[row * width + col];
}
/// logits become their slopes; loss[0] is the sum of squares
[[gnu::noinline]] inline void square_loss(float* loss, float* logits, std::uint32_t step) noexcept
{
  float sum = 0;
  for (std::uint64_t row = 0; row < batch; ++row)
    for (std::uint64_t word = 0; word < words; ++word) {
      float& value = logits[row * words + word];
      value -= word == word_of(step + 1, row) ? 1.0F : 0.0F;
      sum += value * value;
    }
  loss[0] = sum;
}
/// Running means in two halves that take turns, so that a repeated step gives the same bits.
[[gnu::noinline]] inline void update_running(float* running, const float* values, std::uint32_t step) noexcept
{
  float* const fresh = running + (step % 2) * width;
  const float* const old = running + (1 - step % 2) * width;
  for (std::uint64_t col = 0; col < width; ++col) fresh[col] = 0.9F * old[col] + 0.1F * values[col];
}
[[nodiscard]] inline float sum_of(std::span<const float> values) noexcept
{
  float sum = 0;
  for (const float value : values) sum += value;
  return sum;
}

/// All results of a training. Equal means equal bits.
struct outcome {
  std::vector<float> losses;  ///< of training and evaluation, in order
  std::vector<std::vector<float>> values;
  std::vector<std::vector<float>> momenta;
  std::vector<std::vector<float>> variances;
  std::vector<float> running;

  /// Names the first difference, or returns an empty text.
  [[nodiscard]] std::string difference(const outcome& other) const
  {
    if (differs(losses, other.losses)) return "losses";
    if (differs(running, other.running)) return "running means";
    for (std::size_t index = 0; index < values.size(); ++index) {
      if (differs(values[index], other.values[index])) return "value of parameter " + std::to_string(index);
      if (differs(momenta[index], other.momenta[index])) return "momentum of parameter " + std::to_string(index);
      if (differs(variances[index], other.variances[index])) return "variance of parameter " + std::to_string(index);
    }
    return {};
  }

 private:
  [[nodiscard]] static bool differs(const std::vector<float>& left, const std::vector<float>& right) noexcept
  {
    if (left.size() != right.size()) return true;
    return !left.empty() && std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) != 0;
  }
};

/// Extents of the parameters in the order of declaration: table, then each layer's, then one that no step uses.
[[nodiscard]] inline std::vector<std::array<std::uint64_t, 2>> parameter_extents()
{
  std::vector<std::array<std::uint64_t, 2>> all{{words, width}};
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    for (const auto& extents : {std::array{width, hidden}, std::array{std::uint64_t{1}, hidden},
                                std::array{hidden, width}, std::array{std::uint64_t{1}, width}})
      all.push_back(extents);
  all.push_back({8, 8});
  return all;
}
enum class part : std::uint32_t { up, up_bias, down, down_bias };
[[nodiscard]] constexpr std::size_t index_of(std::uint32_t layer, part which) noexcept
{
  return 1 + std::size_t{layer} * 4 + static_cast<std::size_t>(which);
}
[[nodiscard]] constexpr bool evaluates_after(std::uint32_t step) noexcept
{
  return step % 2 == 1;
}

/// The reference: vectors, loops, nothing else.
class plain_model {
 public:
  plain_model()
  {
    for (const auto& extents : parameter_extents()) {
      const std::size_t size = extents[0] * extents[1];
      result_.values.emplace_back(size);
      result_.momenta.emplace_back(size, 0.0F);
      result_.variances.emplace_back(size, 0.0F);
      gradients_.emplace_back(size);
      fill(result_.values.back(), result_.values.size());
    }
    result_.running.assign(2 * width, 0.0F);
    x_.assign(layers + 1, std::vector<float>(batch * width));
    h_.assign(layers, std::vector<float>(batch * hidden));
  }

  outcome train(std::uint32_t steps, bool evaluates = true)
  {
    for (std::uint32_t step = 0; step < steps; ++step) {
      forward(step);
      update_running(result_.running.data(), x_[layers].data(), step);
      result_.losses.push_back(loss_ + (sum_of(value(0, part::up)) + sum_of(value(1, part::down_bias))));
      backward(step);
      update();
      if (!evaluates || !evaluates_after(step)) continue;
      forward(step + 1000);
      result_.losses.push_back(loss_);
    }
    return result_;
  }

 private:
  std::vector<float>& value(std::uint32_t layer, part which) { return result_.values[index_of(layer, which)]; }
  std::vector<float>& gradient(std::uint32_t layer, part which) { return gradients_[index_of(layer, which)]; }

  void forward(std::uint32_t step)
  {
    embed(x_[0].data(), result_.values[0].data(), step);
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      multiply(h_[layer].data(), x_[layer].data(), value(layer, part::up).data(), width, hidden, false);
      add_bias(h_[layer].data(), value(layer, part::up_bias).data(), hidden);
      softsign(h_[layer].data(), batch * hidden);
      x_[layer + 1] = x_[layer];
      multiply(x_[layer + 1].data(), h_[layer].data(), value(layer, part::down).data(), hidden, width, true);
      add_bias(x_[layer + 1].data(), value(layer, part::down_bias).data(), width);
    }
    multiply_transposed(logits_.data(), x_[layers].data(), result_.values[0].data(), words, width, false);
    square_loss(&loss_, logits_.data(), step);
  }

  void backward(std::uint32_t step)
  {
    multiply(flow_.data(), logits_.data(), result_.values[0].data(), words, width, false);
    outer(gradients_[0].data(), logits_.data(), x_[layers].data(), words, width, 0.0F);
    for (std::uint32_t layer = layers; layer-- > 0;) {
      sum_rows(gradient(layer, part::down_bias).data(), flow_.data(), width, 0.0F);
      multiply_transposed(slope_.data(), flow_.data(), value(layer, part::down).data(), hidden, width, false);
      outer(gradient(layer, part::down).data(), h_[layer].data(), flow_.data(), hidden, width, 0.0F);
      softsign_backward(slope_.data(), h_[layer].data(), batch * hidden);
      sum_rows(gradient(layer, part::up_bias).data(), slope_.data(), hidden, 0.0F);
      multiply_transposed(flow_.data(), slope_.data(), value(layer, part::up).data(), width, hidden, true);
      outer(gradient(layer, part::up).data(), x_[layer].data(), slope_.data(), width, hidden, 0.0F);
    }
    embed_backward(gradients_[0].data(), flow_.data(), step);
  }

  void update()
  {
    ++updates_;
    for (std::size_t index = 0; index + 1 < gradients_.size(); ++index)  // the last one has no gradient
      kernel_.update({result_.values[index], gradients_[index], {result_.momenta[index], result_.variances[index]}},
                     {learning_rate, updates_});
  }

  chunkmem::optimizer::adam kernel_{{.weight_decay = 0.01F}};
  std::uint64_t updates_ = 0;
  outcome result_;
  float loss_ = 0;
  std::vector<std::vector<float>> gradients_;
  std::vector<std::vector<float>> x_, h_;
  std::vector<float> logits_ = std::vector<float>(batch * words);
  std::vector<float> flow_ = std::vector<float>(batch * width);
  std::vector<float> slope_ = std::vector<float>(batch * hidden);
};

}  // namespace support::toy
