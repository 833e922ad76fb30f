// SPDX-License-Identifier: Apache-2.0
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

/// What was decided about a step, for each of its updates.
struct update_terms {
  float factor = 1.0F;       ///< by which gradients are multiplied
  std::uint64_t number = 1;  ///< of the update
};

/// What becomes of a step.
struct verdict {
  double norm = 0.0;
  float factor = 1.0F;
  step_decision decision = step_decision::update;
};

/// One step over one manager, on the calling thread: what is decided once, and what is done for each parameter.
template <class Manager, optimizer_kernel Kernel, executor Executor>
class step_run : public parameter_walk<Manager, Kernel> {
  using walk = parameter_walk<Manager, Kernel>;

 public:
  step_run(Manager& owner, Kernel& kernel, const step_options& options, Executor& workers)
      : walk{owner, kernel, options}, manager_{owner}, kernel_{kernel}, options_{options}, workers_{workers}
  {
  }

  /// Once for each step, however often it is tried: go or skip, by what gradients are multiplied, and in which order.
  void decide()
  {
    manager_.updates().order_by_completion();
    if (needs_measures() && manager_.updates().measure_of_all() == nullptr) measure_each();
    take(judge());
  }
  /// What all gradients together say. @pre they are measured, where that is needed
  [[nodiscard]] verdict judge()
  {
    const float_environment standard;
    // there gradients are measured on the device too, and the last one decides
    if constexpr (!Manager::engine_type::has_bytes)
      if (needs_measures() && !manager_.rehearsing())
        manager_.backend().wait(agent::host, manager_.backend().record(agent::compute));
    const gradient_measure all = needs_measures() ? sum() : gradient_measure{};
    const double norm = norm_of(all, options_.clip.order) / scale();
    const bool clips = all.finite && options_.clip.norm > 0.0F;
    const double factor = clips ? static_cast<double>(clip_factor(norm, options_.clip.norm)) : 1.0;
    return {norm, static_cast<float>(factor / scale()),
            may_skip() && !all.finite ? step_decision::skip : step_decision::update};
  }
  /// From here on the step is decided.
  void take(const verdict& decided)
  {
    step_progress& progress = kernel_.progress;
    if (needs_measures()) manager_.updates().order_by_use();
    progress.norm = decided.norm;
    progress.factor = decided.factor;
    progress.gradients = manager_.updates().gradients_opened();
    progress.decision = decided.decision;
  }
  /// Updates or passes over all that is left.
  step_outcome complete()
  {
    const bool updates = kernel_.progress.decision == step_decision::update;
    if (!updates) manager_.updates().keep_record();
    this->for_each_unfinished([&](tensor_handle parameter, const tensor_info& info) {
      if (updates && manager_.has_gradient(parameter)) return update(parameter, info);
      this->pass_over(parameter);
    });
    return finish_step();
  }

  /// The decision depends on all gradients.
  [[nodiscard]] bool needs_measures() const noexcept { return may_skip() || options_.clip.norm > 0.0F; }
  /// It is the usual one as far as these gradients say: an update by the loss scale alone.
  [[nodiscard]] bool is_usual(const gradient_measure& some) const
  {
    const float_environment standard;
    return some.finite && !(options_.clip.norm > 0.0F &&
                            norm_of(some, options_.clip.order) / scale() > static_cast<double>(options_.clip.norm));
  }
  [[nodiscard]] update_terms usual_terms() const
  {
    const float_environment standard;
    return {static_cast<float>(1.0 / scale()), kernel_.progress.number + 1};
  }
  /// The decision is still to be taken, or gradients are not those that it was taken for.
  [[nodiscard]] bool wants_decision() const
  {
    return kernel_.progress.decision == step_decision::open ||
           kernel_.progress.gradients != manager_.updates().gradients_opened();
  }
  /// Of the step that was decided.
  [[nodiscard]] update_terms terms() const noexcept { return {kernel_.progress.factor, kernel_.progress.number + 1}; }

  /// Updates the next parameter and gives its gradient back.
  void update(tensor_handle parameter, const tensor_info& info)
  {
    where_updated(parameter, [&](auto place) {
      walk::update(parameter, info, place, [&](const parameter_bytes& all) { apply(all, info, place, terms()); });
    });
  }
  /// The same of a step that counts already, without its gradient.
  void update(tensor_handle parameter, const tensor_info& info, const update_terms& decided)
  {
    where_updated(parameter, [&](auto place) {
      walk::with_bytes(parameter, info, place, [&](const parameter_bytes& all) { apply(all, info, place, decided); });
    });
  }

  /// Every parameter is done with, or waits. Nothing of it is kept in a rehearsal.
  step_outcome finish_step()
  {
    const step_progress& progress = kernel_.progress;
    const bool updates = progress.decision == step_decision::update;
    const step_outcome outcome{updates ? step_result::updated : step_result::skipped_nonfinite, progress.norm};
    if (manager_.rehearsing()) return outcome;
    if (options_.loss_scale != nullptr) updates ? options_.loss_scale->updated() : options_.loss_scale->skipped();
    walk::finish(progress.number + (updates ? 1U : 0U));
    return outcome;
  }

  /// Calls `work(place)` with where the parameter is updated; nothing is read on a backend without bytes, so there the
  /// device may do it itself.
  template <class Work>
  auto where_updated(tensor_handle parameter, Work work)
  {
    const at place = manager_.updates().place_of_update(parameter);
    if constexpr (!Manager::engine_type::has_bytes)
      if (place == at::device) return work(agent::compute);
    return work(place);
  }
  /// A gradient that gradient_done did not measure, unless it is measured already.
  void measure(tensor_handle parameter, const tensor_info& info)
  {
    if (manager_.updates().measure_of(parameter) != nullptr) return;
    gradient_measure found;
    where_updated(parameter, [&](auto place) {
      const auto gradient = manager_.acquire_bytes(parameter, gradient_list, access::read, place);
      if (manager_.rehearsing()) return;
      const std::uint64_t elements = info.extents.elements();
      if constexpr (Manager::engine_type::has_bytes)
        found =
            measure_parameter(reinterpret_cast<const std::byte*>(gradient.data()), info.gradient, elements, workers_);
      else if constexpr (timed_kernel<Kernel>)
        let_pass(manager_.backend(), place, kernel_.measure_takes(place_of(place), elements));
    });
    manager_.updates().keep_measure(parameter, found);
  }
  template <class Place>
  void apply(const parameter_bytes& all, const tensor_info& info, Place place, const update_terms& decided)
  {
    const gradient_transform transform{decided.factor, options_.clip.value};
    const step_settings settings{this->rate_of(info.group), decided.number, info.group};
    const auto update = [&](const parameter_bytes& some) {
      update_parameter(kernel_, some, transform, settings, options_.seed, workers_);
    };
    if constexpr (!Manager::engine_type::has_bytes) {
      if constexpr (timed_kernel<Kernel>)
        let_pass(manager_.backend(), place, kernel_.update_takes(place_of(place), all.elements));
    } else if constexpr (requires { manager_.for_each_run(all, update); }) {
      manager_.for_each_run(all, update);  // what a rank owns is parts of several tensors
    } else {
      update(all);
    }
  }

 private:
  [[nodiscard]] double scale() const
  {
    return options_.loss_scale != nullptr ? static_cast<double>(options_.loss_scale->scale()) : 1.0;
  }
  [[nodiscard]] bool may_skip() const noexcept { return options_.skip_nonfinite || options_.loss_scale != nullptr; }
  void measure_each()
  {
    this->for_each_unfinished([&](tensor_handle it, const tensor_info& info) {
      if (manager_.has_gradient(it)) measure(it, info);
    });
  }
  /// In the order of declaration, whatever the order of the step: sums of floating point depend on it.
  [[nodiscard]] gradient_measure sum()
  {
    if (const gradient_measure* known = manager_.updates().measure_of_all(); known != nullptr) return *known;
    gradient_measure all;
    manager_.for_each_parameter([&](tensor_handle it, const tensor_info&) {
      if (manager_.has_gradient(it)) all.add(*manager_.updates().measure_of(it));
    });
    return all;
  }

  Manager& manager_;
  Kernel& kernel_;
  const step_options& options_;
  Executor& workers_;
};

}  // namespace detail

/// Updates every parameter from its gradient, then forgets the gradients.
///
/// Runs where the placement keeps the optimizer's states, one parameter at a time, in one pass over its bytes: unscale,
/// clip, update, round. In the order in which gradients were completed, whose copies then come while the last ones are
/// still made; where a norm is needed, gradients whose norms gradient_done did not take are read in that order before,
/// and updates follow in the order in which the iteration used the weights first. No bit depends on these orders. A
/// parameter without a gradient in this step keeps its value and its states; the step counts all the same. A skipped
/// step drops the gradients, tells the loss scale, and changes nothing else: weights whose bytes their gradients had
/// are made again from their masters. Guarantee: safe to take again. Where it throws, some parameters have the update
/// and the others their gradients; the next call goes on with the others, by its own options but for what was decided
/// (norm, factor, skip), and with the same options the final bits are those of an undisturbed step. Between the two,
/// gradients are not made or dropped and nothing is saved (usage_error); a load makes the step void, and the next one
/// begins anew.
///
/// @param workers   share the elements of large parameters; bits do not depend on them
/// @throws out_of_memory, device_error   a parameter could not be brought; call again
/// @throws usage_error    the manager was not given the kernel, or the loss scale, by use(); a learning rate is no
///                        number, infinite or negative; the last iteration had named too few of its micro-batches:
///                        nothing was changed
/// @throws usage_error    a load is half done; the last step was cut short before its first update and a parameter that
///                        it had passed over has a gradient now; an element type that cannot be trained; group_rates
///                        too short; a negative limit; a kernel without masters over weights that have some
/// @complexity            O(accesses of the iteration + parameters log parameters) and one pass over their bytes; no
///   allocation once it was taken
template <class Manager, optimizer_kernel Kernel, executor Executor = const serial>
step_outcome step(Manager& owner, Kernel& kernel, const step_options& options = {}, Executor& workers = on_this_thread,
                  typename Manager::place_type from = typename Manager::place_type{})
{
  detail::check_used_step(owner, kernel, options);
  owner.updates().finish_updates();
  const detail::kept_progress kept{kernel.progress, owner.rehearsing()};
  detail::step_run<Manager, Kernel, Executor> run{owner, kernel, options, workers};
  run.finish_last(from);
  if (run.wants_decision()) run.decide();
  return run.complete();
}

}  // namespace optimizer

}  // namespace chunkmem::inline v0
