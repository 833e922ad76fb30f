// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention_kernels.hpp"
#include "column_kernels.hpp"
#include "extents.hpp"
#include "norm_kernels.hpp"
#include "parameters.hpp"
#include "product.hpp"
#include "scratch.hpp"

#include <chunkmem/chunkmem.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gpt::cuda {

using chunkmem::access;
using chunkmem::agent;

/// Handles of every tensor: weights, and the activations that the forward pass keeps of a micro-batch: the input of
/// each layer. The residual stream is bf16 as the weights are, so kept inputs have half the bytes of float32 when they
/// leave the device.
struct batch_model : parameter_set {
  std::vector<chunkmem::tensor<bf16>> inputs;  ///< [batch * context, width], the last is the output of the last layer
};

/// @param precision   bfloat16
template <class Manager>
[[nodiscard]] batch_model declare_batch_model(Manager& manager, const extents& size, chunkmem::dtype precision)
{
  chunkmem::expects(precision == chunkmem::dtype::bfloat16, "weights of this trainer are bf16 (leave --precision out)");
  batch_model net;
  declare_parameters(manager, net, size, precision);
  for (std::size_t layer = 0; layer <= size.layers; ++layer)
    net.inputs.push_back(
        manager.template add<bf16>({size.batch * size.context, size.width}, chunkmem::role::activation));
  return net;
}

/// Extents in the types of the kernels.
struct sizes {
  explicit sizes(const extents& from)
      : width{static_cast<std::uint32_t>(from.width)},
        heads{static_cast<std::uint32_t>(from.heads)},
        context{static_cast<std::uint32_t>(from.context)},
        windows{static_cast<std::uint32_t>(from.batch)},
        rows{context * windows},
        head_width{width / heads}
  {
  }
  std::uint32_t width, heads, context;
  std::uint32_t windows;  ///< of a micro-batch
  std::uint32_t rows;     ///< of all windows
  std::uint32_t head_width;

  [[nodiscard]] std::uint64_t numbers(std::uint32_t columns) const noexcept { return std::uint64_t{rows} * columns; }
};

/// The parts that all passes share: pins and leases for the compute stream, and work for it.
///
/// A rehearsal takes the same pins and leases and runs no kernel; it passes the shapes of products to `Math`, which
/// chooses their algorithms.
///
/// @tparam Math   `launch(backend, who, body)`, `prepare(shape)`, `multiply(backend, who, product, workspace)` and
///                `workspace_bytes`: cuda_math on a GPU
template <class Manager, class Math>
class network {
 public:
  using scratch_type = scratch<Manager>;
  static constexpr bool can_sample = !requires(Manager& m) { m.ranks(); };  // a model over ranks keeps all rows

  network(Manager& manager, const batch_model& net, Math& math) : m_{manager}, net_{net}, math_{math}, size_{net.size}
  {
  }

  [[nodiscard]] Manager& manager() const noexcept { return m_; }
  [[nodiscard]] const batch_model& handles() const noexcept { return net_; }
  [[nodiscard]] const sizes& size() const noexcept { return size_; }
  [[nodiscard]] bool computes() const { return !m_.rehearsing(); }

  [[nodiscard]] auto read(const weight& which) const { return read(which.as<bf16>()); }
  [[nodiscard]] auto read(chunkmem::tensor<bf16> which) const
  {
    return m_.acquire(which, access::read, agent::compute);
  }
  [[nodiscard]] auto write(chunkmem::tensor<bf16> which) const
  {
    return m_.acquire(which, access::write, agent::compute);
  }
  [[nodiscard]] scratch_type room(const block_plan& plan) const { return {m_, plan}; }

  /// A block plan whose first block is the workspace of products.
  [[nodiscard]] static block_plan plan_with_workspace()
  {
    block_plan plan;
    (void)plan.add<std::byte>(Math::workspace_bytes);
    return plan;
  }

  template <class Body>
  void run(const Body& body) const
  {
    if (computes()) math_.launch(m_.backend(), agent::compute, body);
  }
  /// @param room   its first block is the workspace
  void multiply(const product& what, const scratch_type& room) const
  {
    if (computes())
      math_.multiply(m_.backend(), agent::compute, what, room[block<std::byte>{}]);
    else
      math_.prepare(what.shape);
  }

  /// y = x * weight + bias, or + bias + added
  void linear(const bf16* x, const weight& matrix, const weight& bias, bf16* y, product_shape shape,
              const scratch_type& room, const bf16* added = nullptr, bool adds = false) const
  {
    const auto values = read(matrix);
    const auto biases = read(bias);
    shape.has_bias = true;
    multiply({.shape = shape,
              .left = x,
              .right = values.data(),
              .out = y,
              .bias = biases.data(),
              .added = added,
              .beta = adds ? 1.0F : 0.0F},
             room);
  }

  /// Writes, or adds to, a gradient by one product. @param weight   its pin, which is consumed
  template <class Pin>
  void product_gradient(Pin&& weight, const bf16* left, const bf16* right, const product_shape& shape, bool last,
                        const scratch_type& room) const
  {
    auto gradient = m_.gradient(std::forward<Pin>(weight));
    multiply({.shape = shape, .left = left, .right = right, .out = gradient.data(), .beta = gradient.beta()}, room);
    if (last) m_.gradient_done(std::move(gradient));
  }

  /// Adds the rows of dy to the gradient of a bias. @param sums   room for the sums of slabs
  void bias_gradient(const weight& bias, const bf16* dy, std::uint32_t columns, float* sums, bool last) const
  {
    run(slab_sums_kernel{dy, sums, size_.rows, columns});
    add_slabs(m_.gradient(bias.as<bf16>(), agent::compute), sums, columns, last);
  }

  /// The backward pass of a norm: dx = added + its gradient, and the gradient of {gain, bias}.
  void norm_backward(const weight& norm, const norm_backward_kernel& work, float* sums, bool last) const
  {
    norm_backward_kernel body = work;
    auto values = read(norm);
    body.norm = values.data();
    body.rows = size_.rows;
    body.width = size_.width;
    run(norm_slab_sums_kernel{body.dy, body.x, body.statistics, sums, body.rows, body.width});
    run(body);
    add_slabs(m_.gradient(std::move(values)), sums, 2 * size_.width, last);
  }

  /// y = the norm of x, and its statistics.
  void norm_forward(const weight& norm, const bf16* x, bf16* y, float* statistics) const
  {
    const auto values = read(norm);
    run(norm_forward_kernel{x, values.data(), y, statistics, size_.rows, size_.width});
  }

 private:
  template <class Gradient>
  void add_slabs(Gradient&& gradient, const float* sums, std::uint32_t columns, bool last) const
  {
    run(slab_total_kernel{sums, gradient.data(), slabs_of(size_.rows), columns, gradient.beta()});
    if (last) m_.gradient_done(std::forward<Gradient>(gradient));
  }

  Manager& m_;
  const batch_model& net_;
  Math& math_;
  sizes size_;
};

}  // namespace gpt::cuda
