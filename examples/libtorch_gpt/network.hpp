// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sampled_linear.hpp"
#include "torch.hpp"

#include <chunkmem/core/ids.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace libtorch_gpt {

/// The size of a GPT. `heads` divides `width`.
struct extents {
  std::int64_t layers = 4;
  std::int64_t width = 64;
  std::int64_t heads = 4;
  std::int64_t context = 64;  ///< tokens of one row
  std::int64_t batch = 2;     ///< rows of one micro-batch
  std::int64_t micro_batches = 1;
  std::int64_t vocabulary = 256;
};

/// A linear layer whose input has no other use in the backward pass: autograd saves it only for the weight's gradient.
struct lone_input {
  std::string name;
  std::int64_t width = 0;
  std::size_t weight = 0;  ///< the number of the parameter
};

/// Matrices have weight decay, gains and biases do not.
inline constexpr chunkmem::group_id decayed{0};
inline constexpr chunkmem::group_id kept{1};

/// A decoder with pre-norm blocks, learned positions and a head that is tied to the embedding.
/// Source: GPT-2 (Radford et al. 2019).
///
/// @tparam Parameters   the owner of the weights: chunked_parameters or plain_parameters
template <class Parameters>
class network {
 public:
  /// Declares all parameters. @param again   blocks are recomputed in the backward pass
  network(Parameters& parameters, const extents& size, bool again) : p_{parameters}, size_{size}, again_{again}
  {
    const std::int64_t w = size.width;
    embedding_ = {p_.add("wte", {size.vocabulary, w}, decayed), p_.add("wpe", {size.context, w}, decayed)};
    for (std::int64_t index = 0; index < size.layers; ++index) {
      const std::string name = "h." + std::to_string(index);
      blocks_.push_back({p_.add(name + ".ln_1.weight", {w}, kept), p_.add(name + ".ln_1.bias", {w}, kept),
                         p_.add(name + ".attn.weight", {3 * w, w}, decayed), p_.add(name + ".attn.bias", {3 * w}, kept),
                         p_.add(name + ".proj.weight", {w, w}, decayed), p_.add(name + ".proj.bias", {w}, kept),
                         p_.add(name + ".ln_2.weight", {w}, kept), p_.add(name + ".ln_2.bias", {w}, kept),
                         p_.add(name + ".up.weight", {4 * w, w}, decayed), p_.add(name + ".up.bias", {4 * w}, kept),
                         p_.add(name + ".down.weight", {w, 4 * w}, decayed), p_.add(name + ".down.bias", {w}, kept)});
    }
    head_ = {p_.add("ln_f.weight", {w}, kept), p_.add("ln_f.bias", {w}, kept), embedding_[0]};
  }

  /// Four of each block: after the two norms, after attention and after GELU. In the backward pass a norm and GELU read
  /// their own inputs, and softmax its output. The fused attention of PyTorch 2 may also read its own output, so that
  /// sampling the input after it frees nothing. The head's input is not among them, since its weight is the embedding
  /// too.
  [[nodiscard]] std::vector<lone_input> lone_inputs() const
  {
    std::vector<lone_input> all;
    for (std::size_t index = 0; index < blocks_.size(); ++index) {
      const layer& block = blocks_[index];
      const std::string name = "h." + std::to_string(index);
      all.push_back({name + ".attn", size_.width, block[2]});
      all.push_back({name + ".proj", size_.width, block[4]});
      all.push_back({name + ".up", size_.width, block[8]});
      all.push_back({name + ".down", 4 * size_.width, block[10]});
    }
    return all;
  }
  /// From now on these keepers keep rows of the inputs, one keeper for each input in their order. They outlive the
  /// network.
  void sample(std::vector<row_keeper*> keepers)
  {
    TORCH_CHECK(keepers.size() == 4 * blocks_.size(), "a keeper is needed for each of ", 4 * blocks_.size(),
                " lone inputs");
    keepers_ = std::move(keepers);
  }

  /// First values: normal, smaller where a block adds to the residual stream; gains 1, biases 0.
  void fill(std::uint64_t seed)
  {
    at::Generator random = at::detail::createCPUGenerator(seed);
    const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(size_.layers));
    const auto normal = [&](std::size_t which, double deviation) {
      p_.fill(which, [&](at::Tensor values) { values.normal_(0.0, deviation, random); });
    };
    const auto constant = [&](std::size_t which, double value) {
      p_.fill(which, [&](at::Tensor values) { values.fill_(value); });
    };
    for (const std::size_t which : embedding_) normal(which, 0.02);
    for (const layer& block : blocks_) {
      for (const std::size_t gain : {block[0], block[6]}) constant(gain, 1.0);
      for (const std::size_t bias : {block[1], block[3], block[5], block[7], block[9], block[11]}) constant(bias, 0.0);
      for (const std::size_t matrix : {block[2], block[8]}) normal(matrix, 0.02);
      for (const std::size_t matrix : {block[4], block[10]}) normal(matrix, residual);
    }
    constant(head_[0], 1.0);
    constant(head_[1], 0.0);
  }

  /// The mean cross entropy of the next token [nats]. @param tokens   [batch, context + 1], int64, on the device
  [[nodiscard]] at::Tensor loss(const at::Tensor& tokens)
  {
    const at::Tensor inputs = tokens.narrow(1, 0, size_.context);
    const at::Tensor targets = tokens.narrow(1, 1, size_.context).reshape({-1});
    at::Tensor x = embed(inputs);
    for (std::size_t index = 0; index < blocks_.size(); ++index) {
      const auto body = [this, index](const at::Tensor& input) { return block(index, input); };
      x = again_ ? p_.run_again(blocks_[index], x, body) : p_.run(blocks_[index], x, body);
    }
    return p_.run(head_, x, [&](const at::Tensor& input) {
      const at::Tensor normed = at::layer_norm(input, {size_.width}, weight(head_, 0), weight(head_, 1));
      const at::Tensor logits = at::linear(normed, weight(head_, 2));
      return at::cross_entropy_loss(logits.reshape({-1, size_.vocabulary}).to(at::kFloat), targets);
    });
  }

 private:
  using layer = std::vector<std::size_t>;

  [[nodiscard]] const at::Tensor& weight(const layer& of, std::size_t which) const { return p_.tensor(of[which]); }

  /// The backward pass of an embedding does not read the table, so no hold is needed there.
  [[nodiscard]] at::Tensor embed(const at::Tensor& inputs)
  {
    const typename Parameters::hold tables{p_, embedding_};
    return at::embedding(weight(embedding_, 0), inputs) + weight(embedding_, 1);
  }

  [[nodiscard]] at::Tensor block(std::size_t index, const at::Tensor& input) const
  {
    const layer& of = blocks_[index];
    const auto linear = [&](const at::Tensor& in, std::size_t matrix, std::size_t which) {
      row_keeper* const keeper = keepers_.empty() ? nullptr : keepers_[4 * index + which];
      return sampled_linear::run(in, weight(of, matrix), weight(of, matrix + 1), keeper);
    };
    const at::Tensor first = at::layer_norm(input, {size_.width}, weight(of, 0), weight(of, 1));
    const at::Tensor x = input + linear(attention(linear(first, 2, 0)), 4, 1);
    const at::Tensor second = at::layer_norm(x, {size_.width}, weight(of, 6), weight(of, 7));
    return x + linear(at::gelu(linear(second, 8, 2), "tanh"), 10, 3);
  }

  [[nodiscard]] at::Tensor attention(const at::Tensor& qkv) const
  {
    const std::int64_t rows = qkv.size(0), steps = qkv.size(1), depth = size_.width / size_.heads;
    const auto parts = qkv.view({rows, steps, 3, size_.heads, depth}).permute({2, 0, 3, 1, 4}).unbind(0);
#if TORCH_VERSION_MAJOR >= 2
    const at::Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
#else
    const at::Tensor scores = parts[0].matmul(parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(depth));
    const at::Tensor later = at::ones({steps, steps}, qkv.options().dtype(at::kBool)).triu(1);
    const at::Tensor mixed = scores.masked_fill(later, -INFINITY).softmax(-1).matmul(parts[2]);
#endif
    return mixed.transpose(1, 2).reshape({rows, steps, size_.width});
  }

  Parameters& p_;
  extents size_;
  bool again_;
  layer embedding_, head_;
  std::vector<layer> blocks_;
  std::vector<row_keeper*> keepers_{};  // of the lone inputs; empty where all rows are kept
};

}  // namespace libtorch_gpt
