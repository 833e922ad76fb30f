// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels.hpp"
#include "model.hpp"
#include "projection_samples.hpp"
#include "virtual_clocks.hpp"
#include "wide.hpp"

#include <chunkmem/chunkmem.hpp>

#include <cstdint>
#include <map>
#include <utility>

namespace gpt {

/// Some positions of one row: their tokens, and whether earlier positions stay as they are.
struct window {
  const unsigned char* tokens = nullptr;  ///< of position `first` and on
  kernels::index first = 0;
  kernels::index count = 0;

  /// A window from position 0 overwrites; a later window keeps the positions before it.
  [[nodiscard]] chunkmem::write_access how() const noexcept
  {
    return first == 0 ? chunkmem::access::write : chunkmem::access::read_write;
  }
};

/// The parts that forward and backward share: pins, leases, and one product with its bias.
///
/// A rehearsal takes the same pins and leases, which have no bytes, and runs no kernel.
template <class Manager>
class network {
 public:
  using index = kernels::index;
  using tensor = chunkmem::tensor<float>;
  using gradient_type = wide_gradient<Manager>;
  static constexpr bool can_sample = true;
  using lease_type = decltype(lease_floats(std::declval<Manager&>(), 1));

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
  /// Weights are read from this list from now on: the newest ones, or an older version.
  void read_from(chunkmem::list_id list) noexcept { list_ = list; }
  [[nodiscard]] chunkmem::list_id list() const noexcept { return list_; }
  /// From now on only some rows of the projections' inputs are kept, in the passes of training.
  void use(projection_samples<Manager>& samples) noexcept { samples_ = &samples; }
  /// Null where gradients are exact, and outside of training.
  [[nodiscard]] projection_samples<Manager>* samples() const noexcept { return is_training_ ? samples_ : nullptr; }
  /// Rows of the output of ReLU are kept, and its bits.
  [[nodiscard]] bool samples_hidden() const noexcept
  {
    return samples() != nullptr && net_.size.mlp == nonlinearity::relu;
  }
  /// Queries, keys and values are not kept between the passes of training: their product runs again.
  void run_qkv_again(bool again) noexcept { runs_qkv_again_ = again; }
  [[nodiscard]] bool runs_qkv_again() const noexcept { return runs_qkv_again_ && is_training_; }
  /// Begins or ends a micro-batch of training. Outside of training all activations are kept whole.
  void set_training(bool is_training) noexcept { is_training_ = is_training; }
  /// See gpt::computes.
  [[nodiscard]] bool computes(double operations = 0) const { return gpt::computes(m_, operations); }
  /// Of the product of a matrix [rows, inner] and a matrix [inner, columns].
  [[nodiscard]] static double operations_of(index rows, index inner, index columns) noexcept
  {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(inner) * static_cast<double>(columns);
  }

  [[nodiscard]] auto read(tensor which) const { return m_.acquire(which, chunkmem::access::read); }
  [[nodiscard]] auto widened(const weight& which) const { return wide_weight<Manager>{m_, which, list_}; }
  [[nodiscard]] auto gradient(const weight& of) const { return gradient_type{m_, of, !keeps_saved_}; }
  [[nodiscard]] auto scratch(index count) const { return lease_floats(m_, static_cast<std::uint64_t>(count)); }

  /// The next backward runs make no gradients of weights, and leave saved activations as they are. A second backward
  /// run needs these activations, so gradients are written over copies of them.
  void keep_saved(bool keeps) noexcept { keeps_saved_ = keeps; }
  [[nodiscard]] bool keeps_saved() const noexcept { return keeps_saved_; }

  /// Saved numbers that become a gradient.
  struct overwritten_numbers {
    typename Manager::template pin_type<float> pin;
    float* numbers = nullptr;
    [[nodiscard]] float* data() const noexcept { return numbers; }
  };
  [[nodiscard]] overwritten_numbers overwritten(tensor saved, index count) const
  {
    if (!keeps_saved_) {
      auto pin = m_.acquire(saved, chunkmem::access::read_write);
      float* const numbers = pin.data();
      return {std::move(pin), numbers};
    }
    const auto lease = copies_.try_emplace(chunkmem::index_of(saved.id), lease_type(scratch(count))).first;
    const auto from = read(saved);
    if (computes()) kernels::copy(from.data(), floats(lease->second), count);
    return {{}, floats(lease->second)};
  }
  /// The gradient that the saved numbers became.
  struct gradient_numbers {
    typename Manager::template pin_type<const float> pin;
    const float* numbers = nullptr;
    [[nodiscard]] const float* data() const noexcept { return numbers; }
  };
  [[nodiscard]] gradient_numbers became(tensor saved) const
  {
    if (keeps_saved_) return {{}, floats(copies_.at(chunkmem::index_of(saved.id)))};
    auto pin = read(saved);
    const float* const numbers = pin.data();
    return {std::move(pin), numbers};
  }
  /// The tensor is not needed any more.
  void forget(tensor saved) const
  {
    if (keeps_saved_)
      copies_.erase(chunkmem::index_of(saved.id));
    else
      m_.drop(saved);
  }

  /// y = x * weight + bias, plus the product of an adapter
  void linear(const float* x, const weight& weight, const gpt::weight& bias, const adapter& beside, float* y,
              index rows, index inputs, index outputs) const
  {
    {
      const auto wide = widened(weight);
      const auto wide_bias = widened(bias);
      const auto weights = wide.open();
      const auto biases = wide_bias.open();
      if (computes(operations_of(rows, inputs, outputs)))
        kernels::linear_forward(x, weights.data(), biases.data(), y, rows, inputs, outputs);
    }
    if (beside.rank == 0) return;
    const auto rank = static_cast<index>(beside.rank);
    const auto narrow = scratch(rows * rank);
    {
      const auto wide = widened(beside.down);
      const auto down = wide.open();
      if (computes(operations_of(rows, inputs, rank)))
        kernels::multiply(x, down.data(), floats(narrow), rows, inputs, rank);
    }
    const auto wide = widened(beside.up);
    const auto up = wide.open();
    if (computes(operations_of(rows, rank, outputs)))
      kernels::add_product(floats(narrow), up.data(), y, rows, rank, outputs);
  }

  /// Adds x^T * dy to the gradient of a weight and the rows of dy to that of its bias.
  void product_gradients(const float* x, const float* dy, gradient_type& d_weight, gradient_type& d_bias, index inputs,
                         index outputs) const
  {
    d_bias.add([&](float beta, float* out) { kernels::bias_gradient(dy, beta, out, context_, outputs); });
    d_weight.add([&](float beta, float* out) { kernels::weight_gradient(x, dy, beta, out, context_, inputs, outputs); },
                 operations_of(context_, inputs, outputs));
  }

  /// dx = dy * weight^T
  void product_input(const float* dy, const wide_weight<Manager>& weight, float* dx, index inputs, index outputs) const
  {
    const auto weights = weight.open();
    if (computes(operations_of(context_, outputs, inputs)))
      kernels::multiply_transposed(dy, weights.data(), dx, context_, inputs, outputs);
  }

  /// y = the norm of x once more, from the statistics that the forward pass saved.
  void norm_again(const float* x, const wide_weight<Manager>& norm, const float* statistics, float* y) const
  {
    const auto weights = norm.open();
    if (computes()) kernels::layer_norm_again(x, weights.data(), statistics, y, context_, width_);
  }

  /// dx += the gradient through the norm, and the gradient of the norm itself.
  void norm_backward(const float* dy, const float* x, const wide_weight<Manager>& norm, const float* statistics,
                     float* dx, gradient_type& d_norm) const
  {
    {
      const auto weights = norm.open();
      if (computes()) {
        kernels::layer_norm_backward_input(dy, x, weights.data(), statistics, dx, context_, width_);
      }
    }
    d_norm.add([&](float beta, float* out) {
      kernels::layer_norm_backward_norm(dy, x, statistics, beta, out, context_, width_);
    });
  }

 private:
  Manager& m_;
  const model& net_;
  chunkmem::list_id list_ = chunkmem::value_list;
  projection_samples<Manager>* samples_ = nullptr;
  bool keeps_saved_ = false;
  bool runs_qkv_again_ = false;
  bool is_training_ = false;
  mutable std::map<std::uint32_t, lease_type> copies_;  // by tensor, while saved activations are kept
  index width_;
  index heads_;
  index context_;
};

}  // namespace gpt
