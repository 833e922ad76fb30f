// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <support/plain_parameters.hpp>
#include <support/trainer_calls.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace support::mixed {

/// Stored elements as a view for the kernels of mixed_model, by the library's conversions.
template <class Element>
struct stored {
  Element* data;
  [[nodiscard]] float get(std::uint64_t index) const noexcept { return chunkmem::to_float(data[index]); }
  void set(std::uint64_t index, float value) const noexcept { data[index] = chunkmem::round_to<Element>(value); }
};
template <class Pin>
[[nodiscard]] auto view(const Pin& pin)
{
  return stored<typename Pin::element_type>{pin.data()};
}

/// Adam or SGD as the recipe says, with the settings of both groups.
using any_kernel = std::variant<chunkmem::optimizer::adam, chunkmem::optimizer::sgd>;

[[nodiscard]] inline any_kernel kernel_for(const recipe& how)
{
  const chunkmem::dtype states = how.half_states ? chunkmem::dtype::bfloat16 : chunkmem::dtype::float32;
  const plain_settings weights = settings_of_group(0);
  const plain_settings biases = settings_of_group(1);
  if (how.optimizer == rule::adam) {
    chunkmem::optimizer::adam kernel{{.weight_decay = weights.weight_decay},
                                     {.moments = states, .masters = how.masters}};
    kernel.group(chunkmem::group_id{1}, {.weight_decay = biases.weight_decay, .rate_factor = biases.rate_factor});
    return kernel;
  }
  chunkmem::optimizer::sgd kernel{{.momentum = weights.momentum, .weight_decay = weights.weight_decay},
                                  {.momentum = states, .masters = how.masters}};
  kernel.group(chunkmem::group_id{1},
               {.momentum = biases.momentum, .weight_decay = biases.weight_decay, .rate_factor = biases.rate_factor});
  return kernel;
}

[[nodiscard]] inline chunkmem::optimizer::loss_scale scale_for(const plain_scale& it)
{
  using chunkmem::optimizer::loss_scale;
  return it.window == 0 ? loss_scale::fixed(it.scale) : loss_scale::dynamic({.initial = it.scale, .window = it.window});
}

[[nodiscard]] inline chunkmem::optimizer::clipping clipping_for(const limits& it)
{
  using chunkmem::optimizer::norm_order;
  constexpr norm_order orders[] = {norm_order::l1, norm_order::l2, norm_order::linf};
  return {.norm = it.norm, .order = orders[static_cast<std::size_t>(it.kind)], .value = it.value};
}

/// Parameters in a manager with the settings of a recipe: declared, filled, differentiated, updated and read back.
template <class Manager, class Backend, class Element, class Executor = const chunkmem::serial>
class managed_parameters {
 public:
  managed_parameters(Manager& manager, Backend& backend, const recipe& how, std::vector<parameter> known,
                     Executor& pool = chunkmem::on_this_thread)
      : m_{manager},
        backend_{backend},
        how_{how},
        known_{std::move(known)},
        kernel_{kernel_for(how)},
        scale_{scale_for(how.scale)},
        pool_{pool}
  {
    std::visit(
        [this](auto& kernel) {
          m_.use(kernel);
          using kind = std::remove_reference_t<decltype(kernel)>;
          if (how_.updates == updating::late) stepper_.template emplace<late<kind>>(m_, kernel, pool_);
          if (how_.updates == updating::early)
            stepper_.template emplace<early<kind>>(m_, kernel, chunkmem::bytes{how_.undo_bytes}, pool_);
        },
        kernel_);
    m_.use(scale_);
    for (const parameter& it : known_)
      if (it.single)
        declare<float>(it);
      else
        declare<Element>(it);
  }

  void initialise()
  {
    for (std::size_t index = 0; index < known_.size(); ++index)
      rewrite(index, [index](std::uint64_t i) { return initial(index, i); });
  }
  template <class Value>
  void rewrite(std::size_t index, Value value)
  {
    if (known_[index].single)
      fill(m_.acquire(as<float>(index), chunkmem::access::write, place_to_fill<Backend>), value);
    else
      fill(m_.acquire(as<Element>(index), chunkmem::access::write, place_to_fill<Backend>), value);
  }

  template <class Kind>
  [[nodiscard]] chunkmem::tensor<Kind> as(std::size_t index) const noexcept
  {
    return {handles_[index]};
  }

  /// Runs `work(view, beta)` on the gradient of a weight that a pin holds. @param over   nothing is added to it in this
  /// step
  template <class Pin, class Work>
  void differentiate(Pin weight, std::size_t index, bool over, Work work)
  {
    const chunkmem::agent stream = weight.details().stream;
    if (is_wide(index))
      write(m_.template gradient<float>(std::move(weight)), index, stream, over, work);
    else
      write(m_.gradient(std::move(weight)), index, stream, over, work);
  }
  /// The same for a weight without a pin.
  template <class Work>
  void differentiate(std::size_t index, chunkmem::agent stream, bool over, Work work)
  {
    if (known_[index].single)
      write(m_.gradient(as<float>(index), stream), index, stream, over, work);
    else if (is_wide(index))
      write(m_.template gradient<float>(as<Element>(index), stream), index, stream, over, work);
    else
      write(m_.gradient(as<Element>(index), stream), index, stream, over, work);
  }

  void reserve(std::size_t steps)
  {
    scales_.reserve(steps);
    norms_.reserve(steps);
  }
  [[nodiscard]] float loss_factor() const noexcept { return scale_.scale() / static_cast<float>(how_.micro_batches); }

  chunkmem::optimizer::step_result update()
  {
    chunkmem::optimizer::step_options options{
        .learning_rate = how_.learning_rate, .clip = clipping_for(how_.clip), .loss_scale = &scale_, .seed = how_.seed};
    if (how_.rates[0] > 0) options.group_rates = how_.rates;
    const auto outcome = std::visit([&](auto& kernel) { return step(kernel, options); }, kernel_);
    if (m_.rehearsing()) return outcome;
    if (outcome == chunkmem::optimizer::step_result::updated) norms_.push_back(outcome.norm);
    scales_.push_back(scale_.scale());
    return outcome;
  }

  void add_numbers_to(outcome& result) const
  {
    result.add("norms", norms_);
    result.add("loss scales", scales_);
  }
  /// Values, masters and states, read on the host.
  void add_weights_to(outcome& result)
  {
    for (std::size_t index = 0; index < known_.size(); ++index) {
      const std::string which = " of parameter " + std::to_string(index);
      if (known_[index].single)
        result.add("value" + which, copy_of<float>(index, chunkmem::value_list));
      else
        result.add("value" + which, copy_of<Element>(index, chunkmem::value_list));
      for (const auto& [what, list] : lists())
        if (what == "master" ? has_masters && how_.masters && !known_[index].single : !how_.half_states)
          result.add(what + which, copy_of<float>(index, m_.list(list)));
        else if (what != "master")
          result.add(what + which, copy_of<chunkmem::bf16>(index, m_.list(list)));
    }
  }
  void add_gradient_to(outcome& result, std::size_t index)
  {
    const std::string name = "gradient of parameter " + std::to_string(index);
    if (known_[index].single || is_wide(index))
      result.add(name, copy_of<float>(index, chunkmem::gradient_list));
    else
      result.add(name, copy_of<Element>(index, chunkmem::gradient_list));
  }

  [[nodiscard]] std::uint64_t updates() const
  {
    return std::visit([](const auto& kernel) { return kernel.progress.number; }, kernel_);
  }
  [[nodiscard]] float scale() const noexcept { return scale_.scale(); }

 private:
  template <class Kernel>
  using late = chunkmem::optimizer::late_updates<Manager, Kernel, Executor>;
  template <class Kernel>
  using early = chunkmem::optimizer::early_updates<Manager, Kernel, Executor>;

  template <class Kernel>
  chunkmem::optimizer::step_outcome step(Kernel& kernel, const chunkmem::optimizer::step_options& options)
  {
    if (auto* const it = std::get_if<late<Kernel>>(&stepper_)) return it->step(options);
    if (auto* const it = std::get_if<early<Kernel>>(&stepper_)) return it->step(options);
    return chunkmem::optimizer::step(m_, kernel, options, pool_);
  }

  static constexpr bool has_masters = sizeof(Element) == 2;

  [[nodiscard]] bool is_wide(std::size_t index) const noexcept
  {
    return has_masters && how_.wide && !known_[index].single;
  }
  template <class Kind>
  void declare(const parameter& it)
  {
    const chunkmem::group_id group{it.group};
    if (it.stack == 1) handles_.push_back(m_.template add<Kind>({it.rows, it.cols}, chunkmem::role::parameter, group));
    if (it.stack < 2) return;
    const auto stack = m_.template add_stacked<Kind>(it.stack, {it.rows, it.cols}, chunkmem::role::parameter, group);
    for (std::uint32_t layer = 0; layer < it.stack; ++layer) handles_.push_back(stack.slice(layer));
  }
  template <class Pin, class Value>
  static void fill(const Pin& pin, Value value)
  {
    for (std::uint64_t i = 0; i < pin.size(); ++i) view(pin).set(i, value(i));
  }

  template <class Gradient, class Work>
  void write(Gradient gradient, std::size_t index, chunkmem::agent stream, bool over, Work work)
  {
    if (!m_.rehearsing())
      backend_.launch(stream, [out = view(gradient), beta = gradient.beta(), work] { work(out, beta); });
    if (over) end(std::move(gradient), index, stream);
  }
  /// The last write of the step, ended in one of three ways.
  template <class Gradient>
  void end(Gradient gradient, std::size_t index, chunkmem::agent stream)
  {
    if (index % 3 == 2) return;
    if (index % 3 == 0) return m_.gradient_done(std::move(gradient));
    gradient.release();
    if (known_[index].single)
      m_.gradient_done(as<float>(index), stream);
    else
      m_.gradient_done(as<Element>(index), stream);
  }

  [[nodiscard]] std::vector<std::pair<std::string, std::string_view>> lists() const
  {
    if (how_.optimizer == rule::adam)
      return {{"master", "master"}, {"first state", "adam/momentum"}, {"second state", "adam/variance"}};
    return {{"master", "master"}, {"first state", "sgd/momentum"}};
  }
  template <class Kind>
  [[nodiscard]] std::vector<Kind> copy_of(std::size_t index, chunkmem::list_id list)
  {
    const auto pin =
        m_.template acquire<Kind>(handles_[index], list, chunkmem::access::read, chunkmem::memory_location::host);
    return {pin.span().begin(), pin.span().end()};
  }

  Manager& m_;
  Backend& backend_;
  recipe how_;
  std::vector<parameter> known_;
  std::vector<chunkmem::tensor_handle> handles_;
  any_kernel kernel_;
  chunkmem::optimizer::loss_scale scale_;
  Executor& pool_;
  std::variant<std::monostate, late<chunkmem::optimizer::adam>, late<chunkmem::optimizer::sgd>,
               early<chunkmem::optimizer::adam>, early<chunkmem::optimizer::sgd>>
      stepper_;
  std::vector<float> scales_;
  std::vector<double> norms_;
};

}  // namespace support::mixed
