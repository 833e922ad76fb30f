// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/manager/iteration_driver.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

/// What an acquire gives: an address that stays good until it is released.
struct grant {
  std::byte* data = nullptr;
  std::uint32_t slot = 0;
  std::uint32_t moment = 0;
  std::uint32_t serial = 0;
  entry_kind kind = entry_kind::read;
  agent who = agent::host;
  bool is_special = false;  ///< on the host, for a stream, or of a rehearsal: its release is more than a count
};

/// Bytes for a while.
struct lease_grant {
  std::byte* data = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
  std::uint32_t moment = 0;
  std::uint32_t serial = 0;
  tier where = tier::device;
  agent who = agent::host;
};

/// Acquire, release, lease and drop, for slots. Not for users: see manager.
///
/// A resident access that follows its record is the hot path: no lock, no allocation, no search. All that is not on it
/// is a call in the last place, so that it saves no registers; errors leave through those calls alone, and are told
/// details.
template <class Core>
class engine : public Core {
  using machine = typename Core::machine;
  using typename Core::watch_type;

 public:
  using Core::Core;

  /// For the calling thread: a function for each kind of access, so that the hot path has nothing to ask.
  /// @throws out_of_memory, usage_error, device_error; state unchanged, except that chunks that left stay away
  template <entry_kind Kind>
  grant acquire_as(std::uint32_t index)
  {
    if constexpr (!watch_type::sees_bytes)
      return acquire_if_resident(index, Kind, agent::host);
    else
      return watched(index, [&] { return acquire_if_resident(index, Kind, agent::host); });
  }
  /// For any agent. @param kind   an access on the device; the host's is acquire_on_host
  grant acquire(std::uint32_t index, entry_kind kind, agent who)
  {
    if constexpr (!watch_type::sees_bytes)
      return acquire_if_resident(index, kind, who);
    else
      return watched(index, [&] { return acquire_if_resident(index, kind, who); });
  }
  grant acquire_on_host(std::uint32_t index, entry_kind kind, agent who = agent::host)
  {
    if constexpr (!watch_type::sees_bytes)
      return acquire_slowly(index, kind, who);
    else
      return watched(index, [&] { return acquire_slowly(index, kind, who); });
  }

  void release(const grant& held) noexcept
  {
    if constexpr (watch_type::is_on)
      return release_watched(held);
    else
      end(held);
  }

  /// For checks, as all down to `verify`: the holder of a gradient knows how it is to be written.
  void beta_was_read(const grant& held) noexcept
  {
    if constexpr (watch_type::is_on)
      if (has_content(held)) this->watch_.part().beta_read(held.slot - this->registry_.parameters());
  }
  /// A pin on it was given out. @param has_beta   the holder can ask how it is to be written
  void gradient_opened(std::uint32_t parameter, const grant& held, bool first, bool has_beta)
  {
    if constexpr (watch_type::is_on)
      if (has_content(held)) this->watch_.gradient_opened(parameter, held.data, first, has_beta);
  }
  /// @throws usage_error   the gradient was not written whole, or its holder did not ask how
  void expect_written(std::uint32_t parameter, std::string_view before)
  {
    if constexpr (watch_type::is_on) {
      const std::uint32_t index = this->registry_.gradient_of(parameter);
      if (this->rehearsal_.is_running() || this->registry_.slots()[index].state == tensor_state::free) return;
      this->watch_.expect_written(parameter, copy_of(index), before);
    }
  }
  /// Looks at all bytes that nobody holds. @throws usage_error   what was noted so far
  void verify()
  {
    if constexpr (watch_type::is_on) {
      for (std::uint32_t at = 0; at < this->registry_.slots().size(); ++at) compare(at);
      this->watch_.part().expect_no_mistake();
    }
  }
  template <class Graph>
  void replay(Graph& graph, const report& moved)
  {
    Core::replay(graph, moved);
    if constexpr (watch_type::sees_bytes) this->watch_.part().forget_all();
  }
  void exchange(list_id left, list_id right)
  {
    Core::exchange(left, right);
    if constexpr (watch_type::is_on) {
      this->watch_.part().forget_all();
      if (left == gradient_list || right == gradient_list)
        for (std::uint32_t at = 0; at < this->registry_.parameters(); ++at) this->watch_.part().gradient_gone(at);
    }
  }

  /// @throws out_of_memory, usage_error, device_error; as acquire
  [[gnu::noinline]] lease_grant lease(tier where, std::uint64_t size, agent who)
  try {
    const auto kind = where == tier::device ? entry_kind::lease_device : entry_kind::lease_host;
    if (this->rehearsal_.is_running())
      return {this->scratch_.to_write(size), 0,     size, this->rehearsal_.lease(kind, size),
              this->rehearsal_.serial(),     where, who};
    this->ensure_arenas();
    const bool planned = step_to(access_record::never, kind, size);
    const std::uint32_t now = this->recorder_.cursor();
    std::uint64_t begin = planned ? this->run_actions(now) : tier_space::no_place;
    if (where == tier::host || begin == tier_space::no_place ||
        !this->residency_.try_lease(where, begin, size, this->copies_)) {
      if (where == tier::device) this->ensure_policy();
      begin = this->residency_.lease(where, size, this->copies_);
    }
    try {
      auto& keeper = this->copies_.tracker();
      this->copies_.for_lease(where, begin, size,
                              [&](frame_hazards& it) { keeper.follow(who, it, it.users, wait_cause::demand_miss); });
      if constexpr (watch_type::sees_bytes)
        this->watch_.part().leased({this->copies_.lease_address(where, begin), size});
    } catch (...) {
      this->residency_.end_lease(where, begin, size, this->copies_);
      throw;
    }
    const std::uint32_t moment = finish(planned, access_record::never, kind, size);
    return {this->copies_.lease_address(where, begin), begin, size, moment, this->serial_, where, who};
  } catch (error& failed) {
    this->teller_.tell(failed);
    throw;
  }

  void end_lease(const lease_grant& held) noexcept
  {
    [[maybe_unused]] const auto inside = this->watch_.part().enter_release();
    if (this->rehearsal_.made(held.serial)) return this->rehearsal_.end_lease(held.moment, held.serial);
    if constexpr (watch_type::sees_bytes) this->watch_.part().lease_ended({held.data, held.size});
    auto& keeper = this->copies_.tracker();
    this->copies_.for_lease(held.where, held.begin, held.size,
                            [&](frame_hazards& it) { keeper.stamp(held.who, it, true); });
    this->residency_.end_lease(held.where, held.begin, held.size, this->copies_);
    if (held.serial == this->serial_) this->recorder_.lease_ended(held.moment);
    this->copies_.note(happening::lease_end, held.where, held.size);
  }

  /// The bytes of a slot are dead. Without bytes it is an entry of the record and no more, where the rules allow that.
  /// @throws usage_error   it is pinned; device_error, out_of_memory from planned copies
  [[gnu::noinline]] void drop(std::uint32_t index)
  try {
    this->catch_up(index);
    if (this->rehearsal_.is_running()) return this->rehearsal_.drop(index);
    this->expect_alive();
    slot& it = this->registry_.slots()[index];
    check(it, index, tensor_event::drop);
    const bool planned = step_to(index, entry_kind::drop, 0);
    if (planned && this->recorder_.entry(this->recorder_.cursor()).has_actions)
      this->run_actions(this->recorder_.cursor());
    if (it.state != tensor_state::free) {  // else there may be no arenas yet
      this->residency_.drop(index, it.chunk, this->copies_);
      it.state = tensor_state::free;
      if constexpr (watch_type::is_on) bury(index);
    }
    finish(planned, index, entry_kind::drop, 0);
  } catch (error& failed) {
    this->teller_.tell(failed);
    throw;
  }

 private:
  std::byte derived_home_{};  ///< what a pin on the host of a derived chunk points to: there is nothing to read

  /// With checks: looks at the bytes before something moves, and begins the pin for them.
  template <class Take>
  grant watched(std::uint32_t index, Take take)
  {
    compare(index);
    const grant given = take();
    try {
      if (has_content(given)) this->watch_.pinned(given.slot, given.data, access_of(given.kind));
    } catch (...) {
      end(given);
      throw;
    }
    return given;
  }
  void release_watched(const grant& held) noexcept
  {
    [[maybe_unused]] const auto inside = this->watch_.part().enter_release();
    if (has_content(held)) this->watch_.released(held.slot, held.data, access_of(held.kind));
    end(held);
  }
  [[nodiscard]] bool has_content(const grant& it) const noexcept
  {
    return it.data != nullptr && it.data != &derived_home_ && !this->rehearsal_.made(it.serial);
  }

  /// What nobody holds, wherever there is a valid copy, is what it was.
  void compare(std::uint32_t index) noexcept
  {
    if (this->rehearsal_.is_running() || !this->watch_.is_watched(index)) return;
    const slot& it = this->registry_.slots()[index];
    const chunk& home = this->residency_[it.chunk];
    for (const tier where : all_tiers)
      if (home.is_valid(where) && home.has_frames(where))
        this->watch_.compare(index, this->copies_.address(where, home.first_frame[where]) + it.offset);
  }
  /// A valid copy of its bytes, or null.
  [[nodiscard]] std::byte* copy_of(std::uint32_t index) const noexcept
  {
    const slot& it = this->registry_.slots()[index];
    const chunk& home = this->residency_[it.chunk];
    for (const tier where : all_tiers)
      if (home.is_valid(where) && home.has_frames(where))
        return this->copies_.address(where, home.first_frame[where]) + it.offset;
    return nullptr;
  }
  /// A slot was dropped: its bytes are poison wherever they lie.
  void bury(std::uint32_t index) noexcept
  {
    if (!this->watch_.dropped(index) || !watch_type::sees_bytes) return;
    const slot& it = this->registry_.slots()[index];
    const chunk& home = this->residency_[it.chunk];
    for (const tier where : all_tiers)
      if (home.has_frames(where))
        this->watch_.part().fresh({this->copies_.address(where, home.first_frame[where]) + it.offset, it.size});
  }

  [[gnu::always_inline]] void end(const grant& held) noexcept
  {
    if (held.is_special || this->recorder_.is_logging()) [[unlikely]]
      return release_slowly(held);
    slot& it = this->registry_.slots()[held.slot];
    unpin(it);
    this->residency_.unpin(tier::device, it.chunk, false);
  }

  [[gnu::always_inline]] grant acquire_if_resident(std::uint32_t index, entry_kind kind, agent who)
  {
    slot& it = this->registry_.slots()[index];
    const std::uint32_t now = this->recorder_.cursor();
    const std::uint8_t next = machine::next(it.state, tensor_event::acquire);
    if (it.next_moment != now || next == illegal_transition) [[unlikely]]
      return acquire_slowly(index, kind, who);
    const access_entry& entry = this->recorder_.entry(now);
    if (!entry.is_plain(kind)) [[unlikely]]
      return acquire_slowly(index, kind, who);
    const chunk& home = this->residency_[it.chunk];
    if (!home.has_frames(tier::device) || home.pins[tier::host] != 0) [[unlikely]]
      return acquire_slowly(index, kind, who);
    const frame_hazards& frame = this->copies_.hazards_at(tier::device, home.first_frame[tier::device]);
    if ((writes(access_of(kind)) ? frame.users : frame.writers) != 0) [[unlikely]]
      return acquire_after_others(index, kind, who);
    return take_resident(it, index, kind, who);
  }

  /// Commits a resident access that follows its record. Nothing here can fail.
  grant take_resident(slot& it, std::uint32_t index, entry_kind kind, agent who) noexcept
  {
    const std::uint32_t now = this->recorder_.cursor();
    const access_entry& entry = this->recorder_.entry(now);
    this->residency_.pin_resident(it.chunk, writes(access_of(kind)), entry.next_of_chunk);
    it.next_moment = entry.next_of_slot;
    it.state = static_cast<tensor_state>(machine::next(it.state, tensor_event::acquire));
    ++it.pins;
    this->recorder_.advance();
    std::byte* const data =
        this->copies_.address(tier::device, this->residency_[it.chunk].first_frame[tier::device]) + it.offset;
    return {data, index, now, this->serial_, kind, who, who != agent::host};
  }

  /// A resident access to a frame that other agents used: the pin's agent follows them first.
  [[gnu::noinline]] grant acquire_after_others(std::uint32_t index, entry_kind kind, agent who)
  try {
    slot& it = this->registry_.slots()[index];
    frame_hazards& frame = this->copies_.hazards_at(tier::device, this->residency_[it.chunk].first_frame[tier::device]);
    this->copies_.tracker().follow(who, frame, frame.writers, wait_cause::demand_miss);
    if (writes(access_of(kind))) this->copies_.tracker().follow(who, frame, frame.users, wait_cause::other);
    return take_resident(it, index, kind, who);
  } catch (error& failed) {
    this->teller_.tell(failed);
    throw;
  }

  void unpin(slot& it) noexcept
  {
    if (--it.pins != 0) return;
    if (const std::uint8_t next = machine::next(it.state, this->release_event_); next != illegal_transition)
      it.state = static_cast<tensor_state>(next);
  }

  [[gnu::noinline]] void release_slowly(const grant& held) noexcept
  {
    if (this->rehearsal_.made(held.serial)) return this->rehearsal_.release(held.slot, held.moment, held.serial);
    slot& it = this->registry_.slots()[held.slot];
    unpin(it);
    if (held.who != agent::host) stamp(held, it.chunk);
    this->residency_.unpin(tier_of(held.kind), it.chunk, writes(access_of(held.kind)));
    it.host_pins = static_cast<std::uint16_t>(it.host_pins - (place_of(held.kind) == at::host ? 1 : 0));
    if (held.serial == this->serial_) this->recorder_.log_release(held.moment);
  }

  void stamp(const grant& held, std::uint32_t at) noexcept
  {
    const chunk& home = this->residency_[at];
    const tier where = tier_of(held.kind);
    frame_hazards& frame = this->copies_.hazards_at(where, home.first_frame[where]);
    this->copies_.tracker().stamp(held.who, frame, writes(access_of(held.kind)));
  }

  void check(const slot& it, std::uint32_t index, tensor_event event) const
  {
    if (machine::is_legal(it.state, event)) return;
    machine::refuse(it.state, event, this->registry_.label(index));
  }

  /// Makes room in the log and finds out whether this is what the record says; diverges where it is not.
  bool step_to(std::uint32_t index, entry_kind kind, std::uint64_t size)
  {
    this->note_access();
    this->recorder_.make_room();
    const bool expected = this->recorder_.expects_entry(index, kind, size);
    if (!expected && this->recorder_.is_following()) this->diverge();
    return expected;
  }

  /// Nothing can fail any more: the cursor moves, or the log grows. @return   the moment
  std::uint32_t finish(bool planned, std::uint32_t index, entry_kind kind, std::uint64_t size) noexcept
  {
    if (planned) {
      const std::uint32_t now = this->recorder_.cursor();
      if (index != access_record::never)
        this->registry_.slots()[index].next_moment = this->recorder_.entry(now).next_of_slot;
      this->recorder_.advance();
      return now;
    }
    if (!this->recorder_.is_logging()) return access_record::never;
    return this->recorder_.log({index, 0, 0, kind, false, this->micro_batch_},
                               {size, entry_detail::never, this->pass_});
  }

  /// What acquire may meet: a first use, a miss, the host, the log, a divergence, a mistake.
  [[gnu::noinline, gnu::cold]] grant acquire_slowly(std::uint32_t index, entry_kind kind, agent who)
  try {
    this->catch_up(index);
    if (this->rehearsal_.is_running()) return rehearse(index, kind, who);
    this->ensure_arenas();
    slot& it = this->registry_.slots()[index];
    const bool fresh = it.state == tensor_state::free;
    if (fresh) kind = first_use(kind);
    if (it.state == tensor_state::gradient) this->places_.keep_apart(index);  // allowed when it is tried again
    check(it, index,
          fresh && (access_of(kind) == access::write || it.starts_at_zero) ? tensor_event::materialize
                                                                           : tensor_event::acquire);
    refuse_conflicts(it, index, kind);
    const bool planned = step_to(index, kind, 0);
    const std::uint32_t now = this->recorder_.cursor();
    if (planned && this->recorder_.entry(now).has_actions) this->run_actions(now);
    if (place_of(kind) == at::device && !this->residency_[it.chunk].has_frames(tier::device)) this->ensure_policy();
    const std::uint32_t next_use = next_use_after(it, planned, now);
    this->residency_.acquire(index, it.chunk, kind, next_use, moment{this->recorder_.now()}, this->copies_);
    std::byte* data = nullptr;
    try {
      data = make_ready(it, kind, who, fresh && access_of(kind) != access::write);
    } catch (...) {
      this->residency_.unpin(tier_of(kind), it.chunk, writes(access_of(kind)));
      if (fresh) this->residency_.drop(index, it.chunk, this->copies_);
      throw;
    }
    it.state = static_cast<tensor_state>(machine::next(fresh ? tensor_state::hold : it.state, tensor_event::acquire));
    ++it.pins;
    it.host_pins = static_cast<std::uint16_t>(it.host_pins + (place_of(kind) == at::host ? 1 : 0));
    const std::uint32_t moment = finish(planned, index, kind, 0);
    const bool on_host = place_of(kind) == at::host;  // whoever reads there has read when the pin ends
    return {data, index, moment, this->serial_, kind, on_host ? agent::host : who, who != agent::host || on_host};
  } catch (error& failed) {
    this->teller_.tell(failed);
    throw;
  }

  [[nodiscard]] grant rehearse(std::uint32_t index, entry_kind kind, agent who)
  {
    std::byte* const data = writes(access_of(kind)) ? this->scratch_.to_write(this->registry_.slots()[index].size)
                                                    : this->scratch_.to_read();
    return {data, index, this->rehearsal_.acquire(index, kind), this->rehearsal_.serial(), kind, who, true};
  }

  [[nodiscard]] std::uint32_t next_use_after(slot& it, bool planned, std::uint32_t now) noexcept
  {
    if (planned) return this->recorder_.entry(now).next_of_chunk;
    if (!this->recorder_.has_diverged()) return this->residency_[it.chunk].next_use;
    const std::uint32_t next = this->recorder_.resync(it.next_moment);
    return next != access_record::never ? next : this->residency_[it.chunk].next_use;
  }

  /// The agent follows whoever still works on the bytes; a list that starts at zero is filled.
  std::byte* make_ready(const slot& it, entry_kind kind, agent who, bool zero)
  {
    const chunk& home = this->residency_[it.chunk];
    const bool device = place_of(kind) == at::device;
    if (!device && home.is_derived()) return &derived_home_;
    const tier where = device ? tier::device : tier::host;
    const std::uint32_t first = home.first_frame[where];
    frame_hazards& frame = this->copies_.hazards_at(where, first);
    const std::uint8_t mask = writes(access_of(kind)) ? frame.users : frame.writers;
    this->copies_.tracker().follow(who, frame, mask, device ? wait_cause::demand_miss : wait_cause::optimizer_input);
    std::byte* const data = this->copies_.address(where, first) + it.offset;
    if constexpr (watch_type::sees_bytes)
      if (zero) this->watch_.part().lend({data, it.size});
    if (zero) this->health_.starting([&] { this->backend_->fill(data, std::byte{0}, bytes{it.size}, who); });
    return data;
  }

  /// For messages: the first slot of this chunk that has a pin in that place, or `otherwise` where none has one.
  /// O(slots).
  [[nodiscard]] std::uint32_t pinned_in(std::uint32_t chunk, at place, std::uint32_t otherwise) const noexcept
  {
    const auto& slots = this->registry_.slots();
    for (std::uint32_t index = 0; index < slots.size(); ++index)
      if (slots[index].chunk == chunk && slots[index].pins_in(place) > 0) return index;
    return otherwise;
  }

  /// A chunk is written in one tier at a time, with all of its tensors.
  void refuse_conflicts(const slot& it, std::uint32_t index, entry_kind kind) const
  {
    const chunk& home = this->residency_[it.chunk];
    const bool writing = writes(access_of(kind));
    const bool device = place_of(kind) == at::device;
    this->registry_.expects_of(index, device || home.pins[tier::host] < UINT16_MAX,
                               "its chunk has 65535 pins on the host (release some)");
    const bool clash = device ? home.writers > 0 || (writing && home.pins[tier::host] > 0)
                              : home.pins[tier::device] > 0 && (writing || !home.is_valid(tier::host));
    if (!clash) return;
    const std::uint32_t pins = home.pins[device ? tier::host : tier::device];
    error_text text;
    text << "chunkmem: " << this->registry_.label(index) << " cannot be " << (writing ? "written" : "read")
         << " on the " << (device ? "device" : "host") << " now: its chunk is in use on the "
         << (device ? "host" : "device") << " by " << pins << (pins == 1 ? " pin" : " pins");
    if (const std::uint32_t other = pinned_in(it.chunk, device ? at::host : at::device, index); other != index)
      text << ", the first of them on " << this->registry_.label(other);
    throw usage_error{text << " (release them first)"};
  }
};

}  // namespace chunkmem::inline v0
