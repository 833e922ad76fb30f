// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/report.hpp>
#include <chunkmem/manager/residency_snapshot.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/profile/tide_watch.hpp>
#include <chunkmem/tensor/list_spec.hpp>
#include <chunkmem/tensor/tensor.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>
#include <chunkmem/transfer/stored_plan.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace chunkmem::inline v0 {

/// What can be seen of a manager and its tensors. Moves nothing. Not for users by itself: see basic_manager.
template <class Keeper>
class model_view : public Keeper {
 protected:
  using Keeper::engine_, Keeper::ledger_, Keeper::model_places_, Keeper::owner, Keeper::slot_in, Keeper::slot_of,
      Keeper::states_;

 public:
  using Keeper::Keeper, Keeper::add, Keeper::rehearsing;

  /// Says which types there are to who asks for another.
  template <class Other>
    requires(!element<Other>)
  void add(const shape&, role, group_id = group_id{0})
  {
    static_assert(element<Other>,
                  "chunkmem: tensors are of float, bf16, fp16, std::int32_t, std::int64_t or std::uint8_t");
  }

  /// What was done so far. Also of a manager whose device is lost.
  [[nodiscard]] chunkmem::report report() const { return engine_.snapshot(); }
  /// Where everything lies now, as data; `to_string` makes a short text of it. At any time, inside an iteration and
  /// after a refused call too, which left things where they are. O(frames + chunks + tensors log tensors), allocates.
  [[nodiscard]] residency_snapshot residency() const { return take_snapshot_of(engine_, engine_.tensors().names()); }
  /// The last iteration was not the one recorded under its name, or others held more of the device than they usually
  /// do.
  [[nodiscard]] bool drifted() const noexcept { return engine_.last_changed() || engine_.others().has_drifted(); }
  /// From now on `source()` says how many bytes of the device others hold, such as a framework's allocator; for one of
  /// the backend's own, `[&] { return memory.other_bytes(); }`. It is asked at each pass and must outlive the manager.
  template <class Source>
  void watch_others(Source& source) noexcept
  {
    engine_.others().watch(source);
  }
  /// What it said: highest, percentiles, drift.
  [[nodiscard]] const tide_watch& others() const noexcept { return engine_.others(); }
  /// What the iterations of this name do, or null before one was recorded. Good until the next iteration of this name
  /// ends.
  [[nodiscard]] const access_record* profile(std::string_view name = "train") const noexcept
  {
    return engine_.record_of(name);
  }
  /// Accesses, leases and drops that the current iteration has had; 0 outside of one.
  [[nodiscard]] std::uint32_t moment() const noexcept { return engine_.progress(); }
  /// The chunk of each slot that a profile names. Good until the next tensor is placed.
  [[nodiscard]] std::span<const std::uint32_t> chunk_of_slot() const noexcept
  {
    return engine_.tensors().chunk_of_slot();
  }
  /// What was solved for them, to be written down by plan_text for the next run. @throws usage_error   they were not
  /// planned yet
  [[nodiscard]] transfer::stored_plan plan(std::string_view name = "train") const
  {
    return engine_.stored_plan_of(name);
  }
  [[nodiscard]] list_id list(std::string_view name) const { return engine_.tensors().list(name); }
  [[nodiscard]] const auto& placement() const noexcept { return model_places_.homes().policy(); }
  /// Where the states of a parameter live, and with that where the calling thread updates it.
  [[nodiscard]] at place_of_update(tensor_handle wanted) { return this->update_place(slot_of(wanted)); }
  [[nodiscard]] tensor_state state_of(tensor_handle wanted) { return engine_.tensors().slots()[slot_of(wanted)].state; }
  /// Also false of a gradient whose step was taken, and whose update waits until the weight is used.
  [[nodiscard]] bool has_gradient(tensor_handle wanted)
  {
    return engine_.tensors().slots()[slot_in(wanted, gradient_list)].state != tensor_state::free &&
           !engine_.pending().has(slot_of(wanted));
  }
  /// Parameters whose updates wait until they are used: see optimizer::late_updates.
  [[nodiscard]] std::size_t updates_pending() const noexcept { return engine_.pending().count(); }
  /// How often a gradient was asked for: unchanged means that no gradient was written meanwhile.
  [[nodiscard]] std::uint64_t gradients_opened() const noexcept { return ledger_.opened(); }
  /// 16-bit parameters have masters.
  [[nodiscard]] bool has_masters() const noexcept { return engine_.tensors().has_masters(); }
  /// The parameter has bytes in this list that were written or filled.
  [[nodiscard]] bool is_filled(tensor_handle wanted, list_id list)
  {
    return this->state_in(slot_in(wanted, list)) != tensor_state::free;
  }
  /// Calls `visit(handle, info)` for each parameter, in the order of declaration. Also before everything is placed.
  /// @throws device_error   the device is lost
  template <class Visit>
  void for_each_parameter(Visit visit)
  {
    engine_.expect_alive();
    for (std::uint32_t id = 0; id < engine_.tensors().tensors(); ++id)
      if (const tensor_info& it = engine_.tensors().info(tensor_id{id}); it.part == role::parameter)
        visit(tensor_handle{tensor_id{id}, owner()}, it);
  }
  /// The same for every tensor, whatever its role.
  template <class Visit>
  void for_each_tensor(Visit visit)
  {
    engine_.expect_alive();
    for (std::uint32_t id = 0; id < engine_.tensors().tensors(); ++id)
      visit(tensor_handle{tensor_id{id}, owner()}, engine_.tensors().info(tensor_id{id}));
  }
  /// What a tensor was declared as. Good until the next declaration. @throws usage_error   it is another manager's
  [[nodiscard]] const tensor_info& info(tensor_handle wanted) const
  {
    expects(wanted.owner == owner() && index_of(wanted.id) < engine_.tensors().tensors(),
            "a tensor was asked about that another manager made");
    return engine_.tensors().info(wanted.id);
  }
  /// What files and messages call a tensor.
  [[nodiscard]] std::string name_of(tensor_handle wanted) const
  {
    const std::uint32_t at = index_of(wanted.id);
    const auto names = engine_.tensors().names();
    return at < names.size() && !names[at].empty() ? names[at] : "tensor." + std::to_string(at);
  }
  /// Calls `visit(list, spec)` for each list that an optimizer asked for.
  template <class Visit>
  void for_each_list(Visit visit) const
  {
    for (std::uint32_t at = 2; at < engine_.tensors().lists(); ++at)
      visit(list_id{at}, engine_.tensors().spec_of(list_id{at}));
  }
  /// The parameter has an element in this list: a 32-bit one has no master.
  [[nodiscard]] bool is_in(tensor_handle wanted, list_id list) const
  {
    return engine_.tensors().is_in(wanted.id, list);
  }
  /// An iteration is running.
  [[nodiscard]] bool is_iterating() const noexcept { return engine_.is_inside(); }
  /// Calls `visit(name, content)` for each registered state. Where its owner was given to `use` and is gone, there is
  /// no content.
  template <class Visit>
  void for_each_state(Visit visit) const
  {
    for (const auto& known : states_)
      visit(std::string_view{known.name}, this->has_owner(known) ? known.content : std::span<std::byte>{});
  }
  /// Throws config_error where loaded bytes cannot be right for the state of this name. Null: any bytes can.
  [[nodiscard]] auto check_of_state(std::string_view name) const noexcept -> void (*)(std::span<const std::byte>)
  {
    for (const auto& known : states_)
      if (known.name == name) return known.check;
    return nullptr;
  }
  /// Whose checkpoints this makes: the number of a training, which its first save draws and a load takes over; 0
  /// before.
  [[nodiscard]] std::uint64_t run() const noexcept { return run_; }
  void belongs_to(std::uint64_t run) noexcept { run_ = run; }

 private:
  std::uint64_t run_ = 0;
};

}  // namespace chunkmem::inline v0
