// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/basic_manager.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>
#include <chunkmem/optimizer/update_site.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/missed_updates.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

/// @throws usage_error   there are so many updates that one more cannot be counted
inline void check_updates(std::uint64_t number)
{
  if (number >= most_updates) [[unlikely]]
    throw usage_error{error_text{} << "chunkmem: an optimizer step after " << number << " updates, and at most "
                                   << most_updates
                                   << " can be counted (load a checkpoint of this training, or set progress.number to "
                                      "the updates that were done)"};
}

/// @param missed   by tensor   @param name_of   `name_of(tensor)`: its name
/// @throws usage_error   a tensor has missed more updates than were done
template <class NameOf>
void check_missed(std::uint64_t number, std::span<const std::uint64_t> missed, NameOf name_of)
{
  for (std::uint32_t tensor = 0; tensor < missed.size(); ++tensor)
    if (missed[tensor] > number) [[unlikely]]
      throw usage_error{error_text{} << "chunkmem: an optimizer step after " << number << " updates, of which "
                                     << name_of(tensor) << " has missed " << missed[tensor]
                                     << " (load a checkpoint of this training, or set progress.number to the updates "
                                        "that were done; progress = {} starts again from 0)"};
}

/// @return   the name of a parameter of the manager, by its number among tensors
template <class Manager>
[[nodiscard]] std::string name_of_parameter(Manager& owner, std::uint32_t tensor)
{
  std::string found;
  owner.for_each_parameter([&](tensor_handle it, const tensor_info&) {
    if (index_of(it.id) == tensor) found = owner.name_of(it);
  });
  return found;
}

/// @throws usage_error   the learning rate is valid, but its products with the options of this group are not
template <class Kernel>
void check_products(const Kernel& kernel, group_id group, float rate)
{
  if constexpr (scales_rates<Kernel>) {
    const float_environment standard;
    const auto& options = kernel.options(group);
    if (!is_learning_rate(rate * options.rate_factor))
      throw usage_error{error_text{} << "chunkmem: a learning rate of " << rate << " and a rate factor of "
                                     << options.rate_factor << ", whose product is too large (lower one; at most "
                                     << largest_learning_rate << ")"};
    if constexpr (requires { options.weight_decay; })
      if (!(rate * options.rate_factor * options.weight_decay <= largest_learning_rate))
        throw usage_error{error_text{} << "chunkmem: a learning rate of " << rate * options.rate_factor
                                       << " and a weight decay of " << options.weight_decay
                                       << ", whose product is too large (lower one; at most " << largest_learning_rate
                                       << ")"};
  }
}

/// In a rehearsal, a step starts from its beginning and is not counted. The destructor restores the progress of the
/// real step.
class rehearsal_guard {
 public:
  rehearsal_guard(step_progress& progress, bool rehearses) noexcept : progress_{progress}, rehearses_{rehearses}
  {
    if (!rehearses) return;
    before_ = std::exchange(progress, step_progress{});
    progress.number = before_.number;
  }
  rehearsal_guard(const rehearsal_guard&) = delete;
  ~rehearsal_guard()
  {
    if (rehearses_) progress_ = std::move(before_);
  }

 private:
  step_progress& progress_;
  step_progress before_;
  bool rehearses_;
};

/// The version of the gradients of a decision. Ranks compare their versions.
struct gradient_version {
  std::uint64_t opened = 0;     ///< number of opened gradients
  std::uint64_t forgotten = 0;  ///< number of voided steps
  [[nodiscard]] constexpr bool operator==(const gradient_version&) const noexcept = default;
};

/// The timing of `optimizer::step`: every update happens in the call of the step, after the decision.
///
/// A `step_driver` calls these members of its timing:
/// - `lets_wait`: some updates wait beyond the end of the call.
/// - `guesses`: some updates happen before the decision.
/// - `begin(driver, from)` continues after a failed call: by `driver.begin(from)`, or in its own way.
/// - `decide(driver)` is called once for each step, also over retries.
/// - `is_due(place)`: the parameter at this place of the order is updated now. Otherwise its update waits.
/// - `passed(ordinal)`: this parameter was updated or skipped, and its gradient is gone.
/// - `end(driver)` takes over the waiting updates.
struct update_at_once {
  static constexpr bool lets_wait = false;
  static constexpr bool guesses = false;

  template <class Driver>
  void begin(Driver& driver, typename Driver::place_type from) const
  {
    driver.begin(from);
  }
  template <class Driver>
  void decide(Driver& driver) const
  {
    driver.decide();
  }
  [[nodiscard]] static constexpr bool is_due(std::uint32_t) noexcept { return true; }
  static constexpr void passed(std::uint32_t) noexcept {}
  template <class Driver>
  static constexpr void end(Driver&) noexcept
  {
  }
};

/// Drives optimizer steps over one manager. Every kind of step goes through `run`, which has these parts:
///
/// 1. Check the options. A step that is refused changes nothing.
/// 2. Run the updates of the last step that still wait.
/// 3. Begin: a failed call may have updated the first parameters already. These are skipped.
/// 4. Decide, once for each step: measure all gradients, skip or update, the factor, the order of the parameters.
/// 5. For each parameter in this order: pin its lists, update, release the gradient.
/// 6. End: the kernel and the loss scale count the update.
///
/// The kinds differ in three strategies:
/// - when an update happens: `Timing`, see update_at_once, late_updates and early_updates;
/// - where it runs: `Site`, see update_site;
/// - which gradients take part in the decision: those of this manager, or those of all ranks, whose common measure
///   `decide_by` has set.
///
/// Use, on the calling thread:
///
///     step_driver<Manager, Kernel, caller_site<Manager, Executor>> driver{m, kernel, {m.backend(), workers}};
///     return driver.run(options, update_at_once{});
///
/// If `run` throws, call it again: it continues with the remaining parameters. No other code of optimizers and ranks
/// reports steps to a manager.
/// @threads   one caller, that of the manager
template <class Manager, optimizer_kernel Kernel, update_site Site>
class step_driver {
 public:
  using place_type = typename Manager::place_type;
  /// The calling thread can keep the bytes that an update overwrites, and restore them.
  static constexpr bool undoes = Site::host_reaches || !Site::has_bytes;

  /// @param owner, kernel   outlive this object
  step_driver(Manager& owner, Kernel& kernel, Site site) : owner_{owner}, kernel_{kernel}, site_{std::move(site)} {}
  step_driver(const step_driver&) = delete;

  // The skeleton.

  /// Takes one step. @param options   their `group_rates` are read until the last update of this step
  /// @throws as `optimizer::step`
  template <class Timing>
  step_outcome run(const step_options& options, Timing&& timing, place_type from = place_type{})
  {
    return owner_.updates().within(from, [&] {
      check(options);
      finish_waiting();
      const rehearsal_guard kept{kernel_.progress, rehearsing()};
      prepare(options);
      expect_begun_with(options);
      timing.begin(*this, from);
      if (wants_decision()) timing.decide(*this);
      update_all(timing);
      return end();
    });
  }

  /// Checks the arguments of a step before any part of it runs.
  /// @throws usage_error   the manager was not given the kernel or the loss scale by use(); the last iteration named
  ///   too few of its micro-batches, which is reported once; an invalid learning rate or loss scale; too many skipped
  ///   steps, or too many updates to count. Weights, states and gradients are as before
  void check(const step_options& options)
  {
    if constexpr (Site::counts_in_kernel) {
      owner_.updates().expect_used(kernel_.progress.registered, "an optimizer kernel");
      if (options.loss_scale != nullptr) owner_.updates().expect_used(options.loss_scale->registered, "a loss scale");
    }
    owner_.updates().gradients().expect_whole_iteration();
    expect_states_in_reach();
    check_rates(options);
    if (options.loss_scale != nullptr) options.loss_scale->check_usable();
    check_updates(kernel_.progress.number);
    check_missed(kernel_.progress.number, kernel_.progress.missed.all(),
                 [this](std::uint32_t which) { return name_of_parameter(owner_, which); });
  }
  /// Finds the lists of the kernel. @throws usage_error   an element type that cannot be trained, too few group rates,
  /// or masters of a kernel without masters
  void prepare(const step_options& options)
  {
    options_ = options;
    callers_ = float_environment::settings::of_this_thread();
    list_count_ = 0;
    has_master_ = false;
    for (const list_spec& spec : kernel_.lists()) {
      expects(list_count_ < max_lists, "an optimizer kernel with more lists than max_lists");
      specs_[list_count_] = spec;
      has_master_ |= spec.use == list_use::master;
      lists_[list_count_++] = owner_.list(spec.name);
    }
    optimizer::check(options.clip);
    std::size_t tensors = 0;
    owner_.for_each_parameter([&](tensor_handle parameter, const tensor_info& info) {
      check_parameter(info);
      tensors = std::max(tensors, index_of(parameter.id) + std::size_t{1});
    });
    if constexpr (Site::counts_in_kernel)
      if (!rehearsing()) kernel_.progress.missed.make_room(site_.tensors(tensors));
  }
  /// A hash of the options of a step and of the kernel, valid in this process.
  [[nodiscard]] std::uint64_t word_of(const step_options& options) const
  {
    collective::fingerprint all;
    all.add(settings_word(options, kernel_));
    all.add(reinterpret_cast<std::uintptr_t>(options.loss_scale));
    return all.value();
  }
  /// Copies the kernel for all updates of this step, also late ones. Does nothing where the step was decided before, or
  /// the kernel cannot be copied.
  /// @throws the errors of a copy; a later copy is an assignment
  void keep_kernel()
  {
    if (is_begun() && kept_of_ == version()) return;
    kept_of_ = version();
    if constexpr (keeps_kernel && std::is_copy_assignable_v<Kernel>)
      kept_ ? static_cast<void>(*kept_ = kernel_) : static_cast<void>(kept_.emplace(kernel_));
    else if constexpr (keeps_kernel)
      kept_.emplace(kernel_);
  }
  /// Runs the waiting updates. @throws the errors of the updates: call again
  void finish_waiting() { owner_.updates().finish_updates(); }

  /// Skips the parameters that a failed call has updated. The step starts from its beginning where it was voided: by a
  /// load, or by dropped gradients.
  /// @throws usage_error   an updated parameter has a new gradient, a load is half done, or early_updates began the
  ///   step
  void begin(place_type from = place_type{})
  {
    step_progress& progress = kernel_.progress;
    owner_.updates().gradients().expect_no_load("an optimizer step");
    if (is_forgotten()) begin_anew(progress.number);
    expect_not_guessed();
    expects(is_begun() || rehearsing() || !owner_.updates().gradients().is_updated_in_part(),
            "an optimizer step while a step of another optimizer is half done (call that step again)");
    if (progress.decision == step_decision::open) owner_.updates().expect_gradients(from);
    std::uint32_t place = 0;
    for_each_from(0, [&](tensor_handle parameter, const tensor_info&) {
      if (place++ >= progress.reached || !has_gradient(parameter)) return;
      expects(
          progress.undropped != 0 && place == progress.reached,
          "the last optimizer step was cut short, and there are new gradients since (drop_gradients(), then compute "
          "them all again)");
      owner_.updates().consume_gradient(parameter);
      progress.undropped = 0;
    });
    site_.begin();
  }

  /// @throws usage_error   early_updates began the step, and its call failed
  void expect_not_guessed() const
  {
    expects(
        kernel_.progress.decision != step_decision::guessed || is_forgotten(),
        "a step that early_updates had begun cannot be finished by others (call its step again, or load a checkpoint)");
  }

  /// Decides the step by its site. The site ends with `take` or `keep`.
  void decide() { site_.decide(*this); }

  // The decision.

  /// The step is not decided yet, or was decided for other gradients.
  [[nodiscard]] bool wants_decision() const
  {
    const step_progress& progress = kernel_.progress;
    return progress.decision == step_decision::open || progress.decision == step_decision::guessed ||
           progress.gradients != owner_.updates().gradients().opened();
  }
  /// The decision depends on all gradients.
  [[nodiscard]] bool needs_measures() const noexcept { return rules().needs_measures(); }
  /// Sets the measure of the gradients of all ranks, which decides the next step.
  void decide_by(const gradient_measure& all) noexcept { owner_.updates().gradients().keep_measure_of_all(all); }
  [[nodiscard]] bool knows_measure_of_all() const noexcept
  {
    return owner_.updates().gradients().measure_of_all() != nullptr;
  }
  /// Measures a gradient that gradient_done did not measure, unless its measure is known.
  void measure(tensor_handle parameter, const tensor_info& info)
  {
    if (owner_.updates().measure_of(parameter) != nullptr) return;
    gradient_measure found;
    read_gradient(parameter, [&](const std::byte* gradient, auto place) {
      const auto reading = owner_.updates().updating();
      found = site_.measure(kernel_, gradient, info.gradient, info.extents.elements(), place);
    });
    owner_.updates().keep_measure(parameter, found);
  }
  [[nodiscard]] const gradient_measure& measure_of(tensor_handle parameter) const
  {
    return *owner_.updates().measure_of(parameter);
  }
  /// The decision by the measures of all gradients. @pre they are known, where they are needed
  [[nodiscard]] step_verdict judge()
  {
    if (!needs_measures()) return rules().judge({});
    if (!rehearsing()) site_.await_measures();
    return rules().judge(sum());
  }
  /// From here on the step is decided. Updates follow the order in which the iteration used the weights, if gradients
  /// had to be measured before.
  void take(const step_verdict& decided)
  {
    if (needs_measures()) owner_.updates().order_by_use();
    keep(decided);
  }
  /// As `take`, with the same order: the device decides and measures.
  void keep(const step_verdict& decided)
  {
    step_progress& progress = kernel_.progress;
    if (progress.decision != step_decision::guessed) note_missing();
    progress.norm = decided.norm;
    progress.factor = decided.factor;
    progress.gradients = owner_.updates().gradients().opened();
    progress.decision = decided.decision;
    progress.settings = word_of(options_);
  }
  [[nodiscard]] gradient_version version() const noexcept
  {
    return {owner_.updates().gradients().opened(), owner_.updates().gradients().forgotten()};
  }
  /// A failed call has decided the step for the present gradients.
  [[nodiscard]] bool is_decided() const
  {
    const step_progress& progress = kernel_.progress;
    return progress.decision != step_decision::open && progress.decision != step_decision::guessed &&
           progress.gradients == owner_.updates().gradients().opened() && !is_forgotten();
  }
  [[nodiscard]] bool is_forgotten() const noexcept
  {
    return kernel_.progress.forgotten != owner_.updates().gradients().forgotten();
  }

  /// A failed call has decided or guessed the step.
  [[nodiscard]] bool is_begun() const
  {
    return is_decided() || (kernel_.progress.decision == step_decision::guessed && !is_forgotten());
  }

  // The order of the parameters.

  void order_by_completion() { owner_.updates().order_by_completion(); }
  /// @return   the number of parameters before those that are not in `first`
  std::uint32_t order_by_use(std::span<const tensor_handle> first) { return owner_.updates().order_by_use(first); }
  /// Calls `visit(handle, info)` for each parameter in the order of the step, without the first `done`.
  template <class Visit>
  void for_each_from(std::uint32_t done, Visit visit)
  {
    owner_.updates().for_each_in_order(done, visit);
  }
  /// As for_each_from, for each remaining parameter with a gradient.
  template <class Visit>
  void for_each_gradient(Visit visit)
  {
    for_each_from(kernel_.progress.reached, [&](tensor_handle parameter, const tensor_info& info) {
      if (has_gradient(parameter)) visit(parameter, info);
    });
  }

  // One parameter.

  [[nodiscard]] bool has_gradient(tensor_handle parameter) const { return owner_.has_gradient(parameter); }
  /// Calls `visit(handle, info)` for each parameter without a gradient.
  template <class Visit>
  void for_each_missing(Visit visit) const
  {
    owner_.for_each_parameter([&](tensor_handle parameter, const tensor_info& info) {
      if (!has_gradient(parameter)) visit(parameter, info);
    });
  }
  /// Calls `work(bytes, place)` with the gradient where it is updated, unless this is a rehearsal.
  template <class Work>
  void read_gradient(tensor_handle parameter, Work work)
  {
    site_.at_place(planned_place(parameter), [&](auto place) {
      const auto gradient = owner_.acquire_bytes(parameter, gradient_list, access::read, place);
      if (!rehearsing()) work(reinterpret_cast<const std::byte*>(gradient.data()), place);
    });
  }
  /// Calls `visit(list, type)` for each list with an element for this parameter.
  template <class Visit>
  void for_each_list(const tensor_info& info, Visit visit) const
  {
    for (std::size_t list = 0; list < list_count_; ++list)
      if (specs_[list].use == list_use::state || is_16_bit(info.type)) visit(lists_[list], specs_[list].type);
  }
  /// All lists of the parameter have values, so the next update creates none of them.
  [[nodiscard]] bool has_all_lists(tensor_handle parameter, const tensor_info& info) const
  {
    bool has_all = true;
    for_each_list(info, [&](list_id list, dtype) { has_all = has_all && owner_.is_filled(parameter, list); });
    return has_all;
  }
  /// The learning rate of a group in this step.
  [[nodiscard]] float rate_of(group_id group) const noexcept
  {
    return options_.group_rates.empty() ? options_.learning_rate : options_.group_rates[index_of(group)];
  }

  // Early updates: before the decision.

  [[nodiscard]] bool is_usual(const gradient_measure& seen) const { return rules().is_usual(seen); }
  /// The decision confirms the early updates of this step.
  [[nodiscard]] bool confirms(const step_verdict& decided) const
  {
    return decided.decision == step_decision::update && decided.factor == rules().usual_factor();
  }
  /// An update of this parameter failed in the middle: its bytes are of two steps, and a retry goes on from there.
  [[nodiscard]] bool is_half_done(tensor_handle parameter) const
  {
    if constexpr (requires { site_.is_half_done(parameter); })
      return site_.is_half_done(parameter);
    else
      return false;
  }
  /// Updates a parameter as if the step were neither clipped nor skipped. Its gradient stays.
  /// @param save   `save(bytes)` keeps the bytes that the update overwrites; it is not called where there are no bytes
  /// @return   the gradient had the bytes of the value
  template <class Save>
  bool guess(tensor_handle parameter, const tensor_info& info, Save save)
  {
    bool is_in_place = false;
    with_bytes(parameter, info, [&](const parameter_bytes& all, auto place) {
      // a failed call has kept the bytes of a half-done update before a part of these bytes was updated
      if constexpr (Site::has_bytes)
        if (!is_half_done(parameter)) save(all);
      apply_or_mark(parameter, all, info, place, rules().usual_factor());
      owner_.updates().gradients().begin_update();
      is_in_place = all.value == all.gradient;
    });
    return is_in_place;
  }
  /// Keeps the early update of this parameter: its gradient is consumed. @param ordinal   in the order of declaration
  void confirm(std::uint32_t ordinal)
  {
    owner_.updates().with_parameter(
        ordinal, [&](tensor_handle parameter, const tensor_info&) { owner_.updates().consume_gradient(parameter); });
  }
  /// Undoes an early update. @param restore   `restore(bytes)` writes the bytes that `guess` overwrote
  template <class Restore>
  void take_back(std::uint32_t ordinal, bool is_in_place, Restore restore)
  {
    owner_.updates().with_parameter(ordinal, [&](tensor_handle parameter, const tensor_info& info) {
      with_bytes(parameter, info, [&](const parameter_bytes& all, auto) {
        if constexpr (Site::has_bytes) restore(all);
      });
      if (is_in_place) owner_.updates().take_place_again(parameter);
    });
  }
  /// Begins a step before its decision.
  void begin_guess()
  {
    note_missing();
    kernel_.progress.gradients = owner_.updates().gradients().opened();
    kernel_.progress.decision = step_decision::guessed;
    kernel_.progress.settings = word_of(options_);
    kernel_.progress.reached = 0;
  }
  /// Gradients were opened since the step began.
  [[nodiscard]] bool has_other_gradients() const noexcept
  {
    return kernel_.progress.gradients != owner_.updates().gradients().opened();
  }
  /// Voids a step that began with a guess. @pre no parameter is updated
  void forget_guess() noexcept { kernel_.progress.decision = step_decision::open; }
  /// The step has `count` variants, and a rehearsal runs each of them. @return   number of the running variant, from 0
  std::size_t rehearse_turns(std::size_t count) noexcept { return owner_.updates().rehearse_turns(count); }
  /// The running iteration is an exception: the record stays as it was.
  void keep_record() noexcept { owner_.updates().keep_record(); }

  // Late updates: after the call.

  /// @throws std::bad_alloc   @pre no update waits
  void make_room_to_wait() { owner_.updates().make_room_for_updates(); }
  /// The remaining gradients wait. `update_one(self, value_slot)` runs one update, before a use of its parameter.
  void let_wait(void (*update_one)(void* self, slot_id value_slot), void* self) noexcept
  {
    owner_.updates().hold_updates(update_one, self);
  }
  /// Runs a waiting update, of a step that is counted already.
  /// @param is_done   set between the update and the drop of its gradient, which may fail: then call again
  void update_waiting(std::uint32_t ordinal, std::uint8_t& is_done, float factor, std::uint64_t number)
  {
    owner_.updates().with_parameter(ordinal, [&](tensor_handle parameter, const tensor_info& info) {
      if (is_done == 0) {
        with_bytes(parameter, info,
                   [&](const parameter_bytes& all, auto place) { apply(all, info, place, factor, number); });
        is_done = 1;
      }
      owner_.updates().consume_gradient(parameter);
      is_done = 0;
    });
  }
  [[nodiscard]] std::size_t waiting() const noexcept { return owner_.updates_pending(); }
  /// The object of the waiting updates ends: their parameters stay unusable until a load.
  void abandon(const void* self) noexcept { owner_.updates().pending().leave(self); }

  [[nodiscard]] bool rehearsing() const noexcept { return owner_.rehearsing(); }
  [[nodiscard]] const step_progress& progress() const noexcept { return kernel_.progress; }
  /// The parameters of the manager, with a gradient or without.
  [[nodiscard]] std::size_t parameters() const
  {
    std::size_t count = 0;
    owner_.for_each_parameter([&](tensor_handle, const tensor_info&) { ++count; });
    return count;
  }

 private:
  using pin_type = typename Manager::template pin_type<std::uint8_t>;
  using read_pin = typename Manager::template pin_type<const std::uint8_t>;

  [[nodiscard]] step_rules rules() const noexcept { return step_rules{options_}; }

  /// @throws usage_error   a failed call began the step with other options; nothing was done
  void expect_begun_with(const step_options& options) const
  {
    expects(!is_begun() || kernel_.progress.settings == word_of(options),
            "a step that is half done was called again with other options: give it the first options again (also those "
            "of the "
            "kernel's groups)");
  }

  /// @throws usage_error   the placement lets this thread update on a device whose memory it cannot read
  void expect_states_in_reach()
  {
    using backend_type = std::remove_reference_t<decltype(owner_.backend())>;
    if constexpr (Site::host_reaches && !backend_type::host_addressable)
      owner_.for_each_parameter([&](tensor_handle parameter, const tensor_info&) {
        expects(owner_.updates().place_of_states(parameter) == memory_location::host,
                "this placement lets the calling thread update states on the device, which it cannot read there (use "
                "placement::optimizer_on_host, or give the step optimizer::split_updates, which has kernels for these; "
                "device_updates and device_optimizer update all on the device)");
      });
  }
  void check_parameter(const tensor_info& info) const
  {
    expects(info.type == dtype::float32 || is_16_bit(info.type),
            "an optimizer step over a parameter that is no float32, bfloat16 or float16");
    expects(options_.group_rates.empty() || index_of(info.group) < options_.group_rates.size(),
            "a parameter of a group that group_rates has no learning rate for");
    check_products(kernel_, info.group, rate_of(info.group));
    expects(has_master_ || !is_16_bit(info.type) || !owner_.has_masters(),
            "an optimizer without masters for 16-bit weights with masters: the masters would be out of date after the "
            "update "
            "(use the optimizer that has them, or one whose storage has masters)");
  }

  /// All gradients of the step are complete: a parameter without one misses the step, if the step counts.
  void note_missing()
  {
    if constexpr (Site::counts_in_kernel) {
      if (rehearsing()) return;
      missed_updates& missed = kernel_.progress.missed;
      missed.begin();
      site_.for_each_missing(*this, [&](std::uint32_t which) { missed.note(which); });
    }
  }
  void begin_anew(std::uint64_t number)
  {
    missed_updates missed = std::move(kernel_.progress.missed);
    missed.begin();
    kernel_.progress = {};
    kernel_.progress.missed = std::move(missed);
    kernel_.progress.number = number;
    kernel_.progress.forgotten = owner_.updates().gradients().forgotten();
  }

  /// The measures of all gradients, added in the order of declaration: floating-point sums depend on the order.
  [[nodiscard]] gradient_measure sum()
  {
    if (const gradient_measure* known = owner_.updates().gradients().measure_of_all(); known != nullptr) return *known;
    const float_environment standard;
    gradient_measure all;
    owner_.for_each_parameter([&](tensor_handle parameter, const tensor_info&) {
      if (has_gradient(parameter)) all.add(measure_of(parameter));
    });
    return all;
  }

  template <class Timing>
  void update_all(Timing& timing)
  {
    const bool updates = kernel_.progress.decision == step_decision::update;
    if (!updates) skip_all();
    std::uint32_t place = kernel_.progress.reached;
    for_each_from(place, [&](tensor_handle parameter, const tensor_info& info) {
      const bool is_due = timing.is_due(place++);
      if (!updates || !has_gradient(parameter))
        pass_over(parameter);
      else if (is_due)
        update(parameter, info);
      else
        return;
      timing.passed(info.ordinal);
    });
    if (updates) timing.end(*this);
  }
  /// A skipped step drops its gradients one by one. No gradient may be added before the last one is dropped: the step
  /// would decide again by the gradients that are left.
  void skip_all()
  {
    keep_record();
    if (!rehearsing()) owner_.updates().gradients().begin_update();
  }
  /// Updates the next parameter and releases its gradient.
  void update(tensor_handle parameter, const tensor_info& info)
  {
    with_bytes(parameter, info, [&](const parameter_bytes& all, auto place) {
      if constexpr (!undoes) owner_.updates().gradients().begin_update();  // of several launches, a later one may fail
      apply_or_mark(parameter, all, info, place, kernel_.progress.factor);
      owner_.updates().gradients().begin_update();
      ++kernel_.progress.reached;
      kernel_.progress.undropped = 1;
    });
    owner_.updates().consume_gradient(parameter);
    kernel_.progress.undropped = 0;
  }
  /// Skips a parameter without a gradient, or of a skipped step.
  void pass_over(tensor_handle parameter)
  {
    if (rehearsing()) return;
    owner_.updates().consume_gradient(parameter);
    ++kernel_.progress.reached;
  }
  /// Every parameter is done or waits. A rehearsal keeps nothing.
  step_outcome end()
  {
    const step_progress& progress = kernel_.progress;
    const bool updates = progress.decision == step_decision::update;
    const step_outcome outcome{updates ? step_result::updated : step_result::skipped_nonfinite, progress.norm};
    if (rehearsing()) return outcome;
    site_.end(progress.decision, options_);
    owner_.updates().gradients().end_update();
    const bool counts = updates && Site::counts_in_kernel;
    if (counts) kernel_.progress.missed.end();
    begin_anew(progress.number + (counts ? 1U : 0U));
    return outcome;
  }

  /// Pins the bytes of one parameter and calls `work(bytes, place)`, unless this is a rehearsal.
  template <class Work>
  void with_bytes(tensor_handle parameter, const tensor_info& info, Work work)
  {
    owner_.updates().whole([&] {
      site_.at_place(planned_place(parameter), [&](auto place) { with_bytes_at(parameter, info, place, work); });
    });
  }
  /// The planned place of a parameter's update. A site on the device allows any device.
  [[nodiscard]] memory_location planned_place(tensor_handle parameter)
  {
    if constexpr (Site::host_reaches)
      return owner_.updates().place_of_update(parameter);
    else
      return owner_.updates().place_of_states(parameter);
  }
  template <class Place, class Work>
  void with_bytes_at(tensor_handle parameter, const tensor_info& info, Place place, Work& work)
  {
    const auto gradient = owner_.acquire_bytes(parameter, gradient_list, access::read, place);
    parameter_bytes all{};
    pin_type pins[max_lists];
    write_access value_mode = access::read_write;
    std::size_t fresh = max_lists, fresh_at = 0;  // the master that the update makes, and its index among the lists
    const auto take = [&](std::size_t list, std::size_t index, write_access mode) {
      pins[index] = owner_.acquire_bytes(parameter, lists_[list], mode, place);
      all.lists[index].data = reinterpret_cast<std::byte*>(pins[index].data());
    };
    for (std::size_t list = 0; list < list_count_; ++list) {
      const bool is_master = specs_[list].use == list_use::master;
      if (is_master && !is_16_bit(info.type)) continue;
      const std::size_t index = all.list_count++;
      all.lists[index] = {nullptr, specs_[list].type, specs_[list].use};
      all.fresh_master |= is_master && !rehearsing() && !owner_.is_filled(parameter, lists_[list]);
      if (is_master && !all.fresh_master && site_.overwrites(parameter)) value_mode = access::write;
      if (is_master && all.fresh_master)
        fresh = list, fresh_at = index;
      else
        take(list, index, access::read_write);
    }
    const auto value = owner_.acquire_bytes(parameter, value_list, value_mode, place);
    // last: if another pin failed, the master would exist without its values
    if (fresh != max_lists) take(fresh, fresh_at, access::write);
    if (rehearsing()) return;
    describe(all, parameter, info, gradient, value);
    work(all, place);
  }
  void describe(parameter_bytes& all, tensor_handle parameter, const tensor_info& info, const read_pin& gradient,
                const pin_type& value) const
  {
    all.value = reinterpret_cast<std::byte*>(value.data());
    all.value_type = info.type;
    all.gradient = reinterpret_cast<const std::byte*>(gradient.data());
    all.gradient_type = info.gradient;
    all.elements = info.extents.elements();
    all.tensor = index_of(parameter.id);
  }

  template <class Place>
  void apply(const parameter_bytes& all, const tensor_info& info, Place place, float factor, std::uint64_t number)
  {
    const update_request request{{factor, options_.clip.value},
                                 {rate_of(info.group), number, info.group},
                                 options_.seed,
                                 callers_,
                                 &decided_kernel().progress.missed};
    const auto updating = owner_.updates().updating();
    site_.update(decided_kernel(), all, request, place);
  }
  /// As apply, of the step that is taken now. Where it fails in the middle, no gradient may be dropped.
  template <class Place>
  void apply_or_mark(tensor_handle parameter, const parameter_bytes& all, const tensor_info& info, Place place,
                     float factor)
  {
    try {
      apply(all, info, place, factor, kernel_.progress.number + 1);
    } catch (...) {
      if (is_half_done(parameter)) owner_.updates().gradients().begin_update();
      throw;
    }
  }
  /// The copy of the kernel at the decision, where it was kept.
  [[nodiscard]] Kernel& decided_kernel() noexcept
  {
    if constexpr (keeps_kernel)
      if (kept_) return *kept_;
    return kernel_;
  }

  /// An update only reads the kernel; in virtual time it may count in the kernel.
  static constexpr bool keeps_kernel = Site::has_bytes && std::copy_constructible<Kernel>;
  struct no_kernel {};

  Manager& owner_;
  Kernel& kernel_;
  Site site_;
  [[no_unique_address]] std::conditional_t<keeps_kernel, std::optional<Kernel>, no_kernel> kept_{};  // of the decision
  gradient_version kept_of_{UINT64_MAX, UINT64_MAX};
  step_options options_{};
  float_environment::settings callers_{};  // of the thread that takes the step
  list_spec specs_[max_lists] = {};
  list_id lists_[max_lists] = {};
  std::size_t list_count_ = 0;
  bool has_master_ = false;
};

/// Drives the steps of the calling thread, with its workers.
template <class Manager, class Kernel, class Executor>
using caller_driver = step_driver<Manager, Kernel, caller_site<Manager, Executor>>;

/// The taker of early and late updates for one manager, which decides alone. A model over ranks names a class with the
/// same members as its `step_taker`.
///
///     typename step_taker_of<Owner, Kernel, Executor>::type taker{owner, kernel, workers};
///     taker.begin(options, first);                     // runs the waiting updates of the last step
///     const step_outcome done = taker.take(options, timing, from);
///     taker.update(ordinal, [&] { ... });              // of a parameter that waited
///
/// A timing that guesses calls `taker.measure(parameter, info)`, `taker.judge()` or `taker.decide()` in place of the
/// driver's: the last two communicate with all ranks.
template <class Manager, optimizer_kernel Kernel, executor Executor>
class lone_taker {
 public:
  static constexpr bool updates_behind_sums = false;  ///< late updates wait for every kind of decision
  using driver_type = caller_driver<Manager, Kernel, Executor>;
  using place_type = typename driver_type::place_type;

  lone_taker(Manager& owner, Kernel& kernel, Executor& workers)
      : kernel_{kernel}, driver_{owner, kernel, {owner.backend(), workers}}
  {
  }

  [[nodiscard]] Kernel& kernel() const noexcept { return kernel_; }
  [[nodiscard]] driver_type& driver() noexcept { return driver_; }
  [[nodiscard]] const driver_type& driver() const noexcept { return driver_; }
  /// Runs the waiting updates of the last step. @return   a step begins: none is half done
  /// @throws as step_driver::check, and where one of `first` is no parameter: before anything is decided
  bool begin(const step_options& options, std::span<const tensor_handle> first)
  {
    driver_.check(options);
    driver_.finish_waiting();
    for (const tensor_handle parameter : first) (void)driver_.has_gradient(parameter);
    return true;
  }
  /// As `begin`, where the caller checks the options.
  bool begin_part()
  {
    driver_.finish_waiting();
    return true;
  }
  template <class Timing>
  step_outcome take(const step_options& options, Timing timing, place_type from)
  {
    return driver_.run(options, timing, from);
  }
  /// Measures a gradient, unless its measure is known. Its update may follow at once.
  void measure(tensor_handle parameter, const tensor_info& info) { driver_.measure(parameter, info); }
  [[nodiscard]] step_verdict judge() { return driver_.judge(); }
  void decide() { driver_.decide(); }
  /// @param work   the update of this parameter, by the driver
  template <class Work>
  static void update(std::uint32_t, Work work)
  {
    work();
  }

 private:
  Kernel& kernel_;
  driver_type driver_;
};

template <class Owner, class Kernel, class Executor>
struct step_taker_of {
  using type = lone_taker<Owner, Kernel, Executor>;
};
template <class Owner, class Kernel, class Executor>
  requires requires { typename Owner::template step_taker<Kernel, Executor>; }
struct step_taker_of<Owner, Kernel, Executor> {
  using type = typename Owner::template step_taker<Kernel, Executor>;
};

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
