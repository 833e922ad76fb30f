#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/manager/basic_manager.hpp>
#include <chunkmem/optimizer/clipping.hpp>
#include <chunkmem/optimizer/executor.hpp>
#include <chunkmem/optimizer/loss_scale.hpp>
#include <chunkmem/optimizer/measure_parameter.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Settings of one call of `step`.
struct step_options {
  float learning_rate = 1e-3F;
  std::span<const float> group_rates{};  ///< learning rates by group instead; empty: one for all
  clipping clip{};                    ///< of the unscaled gradients: by the norm of all of them first, then value by value
  optimizer::loss_scale* loss_scale = nullptr;  ///< by which the loss was multiplied; hears what became of the step
  bool skip_nonfinite = true;  ///< an infinity or NaN in any gradient leaves everything as it is; always so with a loss scale
  std::uint64_t seed = 0;      ///< of stochastic rounding, where something is stored in 16 bits without a master
};

/// What a step did.
enum class step_result : std::uint8_t { updated, skipped_nonfinite };

/// What a step did, and the norm that its gradients had.
struct step_outcome {
  step_result result = step_result::updated;
  double norm = 0.0;  ///< unscaled, before clipping, in the order of the clipping; 0 where nothing asked for it
  constexpr operator step_result() const noexcept { return result; }
};

namespace detail {

/// In a rehearsal, a step begins anew, and leaves the progress of the real one as it was.
class kept_progress {
 public:
  kept_progress(step_progress& progress, bool rehearses) noexcept : progress_{progress}, before_{progress}, rehearses_{rehearses}
  {
    if (!rehearses) return;
    progress = {};
    progress.number = before_.number;
  }
  kept_progress(const kept_progress&) = delete;
  ~kept_progress()
  {
    if (rehearses_) progress_ = before_;
  }

 private:
  step_progress& progress_;
  step_progress before_;
  bool rehearses_;
};

/// One step over one manager: what is decided once, and what is done for each parameter.
template <class Manager, optimizer_kernel Kernel, executor Executor>
class step_run {
 public:
  step_run(Manager& owner, Kernel& kernel, const step_options& options, Executor& workers)
      : manager_{owner}, kernel_{kernel}, options_{options}, workers_{workers}
  {
    for (const list_spec& spec : kernel.lists()) {
      expects(list_count_ < max_lists, "an optimizer kernel with more lists than max_lists");
      specs_[list_count_] = spec;
      has_master_ |= spec.use == list_use::master;
      lists_[list_count_++] = owner.list(spec.name);
    }
    optimizer::check(options.clip);
    owner.for_each_parameter([&](tensor_handle, const tensor_info& info) { check(info); });
  }

  /// The first parameters may be done already, by a call that failed. @throws usage_error   one of them has a new gradient
  void finish_last()
  {
    step_progress& progress = kernel_.progress;
    std::uint32_t at = 0;
    manager_.for_each_parameter([&](tensor_handle it, const tensor_info&) {
      if (at++ >= progress.reached || !manager_.has_gradient(it)) return;
      expects(progress.undropped != 0 && at == progress.reached,
              "the last optimizer step was cut short: call step again before new gradients are made, then go on");
      manager_.drop_gradient(it);
      progress.undropped = 0;
    });
  }

  /// Calls `visit(handle, info)` for each parameter that this step has still to do, in their order.
  template <class Visit>
  void for_each_unfinished(Visit visit)
  {
    const std::uint32_t done = kernel_.progress.reached;
    std::uint32_t at = 0;
    manager_.for_each_parameter([&](tensor_handle it, const tensor_info& info) {
      if (at++ >= done) visit(it, info);
    });
  }

  /// Once for each step, however often it is tried: go or skip, and by what gradients are multiplied.
  void decide()
  {
    step_progress& progress = kernel_.progress;
    const float_environment standard;
    const double scale = options_.loss_scale != nullptr ? static_cast<double>(options_.loss_scale->scale()) : 1.0;
    const bool may_skip = options_.skip_nonfinite || options_.loss_scale != nullptr;
    gradient_measure all;
    if (may_skip || options_.clip.norm > 0.0F) {
      for_each_unfinished([&](tensor_handle it, const tensor_info& info) {
        if (manager_.has_gradient(it)) all.add(measure(it, info));
      });
    }
    progress.norm = norm_of(all, options_.clip.order) / scale;
    const bool clips = all.finite && options_.clip.norm > 0.0F;
    const double factor = clips ? static_cast<double>(clip_factor(progress.norm, options_.clip.norm)) : 1.0;
    progress.factor = static_cast<float>(factor / scale);
    progress.gradients = manager_.gradients_opened();
    progress.decision = may_skip && !all.finite ? step_decision::skip : step_decision::update;
  }

  /// Pins all that belongs to one parameter, updates it, and gives its gradient's bytes back.
  void update(tensor_handle parameter, const tensor_info& info)
  {
    const at place = manager_.place_of_update(bytes{info.extents.elements()} * size_of(info.type));
    {
      const auto gradient = manager_.acquire_bytes(parameter, gradient_list, access::read, place);
      parameter_bytes all{};
      pin_type pins[max_lists];
      access how = access::read_write;  // of the value
      for (std::size_t at = 0; at < list_count_; ++at) {
        const bool is_master = specs_[at].use == list_use::master;
        if (is_master && !is_16_bit(info.type)) continue;
        all.fresh_master |= is_master && !manager_.rehearsing() && !manager_.is_filled(parameter, lists_[at]);
        if (is_master && !all.fresh_master) how = access::write;
        pin_type& pin = pins[all.list_count];
        pin = manager_.acquire_bytes(parameter, lists_[at], is_master && all.fresh_master ? access::write : access::read_write, place);
        all.lists[all.list_count++] = {reinterpret_cast<std::byte*>(pin.data()), specs_[at].type, specs_[at].use};
      }
      const auto value = manager_.acquire_bytes(parameter, value_list, how, place);
      if (!manager_.rehearsing()) {
        describe(all, parameter, info, gradient, value);
        const gradient_transform transform{kernel_.progress.factor, options_.clip.value};
        if constexpr (Manager::engine_type::has_bytes)
          update_parameter(kernel_, all, transform, settings_of(info), options_.seed, workers_);
        ++kernel_.progress.reached;
        kernel_.progress.undropped = 1;
      }
    }
    manager_.drop_gradient(parameter);
    kernel_.progress.undropped = 0;
  }

 private:
  using pin_type = typename Manager::template pin_type<std::uint8_t>;

  void check(const tensor_info& info) const
  {
    expects(info.type == dtype::float32 || is_16_bit(info.type), "an optimizer step over a parameter that is no float32, bfloat16 or float16");
    expects(options_.group_rates.empty() || index_of(info.group) < options_.group_rates.size(),
            "a parameter of a group that group_rates has no learning rate for");
    expects(has_master_ || !is_16_bit(info.type) || !manager_.has_masters(),
            "an optimizer without masters over 16-bit weights that have some: the masters would not hear of the update");
  }

  [[nodiscard]] step_settings settings_of(const tensor_info& info) const noexcept
  {
    const float rate = options_.group_rates.empty() ? options_.learning_rate : options_.group_rates[index_of(info.group)];
    return {rate, kernel_.progress.number + 1, info.group};
  }

  [[nodiscard]] gradient_measure measure(tensor_handle parameter, const tensor_info& info)
  {
    if (const gradient_measure* known = manager_.measure_of(parameter); known != nullptr) return *known;
    const at place = manager_.place_of_update(bytes{info.extents.elements()} * size_of(info.type));
    const auto gradient = manager_.acquire_bytes(parameter, gradient_list, access::read, place);
    if (manager_.rehearsing() || !Manager::engine_type::has_bytes) return {};
    return measure_parameter(reinterpret_cast<const std::byte*>(gradient.data()), info.gradient, info.extents.elements(), workers_);
  }

  void describe(parameter_bytes& all, tensor_handle parameter, const tensor_info& info, const pin_type& gradient,
                const pin_type& value) const
  {
    all.value = reinterpret_cast<std::byte*>(value.data());
    all.value_type = info.type;
    all.gradient = reinterpret_cast<const std::byte*>(gradient.data());
    all.gradient_type = info.gradient;
    all.elements = info.extents.elements();
    all.tensor = index_of(parameter.id);
  }

  Manager& manager_;
  Kernel& kernel_;
  const step_options& options_;
  Executor& workers_;
  list_spec specs_[max_lists] = {};
  list_id lists_[max_lists] = {};
  std::size_t list_count_ = 0;
  bool has_master_ = false;
};

}  // namespace detail

/// Updates every parameter from its gradient, then forgets the gradients.
///
/// Runs where the placement keeps the optimizer's states, one parameter at a time in the order of declaration, in one pass
/// over its bytes: unscale, clip, update, round. A parameter without a gradient in this step keeps its value and its
/// states; the step counts all the same. Gradients whose norms gradient_done did not take are read once more before, where
/// a norm is needed.
/// A skipped step drops the gradients, tells the loss scale, and changes nothing else: weights whose bytes their gradients
/// had are made again from their masters.
/// Guarantee: safe to take again. Where it throws, some parameters have the update and the others their gradients; the
/// next call goes on with the others, and the final bits are those of an undisturbed step.
///
/// @param workers   share the elements of large parameters; bits do not depend on them
/// @throws out_of_memory, device_error   a parameter could not be brought; call again
/// @throws usage_error    the last step is half done and a new gradient of a finished parameter is there; an element type
///                        that cannot be trained; group_rates too short; a negative limit; a kernel without masters
///                        over weights that have some
/// @complexity            O(parameters) and one pass over their bytes; no allocation
template <class Manager, optimizer_kernel Kernel, executor Executor = const serial>
step_outcome step(Manager& owner, Kernel& kernel, const step_options& options = {}, Executor& workers = on_this_thread)
{
  const detail::kept_progress kept{kernel.progress, owner.rehearsing()};
  step_progress& progress = kernel.progress;
  detail::step_run<Manager, Kernel, Executor> run{owner, kernel, options, workers};
  run.finish_last();
  if (progress.decision == step_decision::open || progress.gradients != owner.gradients_opened()) run.decide();
  const bool updates = progress.decision == step_decision::update;
  if (!updates) owner.keep_record();
  run.for_each_unfinished([&](tensor_handle parameter, const tensor_info& info) {
    if (updates && owner.has_gradient(parameter)) return run.update(parameter, info);
    if (owner.rehearsing()) return;
    owner.drop_gradient(parameter);
    ++progress.reached;
  });
  const step_outcome outcome{updates ? step_result::updated : step_result::skipped_nonfinite, progress.norm};
  if (owner.rehearsing()) return outcome;
  if (options.loss_scale != nullptr) updates ? options.loss_scale->updated() : options.loss_scale->skipped();
  const std::uint64_t number = progress.number + (updates ? 1U : 0U);
  progress = {};
  progress.number = number;
  return outcome;
}

}  // namespace optimizer

}  // namespace chunkmem::inline v0
