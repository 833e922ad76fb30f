// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/device_optimizer.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <gpu/dense_kernels.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace gpu {

/// Extents of a network of square layers.
struct dense_shape {
  std::uint32_t layers = 6;  ///< two or more
  std::uint32_t width = 64;
  std::uint32_t batch = 16;
};

/// Adam on the host, and on the device.
template <class Manager>
class host_updates {
 public:
  explicit host_updates(Manager& manager) : manager_{manager} { manager.use(kernel_); }
  void prepare() {}
  void step(const chunkmem::optimizer::step_options& options) { chunkmem::optimizer::step(manager_, kernel_, options); }

 private:
  Manager& manager_;
  chunkmem::optimizer::adam kernel_;
};
template <class Manager, class Launcher>
class device_updates : public chunkmem::optimizer::device_optimizer<Manager, chunkmem::optimizer::adam, Launcher> {
 public:
  explicit device_updates(Manager& manager)
      : chunkmem::optimizer::device_optimizer<Manager, chunkmem::optimizer::adam, Launcher>{manager,
                                                                                            chunkmem::optimizer::adam{}}
  {
  }
};

/// Square layers with softsign between them, trained towards noise: weights of `Element`, all kernels on
/// agent::compute.
///
/// @tparam Launcher   starts the kernels: on the GPU, or in a loop where the device is memory of the host
/// @tparam Updates    host_updates or device_updates
template <class Manager, class Launcher, class Updates, class Element>
class dense_trainer {
 public:
  explicit dense_trainer(Manager& manager, const dense_shape& shape = {}) : m_{manager}, shape_{shape}
  {
    using chunkmem::role;
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer)
      weights_.push_back(m_.template add<Element>({shape.width, shape.width}, role::parameter));
    for (std::uint32_t layer = 0; layer <= shape.layers; ++layer) values_.push_back(add_rows());
    for (rows_type& slope : slopes_) slope = add_rows();
    loss_ = m_.template add<float>({1}, role::buffer);
    updates_.emplace(m_);
  }

  chunkmem::memory_requirement rehearse()
  {
    return m_.rehearse([this] { step(0); });
  }

  void initialise()
  {
    for (std::size_t layer = 0; layer < weights_.size(); ++layer) {
      const auto weight = m_.acquire(weights_[layer], chunkmem::access::write, chunkmem::memory_location::host);
      for (std::uint64_t index = 0; index < weight.size(); ++index)
        weight.data()[index] = element_of<Element>(noise(layer * weight.size() + index) * 0.5F);
    }
    updates_->prepare();
  }

  void step(std::uint32_t now)
  {
    step(now, [] {});
  }
  /// @param after   called between the backward pass and the update
  template <class After>
  void step(std::uint32_t now, After after)
  {
    auto scope = m_.iteration();
    scope.pass(chunkmem::pass::forward);
    forward(now);
    scope.pass(chunkmem::pass::backward);
    backward(now);
    after();
    updates_->step({.learning_rate = 0.01F, .clip = {.norm = 1.0F}});
  }

  void forward(std::uint32_t now)
  {
    {
      const auto in = make(values_[0]);
      run(noise_kernel{in.data(), elements(), now});
    }
    for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
      const auto in = use(values_[layer]);
      const auto weight = use(weights_[layer]);
      const auto out = make(values_[layer + 1]);
      run(product_kernel{out.data(), in.data(), weight.data(), shape_.batch, shape_.width, shape_.width, rows(), rows(),
                         0.0F});
      run(softsign_kernel{out.data(), elements()});
    }
  }

  void backward(std::uint32_t now)
  {
    {
      const auto out = use(values_.back());
      const auto slope = make(slopes_[(shape_.layers - 1) % 2]);
      const auto loss = make(loss_);
      run(distance_kernel{slope.data(), out.data(), elements(), now});
      run(loss_kernel{loss.data(), slope.data(), elements()});
    }
    for (std::uint32_t layer = shape_.layers; layer-- > 0;) {
      backward_through(layer);
      m_.drop(values_[layer + 1]);
    }
    m_.drop(values_[0]);
    for (const rows_type& slope : slopes_) m_.drop(slope);
  }

  /// Every byte that training leaves: weights, what the optimizer keeps, the last loss.
  [[nodiscard]] std::vector<std::byte> collect()
  {
    std::vector<std::byte> all;
    for (const auto& weight : weights_) {
      add_bytes(all, m_.acquire(weight, chunkmem::access::read, chunkmem::memory_location::host));
      for (const char* list : {"adam/momentum", "adam/variance"}) add_bytes(all, state_of(weight, list));
      if constexpr (sizeof(Element) == 2) add_bytes(all, state_of(weight, "master"));
    }
    add_bytes(all, m_.acquire(loss_, chunkmem::access::read, chunkmem::memory_location::host));
    return all;
  }

 private:
  using rows_type = chunkmem::tensor<float>;

  [[nodiscard]] rows_type add_rows()
  {
    return m_.template add<float>({shape_.batch, shape_.width}, chunkmem::role::activation);
  }
  [[nodiscard]] std::uint64_t elements() const noexcept { return std::uint64_t{shape_.batch} * shape_.width; }
  [[nodiscard]] strides rows() const noexcept { return {shape_.width, 1}; }
  [[nodiscard]] strides columns() const noexcept { return {1, shape_.width}; }

  template <class Tensor>
  [[nodiscard]] auto use(const Tensor& it)
  {
    return m_.acquire(it, chunkmem::access::read, chunkmem::agent::compute);
  }
  template <class Tensor>
  [[nodiscard]] auto make(const Tensor& it)
  {
    return m_.acquire(it, chunkmem::access::write, chunkmem::agent::compute);
  }
  [[nodiscard]] auto state_of(const chunkmem::tensor<Element>& weight, const char* list)
  {
    return m_.template acquire<float>(weight, m_.list(list), chunkmem::access::read, chunkmem::memory_location::host);
  }
  template <class Body>
  void run(const Body& body)
  {
    if (!m_.rehearsing()) launcher_(m_.backend(), chunkmem::agent::compute, body);
  }
  template <class Pin>
  static void add_bytes(std::vector<std::byte>& all, const Pin& pin)
  {
    const auto bytes = std::as_bytes(std::span{pin.data(), pin.size()});
    all.insert(all.end(), bytes.begin(), bytes.end());
  }

  void backward_through(std::uint32_t layer)
  {
    const auto slope = m_.acquire(slopes_[layer % 2], chunkmem::access::read_write, chunkmem::agent::compute);
    {
      const auto out = use(values_[layer + 1]);
      run(softsign_slope_kernel{slope.data(), out.data(), elements()});
    }
    const auto in = use(values_[layer]);
    auto weight = use(weights_[layer]);
    if (layer > 0) {
      const auto back = make(slopes_[(layer + 1) % 2]);
      run(product_kernel{back.data(), slope.data(), weight.data(), shape_.batch, shape_.width, shape_.width, rows(),
                         columns(), 0.0F});
    }
    auto gradient = m_.gradient(std::move(weight));
    run(product_kernel{gradient.data(), in.data(), slope.data(), shape_.width, shape_.width, shape_.batch, columns(),
                       rows(), gradient.beta()});
    m_.gradient_done(std::move(gradient));
  }

  Manager& m_;
  dense_shape shape_;
  Launcher launcher_;
  std::optional<Updates> updates_;
  std::vector<chunkmem::tensor<Element>> weights_;
  std::vector<rows_type> values_;
  rows_type slopes_[2];  // of what a layer gives: they take turns
  chunkmem::tensor<float> loss_{};
};

}  // namespace gpu
