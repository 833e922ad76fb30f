// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "loss_kernels.hpp"
#include "network.hpp"
#include "token_kernels.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace gpt::cuda {

/// Both ends of the model: embedding, and final norm with logits against the table of tokens, loss, and the backward
/// pass of them.
///
/// Logits live in scratch: forward and backward of the head run together.
template <class Manager, class Math>
class ends {
 public:
  using network_type = network<Manager, Math>;
  using scratch_type = typename network_type::scratch_type;

  explicit ends(const network_type& net) : n_{net}, head_{blocks_of_head()}, embedding_{blocks_of_embedding()} {}

  /// Bytes of the windows of a micro-batch, each with the byte after it.
  [[nodiscard]] std::size_t window_bytes() const noexcept { return std::size_t{size().windows} * (size().context + 1); }
  /// Sends the windows to the device as arguments of kernels.
  void send(std::span<const unsigned char> windows, unsigned char* to) const
  {
    if (!n_.computes()) return;
    for (std::size_t index = 0; index < windows.size(); index += write_bytes_kernel::most) {
      write_bytes_kernel body;
      body.to = to + index;
      body.size = static_cast<std::uint32_t>(std::min<std::size_t>(windows.size() - index, write_bytes_kernel::most));
      std::memcpy(body.values, windows.data() + index, body.size);
      n_.run(body);
    }
  }
  [[nodiscard]] token_windows windows_at(const unsigned char* bytes) const
  {
    return {bytes, size().context, size().windows};
  }

  void embed(const token_windows& text) const
  {
    const auto tokens = n_.read(n_.handles().token_table);
    const auto positions = n_.read(n_.handles().position_table);
    const auto x = n_.write(n_.handles().inputs.front());
    n_.run(embed_kernel{text, tokens.data(), positions.data(), x.data(), size().width});
  }

  /// The loss of all rows, summed. @param total   one number in device memory
  void loss(const token_windows& text, double* total) const
  {
    const auto room = n_.room(head_.plan);
    find_logits(room);
    n_.run(cross_entropy_kernel{text, room[head_.logits], nullptr, room[head_.losses], 1.0F});
    n_.run(loss_total_kernel{room[head_.losses], total, size().rows});
    n_.manager().drop(n_.handles().inputs.back());
  }

  /// The logits of one row. @param visit   called with their device address, null in a rehearsal; they are freed
  /// afterwards
  template <class Visit>
  void logits(std::uint64_t row, Visit visit) const
  {
    const auto room = n_.room(head_.plan);
    find_logits(room);
    const float* const all = room[head_.logits];
    visit(all == nullptr ? nullptr : all + row * vocabulary);
    n_.manager().drop(n_.handles().inputs.back());
  }

  /// Loss and backward pass of the head. Drops the output of the last layer.
  /// @param scale   weight of the loss of one position in the sum that is differentiated
  /// @param slope   written: the gradient of the last layer's output, [rows, width]
  void head_backward(const token_windows& text, float scale, double* total, bf16* slope, bool last) const
  {
    const batch_model& net = n_.handles();
    const std::uint32_t width = size().width;
    {
      const auto room = n_.room(head_.plan);
      find_logits(room);
      n_.run(cross_entropy_kernel{text, room[head_.logits], room[head_.d_logits], room[head_.losses], scale});
      n_.run(loss_total_kernel{room[head_.losses], total, size().rows});
      auto table = n_.read(net.token_table);
      n_.multiply({.shape = plain_product(size().rows, vocabulary, width),
                   .left = room[head_.d_logits],
                   .right = table.data(),
                   .out = room[head_.d_normed]},
                  room);
      n_.product_gradient(std::move(table), room[head_.d_logits], room[head_.normed],
                          weight_product(size().rows, vocabulary, width), false, room);  // the embedding adds its part
      const auto x = n_.read(net.inputs.back());
      n_.norm_backward(net.final_norm,
                       {.dy = room[head_.d_normed],
                        .x = x.data(),
                        .norm = {},
                        .statistics = room[head_.statistics],
                        .added = nullptr,
                        .dx = slope,
                        .rows = {},
                        .width = {}},
                       room[head_.sums], last);
    }
    n_.manager().drop(net.inputs.back());
  }

  void embedding_backward(const token_windows& text, const bf16* slope, bool last) const
  {
    const std::uint32_t width = size().width;
    auto& m = n_.manager();
    {
      const auto room = n_.room(embedding_.plan);
      n_.run(sort_rows_kernel{text, room[embedding_.order], room[embedding_.begins]});
      auto tokens = m.gradient(n_.handles().token_table.template as<bf16>(), agent::compute);
      n_.run(token_gradient_kernel{slope, room[embedding_.order], room[embedding_.begins], tokens.data(), width,
                                   tokens.beta()});
      if (last) m.gradient_done(std::move(tokens));
    }
    auto positions = m.gradient(n_.handles().position_table.template as<bf16>(), agent::compute);
    n_.run(position_gradient_kernel{slope, positions.data(), size().windows, size().context, width, positions.beta()});
    if (last) m.gradient_done(std::move(positions));
  }

 private:
  struct head_blocks {
    block_plan plan = network_type::plan_with_workspace();
    block<bf16> normed, d_normed, d_logits;
    block<float> statistics, logits, losses, sums;
  };
  struct embedding_blocks {
    block_plan plan;
    block<std::uint32_t> order, begins;
  };

  [[nodiscard]] const sizes& size() const noexcept { return n_.size(); }

  [[nodiscard]] head_blocks blocks_of_head() const
  {
    head_blocks it;
    it.normed = it.plan.template add<bf16>(size().numbers(size().width));
    it.d_normed = it.plan.template add<bf16>(size().numbers(size().width));
    it.d_logits = it.plan.template add<bf16>(size().numbers(vocabulary));
    it.logits = it.plan.template add<float>(size().numbers(vocabulary));
    it.statistics = it.plan.template add<float>(size().numbers(2));
    it.losses = it.plan.template add<float>(size().rows);
    it.sums = it.plan.template add<float>(std::uint64_t{slabs_of(size().rows)} * 2 * size().width);
    return it;
  }
  [[nodiscard]] embedding_blocks blocks_of_embedding() const
  {
    embedding_blocks it;
    it.order = it.plan.template add<std::uint32_t>(size().rows);
    it.begins = it.plan.template add<std::uint32_t>(vocabulary + 1);
    return it;
  }

  void find_logits(const scratch_type& room) const
  {
    const auto x = n_.read(n_.handles().inputs.back());
    n_.norm_forward(n_.handles().final_norm, x.data(), room[head_.normed], room[head_.statistics]);
    const auto table = n_.read(n_.handles().token_table);
    product_shape shape = input_product(size().rows, vocabulary, size().width);
    shape.is_wide = true;
    n_.multiply({.shape = shape, .left = room[head_.normed], .right = table.data(), .out = room[head_.logits]}, room);
  }

  const network_type& n_;
  head_blocks head_;
  embedding_blocks embedding_;
};

}  // namespace gpt::cuda
