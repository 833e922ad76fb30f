// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/basic_manager.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/update_parameter.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail {

/// In a rehearsal, a step begins anew, and leaves the progress of the real one as it was.
class kept_progress {
 public:
  kept_progress(step_progress& progress, bool rehearses) noexcept
      : progress_{progress}, before_{progress}, rehearses_{rehearses}
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

/// @throws usage_error   there are so many updates that one more cannot be counted
inline void check_updates(std::uint64_t number)
{
  if (number >= most_updates) [[unlikely]]
    throw usage_error{error_text{} << "chunkmem: an optimizer step after " << number << " updates, and at most "
                                   << most_updates
                                   << " can be counted (load a checkpoint of this training, or set progress.number to "
                                      "the updates that were done)"};
}

/// What is wrong with a step before it begins. @throws usage_error   the last iteration had named too few of its
/// micro-batches, a learning rate that no update can be made with, or more updates than can be counted; nothing was
/// changed
template <class Manager>
void check_step(Manager& owner, const step_progress& progress, const step_options& options)
{
  owner.updates().expect_whole_iteration();
  check_rates(options);
  check_updates(progress.number);
}

/// The same of a step on the calling thread. @throws usage_error   also: the manager was not given the kernel or the
/// loss scale by use()
template <class Manager, class Kernel>
void check_used_step(Manager& owner, const Kernel& kernel, const step_options& options)
{
  owner.updates().expect_used(kernel.progress.registered, "an optimizer kernel");
  if (options.loss_scale != nullptr) owner.updates().expect_used(options.loss_scale->registered, "a loss scale");
  check_step(owner, kernel.progress, options);
}

/// The way of one step through the parameters of a manager: which are left, and the pins that an update of one needs.
template <class Manager, optimizer_kernel Kernel>
class parameter_walk {
 public:
  /// @throws usage_error   an element type that cannot be trained, too few group rates, masters that the kernel does
  ///   not know
  parameter_walk(Manager& owner, Kernel& kernel, const step_options& options)
      : manager_{owner}, kernel_{kernel}, options_{options}
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

  /// The first parameters may be done already, by a call that failed, unless it was forgotten: by a load, or with its
  /// gradients.
  /// @throws usage_error   one of them has a new gradient, a load is half done, or early_updates began the step
  void finish_last(typename Manager::place_type from = typename Manager::place_type{})
  {
    step_progress& progress = kernel_.progress;
    manager_.updates().expect_loaded("an optimizer step");
    if (progress.forgotten != manager_.updates().steps_forgotten()) begin_anew(progress.number);
    expects(
        progress.decision != step_decision::guessed,
        "a step that early_updates had begun was to be finished by others (call its step again, or load a checkpoint)");
    if (progress.decision == step_decision::open) manager_.updates().expect_gradients(from);
    std::uint32_t at = 0;
    manager_.updates().for_each_in_order(0, [&](tensor_handle it, const tensor_info&) {
      if (at++ >= progress.reached || !manager_.has_gradient(it)) return;
      expects(progress.undropped != 0 && at == progress.reached,
              "the last optimizer step was cut short, and there are new gradients since (drop_gradients(), then make "
              "them all again)");
      manager_.updates().spend_gradient(it);
      progress.undropped = 0;
    });
  }

  /// Calls `visit(handle, info)` for each parameter that this step has still to do, in the manager's order for them.
  template <class Visit>
  void for_each_unfinished(Visit visit)
  {
    manager_.updates().for_each_in_order(kernel_.progress.reached, visit);
  }

  /// Updates one parameter by `work(bytes)`, unless this is a rehearsal, and gives the gradient back.
  /// @param place   a place for the calling thread, or an agent that works on the device
  template <class Place, class Work>
  void update(tensor_handle parameter, const tensor_info& info, Place place, Work work)
  {
    with_bytes(parameter, info, place, [&](const parameter_bytes& all) {
      work(all);
      manager_.updates().begin_update();
      ++kernel_.progress.reached;
      kernel_.progress.undropped = 1;
    });
    manager_.updates().spend_gradient(parameter);
    kernel_.progress.undropped = 0;
  }

  /// Calls `visit(list, type)` for each list that this parameter is in.
  template <class Visit>
  void for_each_list(const tensor_info& info, Visit visit) const
  {
    for (std::size_t at = 0; at < list_count_; ++at)
      if (specs_[at].use == list_use::state || is_16_bit(info.type)) visit(lists_[at], specs_[at].type);
  }
  /// Pins all that belongs to one parameter, and calls `work(bytes)` unless this is a rehearsal.
  template <class Place, class Work>
  void with_bytes(tensor_handle parameter, const tensor_info& info, Place place, Work work)
  {
    const auto gradient = manager_.acquire_bytes(parameter, gradient_list, access::read, place);
    parameter_bytes all{};
    pin_type pins[max_lists];
    write_access value_mode = access::read_write;
    std::size_t fresh = max_lists, fresh_at = 0;  // the master that the update makes, and where it is among the lists
    const auto take = [&](std::size_t list, std::size_t at, write_access mode) {
      pins[at] = manager_.acquire_bytes(parameter, lists_[list], mode, place);
      all.lists[at].data = reinterpret_cast<std::byte*>(pins[at].data());
    };
    for (std::size_t list = 0; list < list_count_; ++list) {
      const bool is_master = specs_[list].use == list_use::master;
      if (is_master && !is_16_bit(info.type)) continue;
      const std::size_t at = all.list_count++;
      all.lists[at] = {nullptr, specs_[list].type, specs_[list].use};
      all.fresh_master |= is_master && !manager_.rehearsing() && !manager_.is_filled(parameter, lists_[list]);
      if (is_master && !all.fresh_master && is_overwritten(parameter)) value_mode = access::write;
      if (is_master && all.fresh_master)
        fresh = list, fresh_at = at;
      else
        take(list, at, access::read_write);
    }
    const auto value = manager_.acquire_bytes(parameter, value_list, value_mode, place);
    // last: where another pin fails it would be there without its numbers
    if (fresh != max_lists) take(fresh, fresh_at, access::write);
    if (manager_.rehearsing()) return;
    describe(all, parameter, info, gradient, value);
    work(all);
  }

  /// A parameter without a gradient, or of a step that is skipped.
  void pass_over(tensor_handle parameter)
  {
    if (manager_.rehearsing()) return;
    manager_.updates().spend_gradient(parameter);
    ++kernel_.progress.reached;
  }

  /// Every parameter is done with. @param number   of whole updates so far
  void finish(std::uint64_t number)
  {
    manager_.updates().end_update();
    begin_anew(number);
  }

  /// Of a parameter's group, in this step.
  [[nodiscard]] float rate_of(group_id group) const noexcept
  {
    return options_.group_rates.empty() ? options_.learning_rate : options_.group_rates[index_of(group)];
  }

 private:
  using pin_type = typename Manager::template pin_type<std::uint8_t>;
  using read_pin = typename Manager::template pin_type<const std::uint8_t>;

  /// An update from its master writes every element of the value: not of a share of which some runs have no gradient.
  [[nodiscard]] bool is_overwritten([[maybe_unused]] tensor_handle parameter) const
  {
    if constexpr (requires { manager_.has_gradient_in_each_run(parameter); })
      return manager_.has_gradient_in_each_run(parameter);
    else
      return true;
  }
  void begin_anew(std::uint64_t number)
  {
    kernel_.progress = {};
    kernel_.progress.number = number;
    kernel_.progress.forgotten = manager_.updates().steps_forgotten();
  }
  void check(const tensor_info& info) const
  {
    expects(info.type == dtype::float32 || is_16_bit(info.type),
            "an optimizer step over a parameter that is no float32, bfloat16 or float16");
    expects(options_.group_rates.empty() || index_of(info.group) < options_.group_rates.size(),
            "a parameter of a group that group_rates has no learning rate for");
    if constexpr (requires {
                    {
                      kernel_.options(info.group).rate_factor
                    } -> std::convertible_to<float>;
                  }) {
      const float rate = rate_of(info.group), factor = kernel_.options(info.group).rate_factor;
      if (!is_learning_rate(rate * factor))
        throw usage_error{error_text{} << "chunkmem: a learning rate of " << rate << " and a rate factor of " << factor
                                       << ", whose product is too large (lower one)"};
    }
    expects(
        has_master_ || !is_16_bit(info.type) || !manager_.has_masters(),
        "an optimizer without masters over 16-bit weights that have some: the masters would not hear of the update");
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

  Manager& manager_;
  Kernel& kernel_;
  const step_options& options_;
  list_spec specs_[max_lists] = {};
  list_id lists_[max_lists] = {};
  std::size_t list_count_ = 0;
  bool has_master_ = false;
};

}  // namespace detail

}  // namespace optimizer

}  // namespace chunkmem::inline v0
