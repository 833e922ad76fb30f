// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "network.hpp"

#include <cmath>

namespace gpt::cuda {

/// Causal attention by batched products and a softmax kernel, window by window and for some heads at once, so that the
/// room for scores does not grow with the batch.
template <class Manager, class Math>
class attention {
 public:
  using network_type = network<Manager, Math>;
  using scratch_type = typename network_type::scratch_type;

  /// Room for the scores of the heads that run at once.
  struct blocks {
    block<float> scores;
    block<bf16> weights, d_scores;
  };

  explicit attention(const network_type& net) : n_{net}, heads_{heads_at_once(net.size())} {}

  [[nodiscard]] blocks plan_forward(block_plan& plan) const
  {
    return {plan.add<float>(numbers()), plan.add<bf16>(numbers()), {}};
  }
  [[nodiscard]] blocks plan_backward(block_plan& plan) const
  {
    return {plan.add<float>(numbers()), plan.add<bf16>(numbers()), plan.add<bf16>(numbers())};
  }

  /// @param qkv   [rows, 3, width]   @param out   [rows, width]
  void forward(const bf16* qkv, bf16* out, const scratch_type& room, const blocks& in) const
  {
    for_each_part([&](std::uint64_t row, std::uint32_t head) {
      const heads_of part = part_at(qkv, row, head);
      find_weights(part, room, in);
      n_.multiply({.shape = by_values({size().width, size().head_width}),
                   .left = room[in.weights],
                   .right = part.values,
                   .out = moved(out, row * size().width + head * size().head_width)},
                  room);
    });
  }

  /// The gradient of qkv from that of `out`; weights are recomputed.
  void backward(const bf16* qkv, const bf16* d_out, bf16* d_qkv, const scratch_type& room, const blocks& in) const
  {
    for_each_part([&](std::uint64_t row, std::uint32_t head) {
      const heads_of part = part_at(qkv, row, head);
      const bf16* const slope = moved(d_out, row * size().width + head * size().head_width);
      bf16* const d_queries = moved(d_qkv, row * 3 * size().width + head * size().head_width);
      find_weights(part, room, in);
      const operand rows_of_qkv{3 * size().width, size().head_width};
      n_.multiply({.shape = over_queries({size().width, size().head_width}, rows_of_qkv),
                   .left = room[in.weights],
                   .right = slope,
                   .out = moved(d_queries, 2 * size().width)},
                  room);
      n_.multiply({.shape = by_pairs({size().width, size().head_width}),
                   .left = slope,
                   .right = part.values,
                   .out = room[in.scores]},
                  room);
      n_.run(softmax_backward_kernel{room[in.weights], room[in.scores], room[in.d_scores], heads_, size().context,
                                     scale()});
      n_.multiply({.shape = by_values(rows_of_qkv), .left = room[in.d_scores], .right = part.keys, .out = d_queries},
                  room);
      n_.multiply({.shape = over_queries(rows_of_qkv, rows_of_qkv),
                   .left = room[in.d_scores],
                   .right = part.queries,
                   .out = moved(d_queries, size().width)},
                  room);
    });
  }

 private:
  struct heads_of {
    const bf16 *queries, *keys, *values;
  };

  [[nodiscard]] const sizes& size() const noexcept { return n_.size(); }
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(size().head_width)); }
  [[nodiscard]] std::uint32_t stride() const noexcept { return score_stride(size().context); }
  [[nodiscard]] std::uint64_t numbers() const noexcept { return std::uint64_t{heads_} * size().context * stride(); }

  /// The number of heads whose scores fit 64 MiB, a divisor of all heads, so that each product has one shape.
  [[nodiscard]] static std::uint32_t heads_at_once(const sizes& size)
  {
    const std::uint64_t each = std::uint64_t{size.context} * score_stride(size.context) * 8;
    std::uint32_t most = size.heads;
    while (most > 1 && (size.heads % most != 0 || most * each > (std::uint64_t{64} << 20))) --most;
    return most;
  }

  /// `work(row, head)` for the first row of each window and the first head of each part.
  template <class Work>
  void for_each_part(Work work) const
  {
    for (std::uint64_t window = 0; window < size().windows; ++window)
      for (std::uint32_t head = 0; head < size().heads; head += heads_) work(window * size().context, head);
  }

  /// Pointers are null in a rehearsal, and stay so.
  template <class Element>
  [[nodiscard]] static Element* moved(Element* from, std::uint64_t by) noexcept
  {
    return from == nullptr ? nullptr : from + by;
  }
  [[nodiscard]] heads_of part_at(const bf16* qkv, std::uint64_t row, std::uint32_t head) const
  {
    const bf16* const first = moved(qkv, row * 3 * size().width + head * size().head_width);
    return {first, moved(first, size().width), moved(first, 2 * size().width)};
  }

  /// Softmax of the scaled scores of some heads.
  void find_weights(const heads_of& part, const scratch_type& room, const blocks& in) const
  {
    n_.multiply({.shape = by_pairs({3 * size().width, size().head_width}),
                 .left = part.queries,
                 .right = part.keys,
                 .out = room[in.scores],
                 .scale = scale()},
                room);
    n_.run(softmax_forward_kernel{room[in.scores], room[in.weights], heads_, size().context});
  }

  [[nodiscard]] operand pairs() const noexcept { return {stride(), std::uint64_t{size().context} * stride()}; }
  /// [queries, keys] = left [queries, head] * right [keys, head]^T; right is a part of qkv
  [[nodiscard]] product_shape by_pairs(const operand& left) const
  {
    const operand right{3 * size().width, size().head_width, true};
    return {size().context, size().context, size().head_width, left, right, pairs(), true, false, heads_};
  }
  /// [queries, head] = left [queries, keys] * right [keys, head], right being part of qkv
  [[nodiscard]] product_shape by_values(const operand& out) const
  {
    const operand right{3 * size().width, size().head_width};
    return {size().context, size().head_width, size().context, pairs(), right, out, false, false, heads_};
  }
  /// [keys, head] = left [queries, keys]^T * right [queries, head]
  [[nodiscard]] product_shape over_queries(const operand& right, const operand& out) const
  {
    operand left = pairs();
    left.is_transposed = true;
    return {size().context, size().head_width, size().context, left, right, out, false, false, heads_};
  }

  const network_type& n_;
  std::uint32_t heads_;
};

}  // namespace gpt::cuda
