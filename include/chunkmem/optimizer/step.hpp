// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/executor.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_driver.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/update_site.hpp>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Updates every parameter from its gradient, then drops the gradients.
///
///     const step_outcome done = optimizer::step(m, adam, {.learning_rate = 1e-3F, .clip = {.norm = 1.0F}}, pool);
///     if (done == step_result::skipped_nonfinite) ++skipped;
///
/// The step updates one parameter at a time, in the tier where the placement keeps its optimizer states. One pass over
/// the bytes of a parameter unscales, clips, updates and rounds.
///
/// Order: the order in which gradients were completed. So the first gradients are copied while the last ones are
/// computed. If the step needs a norm, the gradients that `gradient_done` did not measure are read in this order first.
/// The updates then follow the order in which the iteration used the weights. No bit depends on the order.
///
/// - A parameter without a gradient in this step keeps its value and its states. It misses the step, which its bias
///   corrections do not count; the number of steps counts it.
/// - A skipped step drops the gradients, updates the loss scale, and changes nothing else. Weights whose bytes their
///   gradients had are made again from their masters.
///
/// Guarantee: if the step throws, call it again. Some parameters then have the update and the others their gradients.
/// The next call goes on with the others. It has to have the options of the first (those of a kernel that
/// `names_settings` are compared too), and the final bits are those of an undisturbed step. Between the two calls, no
/// gradient can be written or dropped and no checkpoint saved (usage_error). A load makes the step void, and the next
/// step begins from its start.
///
/// @see late_updates   updates wait until their weights are used: they overlap the next forward pass
/// @see early_updates   updates do not wait for the norm: they overlap the backward pass
/// @see device_optimizer   the device decides and updates
///
/// @param workers   share the elements of large parameters; bits do not depend on them
/// @throws out_of_memory, device_error   a parameter could not be loaded; call again
/// @throws usage_error   the manager was not given the kernel or the loss scale by use(); a learning rate is no number,
///   infinite or negative, or makes a product infinite; `most_skips` steps were skipped at the smallest loss scale; the
///   last iteration had named too few of its micro-batches: nothing was changed
/// @throws usage_error   a step that is half done was called again with other options: nothing was done
/// @throws usage_error   a load is half done; the last step was cut short before its first update and a parameter that
///   it had skipped has a gradient now; an element type that cannot be trained; group_rates too short; a negative
///   limit; a kernel without masters for weights with masters
/// @complexity   O(accesses of the iteration + parameters log parameters) and one pass over the bytes of the
///   parameters; no allocation after the first step
template <class Manager, optimizer_kernel Kernel, executor Executor = const serial>
step_outcome step(Manager& owner, Kernel& kernel, const step_options& options = {}, Executor& workers = on_this_thread,
                  typename Manager::place_type from = typename Manager::place_type{})
{
  detail::caller_driver<Manager, Kernel, Executor> driver{owner, kernel, {owner.backend(), workers}};
  return driver.run(options, detail::update_at_once{}, from);
}

/// Refuses an optimizer kernel that lacks a member, with a sentence.
template <class Manager, class Kernel, class... Rest>
  requires(!optimizer_kernel<Kernel>)
auto step(Manager&, Kernel&, const step_options& = {}, const Rest&...)
{
  static_assert(optimizer_kernel<Kernel>,
                "chunkmem: an optimizer kernel lacks something: static name, lists(), update(spans, settings) const "
                "noexcept, and a step_progress named progress (docs/policies/kernel.md)");
}

}  // namespace optimizer

}  // namespace chunkmem::inline v0
