// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/device_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/pipeline/next_gradients.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/stage_step.hpp>
#include <chunkmem/pipeline/weight_versions.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <support/small_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace support {

using manager_of_layers = chunkmem::manager<chunkmem::backend::host_arena>;

/// Parts of a model in a manager, each a matrix in chunks of its own, with room on the device for few of them.
template <class Element>
class managed_layers {
 public:
  /// @param chunks   on the device
  explicit managed_layers(std::uint32_t chunks)
      : memory_{{.device_capacity = chunk * chunks, .host_capacity = chunk * 512}},
        m_{memory_, {.chunk_bytes = chunk}, chunkmem::gradient::separate{.wide = true}}
  {
  }
  managed_layers(const managed_layers&) = delete;

  void declare(std::uint32_t part)
  {
    const auto weight = m_.template add<Element>({width, width}, chunkmem::role::parameter);
    m_.name(weight, "part " + std::to_string(part));
    parts_.emplace(part, weight);
  }
  void fill()
  {
    for (const auto& [part, weight] : parts_) {
      const auto pin = m_.acquire(weight, chunkmem::access::write);
      const vector_type first = numbers_of(part + 1, width * width);
      for (std::size_t index = 0; index < first.size(); ++index)
        pin.span()[index] = chunkmem::round_to<Element>(first[index]);
    }
  }

  [[nodiscard]] manager_of_layers& m() noexcept { return m_; }
  [[nodiscard]] const auto& parts() const noexcept { return parts_; }
  [[nodiscard]] chunkmem::tensor<Element> operator[](std::uint32_t part) const { return parts_.at(part); }
  [[nodiscard]] std::uint32_t part_of(chunkmem::tensor_handle it) const
  {
    for (const auto& [part, weight] : parts_)
      if (weight.id == it.id) return part;
    return UINT32_MAX;
  }
  template <class Pin>
  [[nodiscard]] static vector_type read(const Pin& pin)
  {
    vector_type numbers(width * width);
    for (std::size_t index = 0; index < numbers.size(); ++index) numbers[index] = chunkmem::to_float(pin.span()[index]);
    return numbers;
  }
  /// Adds to a gradient, or begins it.
  void add_gradient(std::uint32_t part, const vector_type& of_hidden, const vector_type& input)
  {
    const auto pin = m_.template gradient<float>(parts_.at(part));
    add_to(pin.span(), pin.beta(), of_hidden, input);
  }
  /// @param beta   0: the old numbers are ignored
  static void add_to(std::span<float> place, float beta, const vector_type& of_hidden, const vector_type& input)
  {
    vector_type sum(width * width, 0);
    if (beta != 0)
      for (std::size_t index = 0; index < sum.size(); ++index) sum[index] = place[index];
    small_layer::add_gradient(sum, of_hidden, input);
    for (std::size_t index = 0; index < sum.size(); ++index) place[index] = sum[index];
  }
  void set_gradient(std::uint32_t part, const vector_type& sum)
  {
    const auto pin = m_.template gradient<float>(parts_.at(part));
    for (std::size_t index = 0; index < sum.size(); ++index) pin.span()[index] = sum[index];
  }

 private:
  static constexpr chunkmem::bytes chunk{256};

  chunkmem::backend::host_arena memory_;
  manager_of_layers m_;
  std::map<std::uint32_t, chunkmem::tensor<Element>> parts_;
};

/// The training of layers in managers.
struct managed_recipe {
  chunkmem::optimizer::step_options options{};
  std::uint32_t infinite_batch = UINT32_MAX;  ///< a gradient of part 0 is no number in it
  bool scales = false;                        ///< gradients are multiplied with a loss scale
  bool is_late = false;                       ///< updates wait until their weights are read
  bool on_device = false;                     ///< kernels measure and update
};

/// A loss scale for each set of gradients: batches that overlap have scales of their own.
class scales_of_batches {
 public:
  scales_of_batches(const managed_recipe& how, std::uint32_t gradient_sets)
  {
    if (!how.scales) return;
    static constexpr std::string_view names[] = {"loss scale", "loss scale of odd batches"};
    for (std::uint32_t set = 0; set < gradient_sets; ++set)
      scales_.push_back(
          chunkmem::optimizer::loss_scale::dynamic({.initial = 1024, .window = 2, .growth = 4, .name = names[set]}));
  }
  void be_used(manager_of_layers& m)
  {
    for (chunkmem::optimizer::loss_scale& it : scales_) m.use(it);
  }
  [[nodiscard]] float factor(std::uint32_t batch) const
  {
    return scales_.empty() ? 1.0F : scales_[batch % scales_.size()].scale();
  }
  [[nodiscard]] chunkmem::optimizer::step_options options(chunkmem::optimizer::step_options of, std::uint32_t batch)
  {
    of.loss_scale = scales_.empty() ? nullptr : &scales_[batch % scales_.size()];
    return of;
  }

 private:
  std::deque<chunkmem::optimizer::loss_scale> scales_;  // addresses stay valid
};
inline void spoil(vector_type& of_hidden)
{
  of_hidden[0] = std::numeric_limits<float>::infinity();
}

/// Weights of a stage in its manager, of several versions. An iteration is a batch; all parts have one step.
template <class Element, class Kernel, class Stages>
class managed_weights {
 public:
  managed_weights(const chunkmem::pipeline::schedule& plan, std::uint32_t stage, Stages& stages, const Kernel& kernel,
                  const managed_recipe& how, std::uint32_t chunks)
      : layers_{chunks + (how.on_device ? 16U : 0U)},
        kernel_{kernel},
        versions_{layers_.m(), plan.versions, chunkmem::dtype_of<Element>},
        step_{stages},
        how_{how},
        scales_{how, plan.gradient_sets},
        micro_batches_{plan.micro_batches}
  {
    if (plan.gradient_sets > 1) next_.emplace(layers_.m());
    for (std::uint32_t part = 0; part < plan.part_count(); ++part)
      if (plan.owners[part] == stage) layers_.declare(part);
    layers_.m().use(kernel_);
    scales_.be_used(layers_.m());
    layers_.fill();
    versions_.start();
    begin_batch();
  }

  [[nodiscard]] vector_type of(std::uint32_t part, std::uint32_t version)
  {
    return layers_.read(versions_.acquire(layers_[part], version));
  }
  void add_gradient(std::uint32_t part, std::uint32_t batch, vector_type of_hidden, const vector_type& input)
  {
    if (part == 0 && batch == how_.infinite_batch) spoil(of_hidden);
    for (float& it : of_hidden) it *= scales_.factor(batch);
    if (!next_) return layers_.add_gradient(part, of_hidden, input);
    next_->template add<float>(layers_[part], batch, [&](std::span<float> sum, float beta) {
      managed_layers<Element>::add_to(sum, beta, of_hidden, input);
    });
    if (++added_ < layers_.parts().size() * micro_batches_) return;
    added_ = 0;
    const auto options = scales_.options(how_.options, batch);
    how_.on_device ? step_.begin(layers_.m(), kernel_, options, number_of(), device_)
                   : step_.begin(layers_.m(), kernel_, options, number_of());
  }
  /// The step is taken when the last part's update comes.
  void update(const chunkmem::pipeline::operation&)
  {
    if (++updated_ < layers_.parts().size()) return;
    updated_ = 0;
    scope_.reset();
    versions_.flip();
    begin_batch();
    const auto options = scales_.options(how_.options, versions_.newest() - 1);
    const auto done = versions_.update([&] {
      return how_.is_late     ? step_.take(layers_.m(), late_, options, number_of())
             : how_.on_device ? step_.take(layers_.m(), kernel_, options, device_, number_of())
                              : step_.take(layers_.m(), kernel_, options, chunkmem::on_this_thread, number_of());
    });
    has_waited_ = has_waited_ || late_.waiting() != 0;
    skipped_ += done == chunkmem::optimizer::step_result::skipped_nonfinite ? 1U : 0U;
    if (!between) return adopt();
    layers_.m().updates().keep_record();
    scope_.reset();
    between();
    begin_batch("behind a save");
    adopt();
  }
  std::function<void()> between{};  ///< called after each update, between two iterations

  [[nodiscard]] vector_type newest(std::uint32_t part) { return of(part, versions_.newest()); }
  [[nodiscard]] std::uint32_t updates() const noexcept { return versions_.newest(); }
  [[nodiscard]] manager_of_layers& m() noexcept { return layers_.m(); }
  /// Calls `work()` between two iterations.
  template <class Work>
  void outside(Work work)
  {
    scope_.reset();
    work();
    if (next_) next_->start(versions_.newest());
    begin_batch();
  }
  [[nodiscard]] std::uint32_t skipped() const noexcept { return skipped_; }
  [[nodiscard]] bool is_clean() const noexcept { return updated_ == 0 && has_waited_ == how_.is_late; }
  [[nodiscard]] chunkmem::report report() { return layers_.m().report(); }

 private:
  using iteration_type = chunkmem::iteration<manager_of_layers::engine_type>;

  [[nodiscard]] auto number_of()
  {
    return [this](chunkmem::tensor_handle it) { return layers_.part_of(it); };
  }
  void adopt()
  {
    if (next_) next_->template adopt<float>();
  }
  void begin_batch(const char* name = "batch") { scope_.reset(new iteration_type(layers_.m().iteration(name))); }

  managed_layers<Element> layers_;
  Kernel kernel_;
  chunkmem::optimizer::late_updates<manager_of_layers, Kernel> late_{layers_.m(), kernel_};
  chunkmem::optimizer::device_updates<manager_of_layers, chunkmem::optimizer::loop_launcher> device_{layers_.m()};
  bool has_waited_ = false;  // an update has waited
  chunkmem::pipeline::weight_versions<manager_of_layers> versions_;
  chunkmem::pipeline::stage_step<Stages> step_;
  managed_recipe how_;
  scales_of_batches scales_;
  std::uint32_t micro_batches_;
  std::optional<chunkmem::pipeline::next_gradients<manager_of_layers>> next_;
  std::size_t added_ = 0;  // micro-batches of the current batch
  std::unique_ptr<iteration_type> scope_;
  std::size_t updated_ = 0;
  std::uint32_t skipped_ = 0;
};

/// The result of training the whole model on one device: batch t reads the weights of `delay` updates before.
/// @param gradients   `gradients(batch, weights_of)`: those of all parts, where `weights_of(part)` are the weights
/// @return   the weights of each part in the end
template <class Element, class Kernel, class Gradients>
[[nodiscard]] std::vector<vector_type> train_managed_alone(const chunkmem::pipeline::schedule& plan, Kernel kernel,
                                                           const managed_recipe& how, Gradients gradients)
{
  managed_layers<Element> layers{512};
  for (std::uint32_t part = 0; part < plan.part_count(); ++part) layers.declare(part);
  layers.m().use(kernel);
  scales_of_batches scales{how, plan.gradient_sets};
  scales.be_used(layers.m());
  layers.fill();
  const auto read_all = [&] {
    std::vector<vector_type> all;
    for (const auto& [part, weight] : layers.parts())
      all.push_back(layers.read(layers.m().acquire(weight, chunkmem::access::read)));
    return all;
  };
  std::vector<std::vector<vector_type>> history{read_all()};
  for (std::uint32_t batch = 0; batch < plan.batches; ++batch) {
    auto scope = layers.m().iteration();
    const std::uint32_t delay = plan.versions - 1;
    const std::vector<vector_type>& read = history[batch < delay ? 0 : batch - delay];
    std::vector<vector_type> sums =
        gradients(batch, [&](std::uint32_t part) -> const vector_type& { return read[part]; });
    if (batch == how.infinite_batch) spoil(sums[0]);
    for (std::uint32_t part = 0; part < plan.part_count(); ++part) {
      for (float& it : sums[part]) it *= scales.factor(batch);
      layers.set_gradient(part, sums[part]);
    }
    chunkmem::optimizer::step(layers.m(), kernel, scales.options(how.options, batch));
    history.push_back(read_all());
  }
  return history.back();
}
template <class Element, class Kernel>
[[nodiscard]] std::vector<vector_type> train_managed_alone(const chunkmem::pipeline::schedule& plan,
                                                           const Kernel& kernel, const managed_recipe& how)
{
  return train_managed_alone<Element>(plan, kernel, how, [&](std::uint32_t batch, auto weights_of) {
    return gradients_of_batch(plan, batch, weights_of);
  });
}

}  // namespace support
