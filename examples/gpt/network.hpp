#pragma once

#include "kernels.hpp"
#include "model.hpp"

#include <chunkmem/chunkmem.hpp>

#include <utility>

namespace gpt {

/// Some positions of one row: the tokens there, and whether earlier positions stay as they are.
struct window {
  const unsigned char* tokens = nullptr;  ///< of position `first` and on
  kernels::index first = 0;
  kernels::index count = 0;

  /// A window from position 0 overwrites; a later one continues what lies there.
  [[nodiscard]] chunkmem::access how() const noexcept
  {
    return first == 0 ? chunkmem::access::write : chunkmem::access::read_write;
  }
};

/// The pieces that forward and backward share: pins, leases, and one product with its bias.
///
/// A weight is pinned for one kernel and released at once, so the device never needs more than one kernel's operands.
/// In a rehearsal the same pins and leases are taken and no kernel runs: they carry no bytes.
template <class Manager>
class network {
 public:
  using index = kernels::index;
  using tensor = chunkmem::tensor<float>;

  network(Manager& manager, const model& net)
      : m_{manager},
        net_{net},
        width_{static_cast<index>(net.size.width)},
        heads_{static_cast<index>(net.size.heads)},
        context_{static_cast<index>(net.size.context)}
  {
  }

  [[nodiscard]] Manager& manager() const noexcept { return m_; }
  [[nodiscard]] const model& handles() const noexcept { return net_; }
  [[nodiscard]] index width() const noexcept { return width_; }
  [[nodiscard]] index heads() const noexcept { return heads_; }
  [[nodiscard]] index context() const noexcept { return context_; }
  [[nodiscard]] bool computes() const { return !m_.rehearsing(); }

  [[nodiscard]] auto read(tensor which) const { return m_.acquire(which, chunkmem::access::read); }
  [[nodiscard]] auto scratch(index floats) const
  {
    return m_.lease(chunkmem::tier::device, chunkmem::bytes{static_cast<std::uint64_t>(floats) * sizeof(float)});
  }

  /// y = x * weight + bias
  void linear(const float* x, tensor weight, tensor bias, float* y, index rows, index inputs, index outputs) const
  {
    const auto weights = read(weight);
    const auto biases = read(bias);
    if (computes()) kernels::linear_forward(x, weights.data(), biases.data(), y, rows, inputs, outputs);
  }

  /// dx = dy * weight^T; the gradient of the bias is added up on the way. Leaves the weight's pin to the caller, who
  /// spends it on the weight's gradient.
  [[nodiscard]] auto linear_backward_input(const float* dy, tensor weight, tensor bias, float* dx, index rows,
                                           index inputs, index outputs) const
  {
    {
      const auto d_bias = m_.gradient(read(bias));
      if (computes()) kernels::bias_gradient(dy, d_bias.beta(), d_bias.data(), rows, outputs);
    }
    auto weights = read(weight);
    if (computes()) kernels::multiply_transposed(dy, weights.data(), dx, rows, inputs, outputs);
    return weights;
  }

  /// d_weight += x^T * dy
  template <class Pin>
  void weight_gradient(Pin weights, const float* x, const float* dy, index rows, index inputs, index outputs) const
  {
    const auto gradient = m_.gradient(std::move(weights));
    if (computes()) kernels::weight_gradient(x, dy, gradient.beta(), gradient.data(), rows, inputs, outputs);
  }

  /// y = the norm of x once more, from the statistics that the forward pass saved.
  void norm_again(const float* x, tensor norm, const float* statistics, float* y) const
  {
    const auto weights = read(norm);
    if (computes()) kernels::layer_norm_again(x, weights.data(), statistics, y, context_, width_);
  }

  /// dx += the gradient through the norm, and the gradient of the norm itself.
  void norm_backward(const float* dy, const float* x, tensor norm, const float* statistics, float* dx) const
  {
    auto weights = read(norm);
    if (computes()) {
      kernels::layer_norm_backward_input(dy, x, weights.data(), statistics, dx, context_, width_);
    }
    const auto d_norm = m_.gradient(std::move(weights));
    if (computes()) {
      kernels::layer_norm_backward_norm(dy, x, statistics, d_norm.beta(), d_norm.data(), context_, width_);
    }
  }

 private:
  Manager& m_;
  const model& net_;
  index width_;
  index heads_;
  index context_;
};

/// The floats of a lease. Null in a rehearsal.
template <class Lease>
[[nodiscard]] float* floats(const Lease& lease)
{
  return lease.template span<float>().data();
}

}  // namespace gpt
