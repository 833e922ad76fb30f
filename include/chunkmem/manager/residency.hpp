// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>
#include <chunkmem/manager/device_room.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <cstdint>
#include <span>
#include <utility>

namespace chunkmem::inline v0 {

/// Decides which chunk lies where: the part of a manager that needs no bytes.
///
/// Knows ids, frames, validity and pins, and asks the eviction policy. What it decides it tells a mover, which copies
/// (in a manager) or writes a log (in a rehearsal): the simulator is the engine. Copyable, so that a plan can be made
/// on a copy. No decision looks at a clock or asks whether a copy is done.
///
/// A mover has `placed`, `vacated`, `load`, `claimed`, `write_back`, `evicted` and `leased`; see copy_engine and
/// decision_log. Guarantee: strong where nothing had to move; else basic: chunks that were evicted before a failure
/// stay evicted. Cost: O(1) for a resident chunk; a miss adds one decision of the policy for each chunk that must
/// leave, and for a window of several frames one for each chunk that would leave before a window opens.
template <eviction_policy Eviction>
class residency : public device_room<Eviction> {
  using base = device_room<Eviction>;
  using base::candidates_, base::chunks_, base::device_, base::evict, base::leave_device, base::leave_host, base::live_,
      base::make_room, base::save, base::take_host_window;

 public:
  using base::chunks, base::may_leave, base::shortage, base::space;

  explicit residency(Eviction eviction = {}) : base{std::move(eviction)} {}

  /// The policy hears of pins and releases from now on, starting with what is resident. O(chunks).
  void tell_policy(const access_record& record) { candidates_.tell(record, chunks_); }
  /// A plan is followed: the policy hears nothing until `tell_policy`.
  void silence_policy() noexcept { candidates_.silence(); }
  [[nodiscard]] bool is_telling() const noexcept { return candidates_.is_telling(); }

  /// Next uses of all chunks as at the start of `record`. The policy hears nothing until `tell_policy`: its keys would
  /// be moments of another record. O(chunks + entries).
  /// @param device_only   by chunk: a plan keeps it on the device alone; empty: none
  void start_of(const access_record& record, std::span<const std::uint8_t> device_only = {}) noexcept
  {
    candidates_.silence();
    this->expect_leases(record);
    for (std::uint32_t at = 0; at < chunks(); ++at) {
      chunks_[at].next_use = record.empty() ? access_record::never : record.first_of_chunk()[at];
      chunks_[at].left_for_host = !record.empty() && record.is_left_for_host(at);
      chunks_[at].device_only = !device_only.empty() && device_only[at] != 0;
    }
  }

  /// Next uses of all chunks at the start of an iteration, by a plan. @pre start_of()
  void expect_first(std::span<const std::uint32_t> first) noexcept
  {
    for (std::uint32_t at = 0; at < chunks(); ++at) chunks_[at].next_use = first[at];
  }

  /// What is on the device came there and was let go of in the same order. @pre same_places
  [[nodiscard]] bool same_order(const residency& other) noexcept
  {
    return candidates_.same_order(other.candidates_, chunks_);
  }

  /// Pins a chunk that is on the device: the hot path. @pre it is, and for writing it has no host pins
  void pin_resident(std::uint32_t at, bool writing, std::uint32_t next_use) noexcept
  {
    chunk& it = chunks_[at];
    candidates_.touch(at, it);
    ++it.device_pins;
    it.next_use = next_use;
    it.host_valid &= !writing;
  }

  void unpin_device(std::uint32_t at) noexcept
  {
    chunk& it = chunks_[at];
    if (--it.device_pins == 0) candidates_.let_go(at, it);
  }
  void unpin_host(std::uint32_t at, bool writing) noexcept
  {
    --chunks_[at].host_pins;
    if (writing) --chunks_[at].host_writers;
  }

  /// Brings the chunk of `slot` to where `kind` wants it and pins it there.
  /// @throws out_of_memory   all that could leave is pinned, or the host has no room
  template <class Mover>
  void acquire(std::uint32_t slot, std::uint32_t at, entry_kind kind, std::uint32_t next_use, moment now, Mover& mover)
  {
    chunk& it = chunks_[at];
    const std::uint32_t others = it.live - live_[slot];
    const bool keep = others > 0 || (live_[slot] != 0 && access_of(kind) != access::write);
    const bool writing = writes(access_of(kind));
    if (place_of(kind) == at::device) {
      bring_to_device(at, keep, now, mover);
      pin_resident(at, writing, next_use);
    } else {
      bring_to_host(at, keep, mover);
      if (writing && it.on_device()) leave_device(at, mover, false);
      candidates_.touch(at, it);
      it.next_use = next_use;
      ++it.host_pins;
      if (writing) ++it.host_writers;
    }
    if (live_[slot] == 0) ++it.live;
    live_[slot] = 1;
  }

  /// The bytes of `slot` are dead; with the last of a chunk its frames go. @pre the slot has no pins
  template <class Mover>
  void drop(std::uint32_t slot, std::uint32_t at, Mover& mover)
  {
    if (live_[slot] == 0) return;
    live_[slot] = 0;
    chunk& it = chunks_[at];
    if (--it.live > 0) return;
    if (it.on_device() && it.device_pins == 0) leave_device(at, mover, false);
    it.host_valid = false;  // its window stays, as the home of the next iteration's bytes
  }

  /// Bytes for a while, from the same budget: where a plan has them, so onto what it gives up and not into free room
  /// below that.
  /// @return   first byte in the arena
  template <class Mover>
  std::uint64_t lease(tier where, std::uint64_t size, Mover& mover)
  {
    tier_space& room = space(where);
    std::uint64_t begin = room.find_lease(
        size, [&](std::uint32_t frame) { return where == tier::device && this->makes_way(room.occupant(frame)); });
    if (begin == tier_space::no_place)
      begin = room.find_lease(size, [&](std::uint32_t frame) { return may_leave(where, room.occupant(frame)); });
    if (begin == tier_space::no_place) throw out_of_memory{shortage(where, size)};
    room.for_frames(begin, size, [&](std::uint32_t frame) {
      const std::uint32_t who = room.occupant(frame);
      if (who < chunks()) where == tier::device ? evict(who, mover) : leave_host(who, mover);
    });
    room.take_lease(begin, size);
    mover.leased(where, begin, size);
    return begin;
  }

  template <class Mover>
  void end_lease(tier where, std::uint64_t begin, std::uint64_t size, Mover& mover)
  {
    space(where).give_lease(begin, size, [&](std::uint32_t frame) { mover.vacated(where, frame, 1, false); });
  }

  /// A chunk that is on the device is wanted at that moment of the next iteration.
  void expect_use(std::uint32_t at, std::uint32_t next_use) noexcept
  {
    if (!chunks_[at].on_device()) return;
    candidates_.touch(at, chunks_[at]);
    chunks_[at].next_use = next_use;
  }

  /// Loads a chunk of one frame for the next iteration, into the free frame `first`, or where that is none into one
  /// below `border` that a plan gives up. @return   false: there is none, or its bytes are not on the host; nothing
  /// happened
  template <class Mover>
  bool bring_early(std::uint32_t at, std::uint32_t first, std::uint32_t border, moment next_use, Mover& mover)
    requires bounded_eviction<Eviction>
  {
    chunk& it = chunks_[at];
    if (it.on_device() || it.frames != 1 || it.live == 0 || !it.host_valid || it.host_writers > 0) return false;
    if (first == frame_pool::none) first = this->make_expendable_room(border, mover);
    if (first == frame_pool::none) return false;
    occupy(at, first, true, mover);
    it.next_use = index_of(next_use);
    candidates_.arrive(at, it);
    return true;
  }

  /// Clears the device of all that is not pinned and that the host has room for.
  /// @throws device_error   a write-back could not start; the rest stays
  template <class Mover>
  void evict_all(Mover& mover)
  {
    for (std::uint32_t at = 0; at < chunks(); ++at) {
      if (!chunks_[at].on_device() || chunks_[at].device_pins > 0) continue;
      try {
        evict(at, mover);
      } catch (const out_of_memory&) {  // the host has no room: it lives on the device alone
      }
    }
  }

  /// Gives up copies on the host that were not there `before`, and windows, where the device has the bytes. O(chunks).
  template <class Mover>
  void give_up_copies(const chunk_table& before, Mover& mover)
  {
    for (std::uint32_t at = 0; at < chunks(); ++at) {
      if (!chunks_[at].on_device() || chunks_[at].host_pins > 0 || before[at].host_valid) continue;
      chunks_[at].host_valid = false;
      if (before[at].host == chunk::nowhere && chunks_[at].host != chunk::nowhere) leave_host(at, mover);
    }
  }

  /// The moves of a plan; each is skipped, with false, where it no longer fits.
  template <class Mover>
  bool try_lease(tier where, std::uint64_t begin, std::uint64_t size, Mover& mover)
  {
    if (!space(where).can_lease_at(begin, size)) return false;
    space(where).take_lease(begin, size);
    mover.leased(where, begin, size);
    return true;
  }
  template <class Mover>
  bool try_evict(std::uint32_t at, Mover& mover)
  {
    if (!chunks_[at].on_device() || chunks_[at].device_pins > 0) return false;
    evict(at, mover);
    return true;
  }
  template <class Mover>
  bool try_load(std::uint32_t at, std::uint32_t first, bool keep, Mover& mover)
  {
    chunk& it = chunks_[at];
    if (it.on_device() || !device_.pool().is_free(first, it.frames) || (keep && !it.host_valid) || it.host_writers > 0)
      return false;
    occupy(at, first, keep, mover);
    candidates_.arrive(at, chunks_[at]);
    return true;
  }
  template <class Mover>
  bool try_write_back(std::uint32_t at, Mover& mover)
  {
    if (!chunks_[at].on_device() || chunks_[at].device_pins > 0 || chunks_[at].host_valid) return false;
    save(at, mover);
    return true;
  }

 private:
  template <class Mover>
  void bring_to_device(std::uint32_t at, bool keep, moment now, Mover& mover)
  {
    if (chunks_[at].on_device()) return;
    const std::uint32_t first = make_room(chunks_[at].frames, now, mover);
    occupy(at, first, keep, mover);
    candidates_.arrive(at, chunks_[at]);
  }

  /// Puts a chunk into free frames, with its bytes if there are any to keep.
  template <class Mover>
  void occupy(std::uint32_t at, std::uint32_t first, bool keep, Mover& mover)
  {
    chunk& it = chunks_[at];
    device_.place(at, first, it.frames);
    mover.placed(tier::device, first, it.frames);
    try {
      keep ? mover.load(at, it, first) : mover.claimed(at, it, first);
    } catch (...) {
      device_.vacate(first, it.frames);
      mover.vacated(tier::device, first, it.frames, true);
      throw;
    }
    it.device = first;
  }

  template <class Mover>
  void bring_to_host(std::uint32_t at, bool keep, Mover& mover)
  {
    if (keep && !chunks_[at].host_valid) save(at, mover);
    take_host_window(at, mover);
    chunks_[at].host_valid = true;
  }
};

}  // namespace chunkmem::inline v0
