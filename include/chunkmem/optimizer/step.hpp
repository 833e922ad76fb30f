#pragma once

#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/optimizer/executor.hpp>
#include <chunkmem/optimizer/measure_parameter.hpp>
#include <chunkmem/optimizer/parameter_walk.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/timed_kernel.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

/// One step over one manager, on the calling thread: what is decided once, and what is done for each parameter.
template <class Manager, optimizer_kernel Kernel, executor Executor>
class step_run : public parameter_walk<Manager, Kernel> {
  using walk = parameter_walk<Manager, Kernel>;

 public:
  step_run(Manager& owner, Kernel& kernel, const step_options& options, Executor& workers)
      : walk{owner, kernel, options}, manager_{owner}, kernel_{kernel}, options_{options}, workers_{workers}
  {
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
      this->for_each_unfinished([&](tensor_handle it, const tensor_info& info) {
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

  void update(tensor_handle parameter, const tensor_info& info)
  {
    const at place = manager_.place_of_update(parameter);
    if constexpr (!Manager::engine_type::has_bytes)
      if (place == at::device) return update(parameter, info, agent::compute);
    update(parameter, info, place);
  }

 private:
  [[nodiscard]] gradient_measure measure(tensor_handle parameter, const tensor_info& info)
  {
    if (const gradient_measure* known = manager_.measure_of(parameter); known != nullptr) return *known;
    const at place = manager_.place_of_update(parameter);
    if constexpr (!Manager::engine_type::has_bytes) {
      if (place == at::device) return measure(parameter, info, agent::compute);
      return measure(parameter, info, place);
    }
    const auto gradient = manager_.acquire_bytes(parameter, gradient_list, access::read, place);
    if (manager_.rehearsing()) return {};
    return measure_parameter(reinterpret_cast<const std::byte*>(gradient.data()), info.gradient, info.extents.elements(), workers_);
  }

  template <class Place>
  void update(tensor_handle parameter, const tensor_info& info, Place place)
  {
    walk::update(parameter, info, place, [&](const parameter_bytes& all) {
      const gradient_transform transform{kernel_.progress.factor, options_.clip.value};
      const step_settings settings{this->rate_of(info.group), kernel_.progress.number + 1, info.group};
      if constexpr (Manager::engine_type::has_bytes) update_parameter(kernel_, all, transform, settings, options_.seed, workers_);
      else if constexpr (timed_kernel<Kernel>) let_pass(manager_.backend(), place, kernel_.update_takes(place_of(place), all.elements));
    });
  }
  /// On a backend without bytes: it only takes its time.
  template <class Place>
  [[nodiscard]] gradient_measure measure(tensor_handle parameter, const tensor_info& info, Place place)
  {
    const auto gradient = manager_.acquire_bytes(parameter, gradient_list, access::read, place);
    if constexpr (timed_kernel<Kernel>)
      if (!manager_.rehearsing()) let_pass(manager_.backend(), place, kernel_.measure_takes(place_of(place), info.extents.elements()));
    return {};
  }

  Manager& manager_;
  Kernel& kernel_;
  const step_options& options_;
  Executor& workers_;
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
/// next call goes on with the others, and the final bits are those of an undisturbed step. Between the two, gradients are not
/// made or dropped and nothing is saved (usage_error); a load makes the step void, and the next one begins anew.
///
/// @param workers   share the elements of large parameters; bits do not depend on them
/// @throws out_of_memory, device_error   a parameter could not be brought; call again
/// @throws usage_error    a load is half done; the last step was cut short before its first update and a parameter that it had
///                        passed over has a gradient now; an element type that cannot be trained; group_rates too short; a negative limit; a kernel without masters
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
    run.pass_over(parameter);
  });
  const step_outcome outcome{updates ? step_result::updated : step_result::skipped_nonfinite, progress.norm};
  if (owner.rehearsing()) return outcome;
  if (options.loss_scale != nullptr) updates ? options.loss_scale->updated() : options.loss_scale->skipped();
  run.finish(progress.number + (updates ? 1U : 0U));
  return outcome;
}

}  // namespace optimizer

}  // namespace chunkmem::inline v0
