// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/chunk/tier_space.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>
#include <chunkmem/manager/chunk_table.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {

namespace detail {

/// The lowest device frame that leases of this record reach, or none. O(entries)
[[nodiscard]] inline frame_id lowest_leased_frame(const tier_space& device, const access_record& record) noexcept
{
  const std::uint64_t leased = std::min(most_leased(record, tier::device).count(), device.capacity());
  if (leased == 0) return frame_pool::none;
  return frame_id{static_cast<std::uint32_t>(
      std::min<std::uint64_t>((device.capacity() - leased) / device.frame_bytes(), device.frames()))};
}

}  // namespace detail

/// Carries out or logs the decisions of a chunk_cache.
///
/// Laws: `copy` may throw with nothing copied; the other calls do not throw. `placed` comes before bytes come into
/// frames and `vacated` after they left. While `copy` runs, the chunk has frames in both tiers.
template <class Mover>
concept cache_mover = requires(Mover mover, frame_id first, std::uint32_t count, chunk_id id, const chunk& moved,
                               tier where, std::uint64_t size) {
  mover.placed(where, first, count);         // tier, first frame, frames: a chunk or a lease may come
  mover.vacated(where, first, count, true);  // the same, they are free; true: by an eviction
  mover.copy(id, moved, where, where);       // chunk, from a tier to its neighbour
  mover.claimed(id, moved, where);           // its frames are filled by their user, not by a copy
  mover.evicted(id, moved, where);           // it leaves this tier, whose bytes are saved
  mover.discarded(id, moved, where);         // it leaves this tier, whose bytes are worth nothing
  mover.leased(where, size, size);           // tier, first byte, bytes
};

/// Assigns chunks to frames of the device and of the host. The cache does not touch the bytes of the chunks.
///
/// The device is a cache of chunks: an access brings its chunk there, and the eviction policy names the chunks that
/// leave to make room. A mover carries out each decision: `copy_engine` copies, `decision_log` logs. A cache can be
/// copied, so that an iteration is tried on the copy with the decisions that the manager would make. No decision reads
/// a clock or depends on whether a copy is done.
///
/// Two agents serve the link between two neighbouring tiers, one for each direction.
///
/// Guarantee: strong where no chunk had to move; else basic: chunks that were evicted before a failure stay evicted.
/// Cost: O(1) for a resident chunk. A miss adds one decision of the policy for each chunk that must leave. A chunk of
/// several frames adds one decision for each chunk that would leave before enough neighbouring frames open.
/// @code
/// chunk_cache<eviction::lru> cache;
/// cache.reset(frames_of_chunk, slots);
/// for (const tier where : all_tiers) cache.reset_tier(where, capacity[where], frame, frames[where]);
/// cache.acquire(slot, chunk, entry_kind::read, next_use, now, mover);  // the chunk is on the device and pinned
/// cache.unpin(tier::device, chunk, false);
/// @endcode
template <eviction_policy Eviction>
class chunk_cache {
  static_assert(
      tier_count == 2,
      "chunkmem: a chunk that leaves the device is saved on the host, and on no tier below it: bench/NOTES.md says "
      "what a third tier needs");

 public:
  explicit chunk_cache(Eviction eviction = {}) : candidates_{std::move(eviction)} {}

  // Places.

  [[nodiscard]] const chunk_table& table() const noexcept { return table_; }
  [[nodiscard]] const chunk& operator[](chunk_id id) const noexcept { return table_[id]; }
  [[nodiscard]] std::uint32_t chunks() const noexcept { return table_.chunks(); }
  [[nodiscard]] const tier_space& space(tier where) const noexcept { return table_.space(where); }
  /// How often a chunk lost its frames on the host.
  [[nodiscard]] std::uint64_t reclaims() const noexcept { return reclaims_; }

  // Set-up.

  /// Nothing lies anywhere, and no leases are expected. Tiers are set by `reset_tier`.
  /// @param frames_of_chunk   how many neighbouring frames each chunk takes
  void reset(std::span<const std::uint32_t> frames_of_chunk, std::uint32_t slots)
  {
    table_.reset(frames_of_chunk, slots);
    forget_decisions();
    leases_from_ = frame_pool::none;
  }
  /// @param capacity   of the tier [bytes]   @param frame   size of a frame [bytes]
  void reset_tier(tier where, bytes capacity, bytes frame, std::uint32_t frames)
  {
    table_.space(where).reset(capacity, frame, frames);
    forget_order();
  }
  /// A mover makes the bytes of this chunk from others: it takes no frames on the host. @pre it lies nowhere
  void make_derived(chunk_id id) noexcept { table_[id].first_frame[tier::host] = chunk::elsewhere; }
  /// As chunk::is_filled_by_ranks, from now on. @pre it lies nowhere
  void fill_by_ranks(chunk_id id) noexcept { table_[id].fill_by_ranks(); }
  /// As chunk::is_summed, from now on. @pre it lies nowhere
  void sum_over_ranks(chunk_id id) noexcept { table_[id].sum_over_ranks(); }
  /// Takes the places of all chunks from `other`; call tell_policy afterwards. O(chunks + frames)
  void take_places(const chunk_table& other)
  {
    table_ = other;
    for (chunk& chunk_state : table_.all()) chunk_state.touched = false;
    forget_decisions();
    forget_order();
  }
  /// The bytes of two slots change places.
  void exchange_live(slot_id left, slot_id right) noexcept { table_.exchange_live(left, right); }
  /// What the rehearsed step needs, for messages.
  void note_step_need(per_tier<bytes> need) noexcept { table_.note_step_need(need); }

  // The eviction policy.

  /// The policy itself, for one that follows a plan.
  [[nodiscard]] Eviction& policy() noexcept { return candidates_.policy(); }
  /// Notifies the policy of pins and releases from now on, and of the resident chunks now. O(chunks)
  void tell_policy(const access_record& record) { candidates_.tell(record, table_.all()); }
  /// A plan is followed: the policy is not notified until `tell_policy`.
  void silence_policy() noexcept { candidates_.silence(); }
  [[nodiscard]] bool is_telling() const noexcept { return candidates_.is_telling(); }
  /// Settings of the policy that a simulation may choose from; after `choose` comes `tell_policy`.
  [[nodiscard]] std::uint32_t variants() const noexcept { return candidates_.variants(); }
  void choose(std::uint32_t variant) noexcept { candidates_.choose(variant); }
  /// Chunks on the device arrived and were unpinned in the same order. @pre the tables have the same places
  [[nodiscard]] bool same_order(const chunk_cache& other) noexcept
  {
    return candidates_.same_order(other.candidates_, table_.all());
  }

  // Iterations.

  /// An iteration begins: its decisions depend on the present places alone.
  void begin_round() noexcept { host_frames_.start_over(); }

  /// Next uses of all chunks as at the start of `record`. The policy is not notified until `tell_policy`: its keys
  /// would be accesses of another record. O(chunks + entries)
  /// @param device_only   by chunk: a plan keeps it on the device alone; empty: none
  void start_of(const access_record& record, std::span<const std::uint8_t> device_only = {}) noexcept
  {
    candidates_.silence();
    has_long_chunks_ = std::any_of(table_.all().begin(), table_.all().end(),
                                   [](const chunk& chunk_state) { return chunk_state.frames > 1; });
    leases_from_ = detail::lowest_leased_frame(space(tier::device), record);
    for (const chunk_id id : table_.chunk_ids()) {
      chunk& chunk_state = table_[id];
      chunk_state.next_use = record.empty() ? access_record::never : record.first_of_chunk()[index_of(id)];
      chunk_state.want_below(!record.empty() && record.is_left_for_host(index_of(id)));
      chunk_state.keep_on_device(!device_only.empty() && device_only[index_of(id)] != 0);
    }
  }

  /// Next uses of all chunks at the start of an iteration, by a plan. @pre start_of()
  void expect_first(std::span<const std::uint32_t> first) noexcept
  {
    for (const chunk_id id : table_.chunk_ids()) table_[id].next_use = first[index_of(id)];
  }

  /// A chunk on the device is used next at this access of the next iteration.
  void expect_use(chunk_id id, std::uint32_t next_use) noexcept
  {
    if (!table_[id].has_frames(tier::device)) return;
    candidates_.touch(id, table_[id]);
    table_[id].next_use = next_use;
  }

  // Accesses.

  /// Pins a chunk that is on the device: the hot path. @pre it is, and for writing it has no host pins
  void pin_resident(chunk_id id, bool writing, std::uint32_t next_use) noexcept
  {
    chunk& chunk_state = table_[id];
    candidates_.touch(id, chunk_state);
    ++chunk_state.pins[tier::device];
    chunk_state.next_use = next_use;
    if (writing) chunk_state.written_in(tier::device);
  }
  /// Ends a pin in this tier. @param writing   as the pin was taken
  void unpin(tier where, chunk_id id, bool writing) noexcept
  {
    chunk& chunk_state = table_[id];
    --chunk_state.pins[where];
    if (where == tier::device) {
      if (chunk_state.pins[where] == 0) candidates_.unpinned(id, chunk_state);
    } else if (writing) {
      --chunk_state.writers;
    }
  }

  /// Brings the chunk of `slot` to where `kind` wants it and pins it there.
  /// @throws out_of_memory   all chunks that could leave are pinned, or the host has no room
  template <cache_mover Mover>
  void acquire(slot_id slot, chunk_id id, entry_kind kind, std::uint32_t next_use, access_index now, Mover& mover)
  {
    chunk& chunk_state = table_[id];
    const bool was_live = table_.is_live(slot);
    const bool has_others = chunk_state.live > (was_live ? 1U : 0U);
    const bool keep = has_others || (was_live && access_of(kind) != access::write);
    const bool writing = writes(access_of(kind));
    if (const tier where = tier_of(kind); where == tier::device) {
      bring_up(id, keep, now, mover);
      pin_resident(id, writing, next_use);
    } else {
      bring_down(id, keep, mover);
      if (writing && chunk_state.has_frames(tier::device)) discard(id, mover);
      candidates_.touch(id, chunk_state);
      chunk_state.next_use = next_use;
      ++chunk_state.pins[where];
      if (writing) ++chunk_state.writers;
    }
    if (!was_live) ++chunk_state.live;
    table_.set_live(slot, true);
  }

  /// The bytes of `slot` are dead. With the last slot of a chunk its device frames become free; its frames on the host
  /// stay for the next iteration. @pre the slot has no pins
  template <cache_mover Mover>
  void drop(slot_id slot, chunk_id id, Mover& mover)
  {
    if (!table_.is_live(slot)) return;
    table_.set_live(slot, false);
    chunk& chunk_state = table_[id];
    if (--chunk_state.live > 0) return;
    if (chunk_state.has_frames(tier::device) && chunk_state.pins[tier::device] == 0) discard(id, mover);
    chunk_state.set_valid(tier::host, false);
  }

  // Leases.

  /// Leases scratch bytes from the same budget. A lease takes first the frames of chunks that a plan gives up, then
  /// free frames and other chunks. Where frames are ordered by age, a lease takes free frames first: it need not wait
  /// until the chunks that were given up are written back.
  /// @param size   [bytes]
  /// @return       first byte in the arena of the tier
  template <cache_mover Mover>
  std::uint64_t lease(tier where, std::uint64_t size, Mover& mover)
  {
    tier_space& room = table_.space(where);
    const bool is_planned = where == tier::device && bounded_eviction<Eviction>;
    std::uint64_t begin = tier_space::no_place;
    if (is_planned && orders_by_age()) begin = room.find_lease(size, [](frame_id) { return false; });
    if (begin == tier_space::no_place)
      begin = room.find_lease(size, [&](frame_id frame) { return is_planned && makes_way(room.occupant(frame)); });
    if (begin == tier_space::no_place)
      begin = room.find_lease(size, [&](frame_id frame) { return table_.may_leave(where, room.occupant(frame)); });
    if (begin == tier_space::no_place) throw out_of_memory{table_.shortage(where, size)};
    room.for_frames(begin, size, [&](frame_id frame) {
      const chunk_id occupant = room.occupant(frame);
      if (table_.has(occupant)) where == tier::device ? evict(occupant, mover) : reclaim(occupant, mover);
    });
    room.take_lease(begin, size);
    mover.leased(where, begin, size);
    return begin;
  }

  template <cache_mover Mover>
  void end_lease(tier where, std::uint64_t begin, std::uint64_t size, Mover& mover)
  {
    table_.space(where).give_lease(begin, size, [&](frame_id frame) {
      note_free(where, frame, false);
      mover.vacated(where, frame, 1, false);
    });
  }

  // The moves of a plan. A move that is out of date is skipped, with false.

  template <cache_mover Mover>
  bool try_lease(tier where, std::uint64_t begin, std::uint64_t size, Mover& mover)
  {
    if (!space(where).can_lease_at(begin, size)) return false;
    table_.space(where).take_lease(begin, size);
    mover.leased(where, begin, size);
    return true;
  }
  template <cache_mover Mover>
  bool try_evict(chunk_id id, Mover& mover)
  {
    if (!can_be_evicted(table_[id])) return false;
    evict(id, mover);
    return true;
  }
  template <cache_mover Mover>
  bool try_load(chunk_id id, frame_id first, bool keep, Mover& mover)
  {
    const chunk& chunk_state = table_[id];
    if (chunk_state.has_frames(tier::device) || !space(tier::device).pool().is_free(first, chunk_state.frames) ||
        (keep && !chunk_state.is_valid(tier::host)) || chunk_state.writers > 0)
      return false;
    occupy(id, first, keep, mover);
    candidates_.arrive(id, table_[id]);
    return true;
  }
  template <cache_mover Mover>
  bool try_write_back(chunk_id id, Mover& mover)
  {
    if (!can_be_evicted(table_[id]) || table_[id].is_valid(tier::host)) return false;
    save(id, mover);
    return true;
  }

  /// Loads a chunk for the next iteration.
  /// @param first    the first of its frames, each of which is free or has a chunk that a plan gives up. None, for a
  ///                 chunk of one frame: any such frame below `lease_limit`
  /// @return         false where there are no such frames or the host does not have the bytes; nothing happened
  template <cache_mover Mover>
  bool bring_early(chunk_id id, frame_id first, std::uint32_t lease_limit, access_index next_use, Mover& mover)
    requires bounded_eviction<Eviction>
  {
    chunk& chunk_state = table_[id];
    if (chunk_state.has_frames(tier::device) || chunk_state.live == 0) return false;
    if (!chunk_state.is_valid(tier::host) || chunk_state.writers > 0) return false;
    if (first == frame_pool::none && chunk_state.frames == 1)
      first = make_expendable_room(1, lease_limit, UINT64_MAX, mover);
    if (first == frame_pool::none || !clear_frame_run(first, chunk_state.frames, id, mover)) return false;
    occupy(id, first, true, mover);
    chunk_state.next_use = index_of(next_use);
    candidates_.arrive(id, chunk_state);
    return true;
  }

  // The whole device.

  /// Clears the device of all chunks that are not pinned and that the host has room for.
  /// @throws device_error   a write-back could not start; the rest stays
  template <cache_mover Mover>
  void evict_all(Mover& mover)
  {
    for (const chunk_id id : table_.chunk_ids())
      if (can_be_evicted(table_[id])) leaves(id, mover);  // without room on the host it stays on the device alone
  }

  /// Gives up host copies that `before` does not have, and their frames, where the device has the bytes. O(chunks)
  template <cache_mover Mover>
  void give_up_copies(const chunk_table& before, Mover& mover)
  {
    for (const chunk_id id : table_.chunk_ids()) {
      chunk& chunk_state = table_[id];
      if (!chunk_state.has_frames(tier::device) || chunk_state.pins[tier::host] > 0 || before[id].is_valid(tier::host))
        continue;
      chunk_state.set_valid(tier::host, false);
      if (before[id].first_frame[tier::host] == chunk::nowhere && chunk_state.first_frame[tier::host] != chunk::nowhere)
        reclaim(id, mover);
    }
  }

 private:
  void forget_decisions()
  {
    candidates_.reset(chunks());
    host_frames_.start_over();
    reclaims_ = 0;
  }
  void forget_order()
  {
    if constexpr (bounded_eviction<Eviction>) free_order_.reset(space(tier::device).pool());
  }

  // A chunk comes.

  template <cache_mover Mover>
  void bring_up(chunk_id id, bool keep, access_index now, Mover& mover)
  {
    frame_id first = frame_pool::none;
    if constexpr (bounded_eviction<Eviction>) first = planned_room(id, now, mover);
    if (table_[id].has_frames(tier::device)) return;
    if (first == frame_pool::none)
      first = make_room(table_[id].frames, keep || table_[id].is_filled_by_ranks(), now, mover);
    occupy(id, first, keep, mover);
    candidates_.arrive(id, table_[id]);
  }

  template <cache_mover Mover>
  void bring_down(chunk_id id, bool keep, Mover& mover)
  {
    if (keep && !table_[id].is_valid(tier::host)) save(id, mover);
    take_frames_below(id, mover);
    table_[id].set_valid(tier::host, true);
  }

  /// Puts a chunk into free device frames, with its bytes if there are any to keep.
  template <cache_mover Mover>
  void occupy(chunk_id id, frame_id first, bool keep, Mover& mover)
  {
    chunk& chunk_state = table_[id];
    place(tier::device, id, first, mover);
    try {
      keep ? mover.copy(id, chunk_state, tier::host, tier::device) : mover.claimed(id, chunk_state, tier::device);
    } catch (...) {
      vacate(tier::device, id, mover, true);
      throw;
    }
    chunk_state.set_valid(tier::device, true);
  }

  /// Makes the copy below valid again; the chunk stays on the device.
  template <cache_mover Mover>
  void save(chunk_id id, Mover& mover)
  {
    chunk& chunk_state = table_[id];
    take_frames_below(id, mover);
    mover.copy(id, chunk_state, tier::device, tier::host);
    candidates_.touch(id, chunk_state);
    chunk_state.set_valid(tier::host, true);
  }

  template <cache_mover Mover>
  void take_frames_below(chunk_id id, Mover& mover)
  {
    if (!finds_frames_below(id, mover)) throw shortage_of_frames(tier::host, table_[id].frames);
  }
  /// @return   false where the host has no room for the chunk, and nothing happened
  template <cache_mover Mover>
  bool finds_frames_below(chunk_id id, Mover& mover)
  {
    if (table_[id].first_frame[tier::host] != chunk::nowhere) return true;
    const frame_id first = host_frames_.find_frames(table_, id, [&](chunk_id victim) { reclaim(victim, mover); });
    if (first == frame_pool::none) return false;
    place(tier::host, id, first, mover);
    return true;
  }

  template <cache_mover Mover>
  void place(tier where, chunk_id id, frame_id first, Mover& mover)
  {
    table_.space(where).place(id, first, table_[id].frames);
    table_[id].put(where, first, false);
    mover.placed(where, first, table_[id].frames);
  }

  // A chunk leaves.

  /// As `leaves`. @throws out_of_memory   the host has no room for it
  template <cache_mover Mover>
  void evict(chunk_id id, Mover& mover)
  {
    if (!leaves(id, mover)) throw shortage_of_frames(tier::host, table_[id].frames);
  }
  /// Its device frames become free, after a write-back where the bytes are wanted.
  /// @return   false where the host has no room for the chunk, which stays. No exception: trials of a small host often
  ///   end here
  template <cache_mover Mover>
  bool leaves(chunk_id id, Mover& mover)
  {
    if (table_[id].live > 0 && !table_[id].is_valid(tier::host)) {
      if (!finds_frames_below(id, mover)) return false;
      save(id, mover);
    }
    mover.evicted(id, table_[id], tier::device);
    candidates_.touch(id, table_[id]);
    vacate(tier::device, id, mover, true);
    return true;
  }

  /// Its device frames become free, and their bytes are dead.
  template <cache_mover Mover>
  void discard(chunk_id id, Mover& mover)
  {
    mover.discarded(id, table_[id], tier::device);
    candidates_.touch(id, table_[id]);
    vacate(tier::device, id, mover, false);
  }

  /// Its host frames become free.
  template <cache_mover Mover>
  void reclaim(chunk_id id, Mover& mover)
  {
    ++reclaims_;
    candidates_.touch(id, table_[id]);
    vacate(tier::host, id, mover, false);
  }

  template <cache_mover Mover>
  void vacate(tier where, chunk_id id, Mover& mover, bool evicted)
  {
    chunk& chunk_state = table_[id];
    const frame_id first = chunk_state.first_frame[where];
    table_.space(where).vacate(first, chunk_state.frames);
    const bool in_use = evicted || chunk_state.is_summed();
    for (std::uint32_t frame = 0; frame < chunk_state.frames; ++frame) note_free(where, first + frame, in_use);
    chunk_state.take_away(where);
    mover.vacated(where, first, chunk_state.frames, evicted);
  }

  void note_free(tier where, frame_id frame, bool in_use) noexcept
  {
    if constexpr (bounded_eviction<Eviction>)
      if (where == tier::device) free_order_.freed(frame, in_use, candidates_.clock());
  }

  /// Evicts the victim; where the host has no room for the victim, a chunk that needs none. O(chunks) in that case.
  template <cache_mover Mover>
  void evict_or_clean(chunk_id victim, Mover& mover)
  {
    if (leaves(victim, mover)) return;
    for (const chunk_id id : table_.chunk_ids())
      if (can_be_evicted(table_[id]) && table_[id].is_valid(tier::host)) return evict(id, mover);
    throw shortage_of_frames(tier::host, table_[victim].frames);
  }

  // Frames on the device.

  /// Finds `count` neighbouring device frames that are free; evicts the chunks in them where none are.
  /// @param loads   a copy or a gather fills the frames
  /// @throws out_of_memory   before anything is evicted, or where the host has no room for one of several chunks
  template <cache_mover Mover>
  frame_id make_room(std::uint32_t count, bool loads, access_index now, Mover& mover)
  {
    if (count > 1) return make_room_for_run(count, loads, now, mover);
    if constexpr (bounded_eviction<Eviction>) return make_bounded_room(loads, now, mover);
    const frame_id first = space(tier::device).pool().lowest(1);
    if (first != frame_pool::none && !is_spared(first, now)) return first;
    const chunk_id victim = candidates_.victim(now, table_.all());
    if (victim == chunk_id::none) throw shortage_of_frames(tier::device, 1);
    evict_or_clean(victim, mover);
    return space(tier::device).pool().lowest(1);
  }

  /// Where no run is free, takes the run whose most valuable chunk is the least valuable. @param loads   as of
  /// make_room
  template <cache_mover Mover>
  frame_id make_room_for_run(std::uint32_t count, bool loads, access_index now, Mover& mover)
  {
    const tier_space& device = space(tier::device);
    frame_id first = frame_pool::none;
    if constexpr (bounded_eviction<Eviction>)
      if (const std::uint32_t lease_limit = candidates_.lease_limit(now); orders_by_age()) {
        if (const frame_id own = preferred_window(count, lease_limit, now, mover); own != frame_pool::none) return own;
        first = free_order_.run(device.pool(), lease_limit, count, loads);
        if (first != frame_pool::none && loads && takes_given_up())
          if (const frame_id older = make_expendable_room(count, lease_limit, free_order_.since(first, count), mover);
              older != frame_pool::none)
            return older;
      }
    if (first == frame_pool::none) first = device.pool().lowest(count);
    if (first != frame_pool::none) return first;
    candidates_.rank(now, table_.all(), [&](chunk_id victim) {
      first = cheapest_frame_run_around(device, count, table_[victim].first_frame[tier::device], table_[victim].frames,
                                        [&](chunk_id id) { return candidates_.is_named(id) ? 1U : impossible_run; });
      return first != frame_pool::none;
    });
    if (first == frame_pool::none) throw shortage_of_frames(tier::device, count);
    for (frame_id frame = first; frame < first + count; frame = frame + 1)
      if (const chunk_id occupant = device.occupant(frame); table_.has(occupant)) evict(occupant, mover);
    return first;
  }

  /// As eviction::by_retention::order_by_age.
  [[nodiscard]] bool orders_by_age() const noexcept
  {
    if constexpr (requires { candidates_.policy().is_ordered_by_age(); })
      return candidates_.policy().is_ordered_by_age();
    else
      return false;
  }
  /// As eviction::by_retention::take_given_up.
  [[nodiscard]] bool takes_given_up() const noexcept
  {
    if constexpr (requires { candidates_.policy().takes_given_up(); })
      return candidates_.policy().takes_given_up();
    else
      return false;
  }
  [[nodiscard]] frame_id free_frame_below(std::uint32_t lease_limit, bool loads) noexcept
    requires bounded_eviction<Eviction>
  {
    const frame_pool& pool = space(tier::device).pool();
    if (!orders_by_age()) return pool.highest_below(lease_limit);
    return loads ? free_order_.for_load(pool, lease_limit) : free_order_.for_claim(pool, lease_limit);
  }

  /// A free frame for a chunk that has to lie below the lease limit of its stay. Where none is free, a chunk below the
  /// limit that the plan gives up leaves; else any chunk. Where frames are ordered by age, a load takes the frame of a
  /// chunk that was given up before the free frame became free: the load then begins, and the write-back ends, before
  /// its use.
  template <cache_mover Mover>
  frame_id make_bounded_room(bool loads, access_index now, Mover& mover)
  {
    const frame_pool& pool = space(tier::device).pool();
    const std::uint32_t lease_limit = candidates_.lease_limit(now);
    if (const frame_id own = preferred_window(1, lease_limit, now, mover); own != frame_pool::none) return own;
    if (const frame_id first = free_frame_below(lease_limit, loads); first != frame_pool::none) {
      if (!loads || !takes_given_up()) return first;
      const frame_id older = make_expendable_room(1, lease_limit, free_order_.since(first, 1), mover);
      return older != frame_pool::none ? older : first;
    }
    chunk_id victim = chunk_id::none;
    chunk_id below = chunk_id::none;
    candidates_.rank(now, table_.all(), [&](chunk_id id) {
      const bool expendable = candidates_.gives_up(id);
      if (victim == chunk_id::none) victim = id;
      if (expendable && index_of(table_[id].first_frame[tier::device]) < lease_limit) below = id;
      return below != chunk_id::none || !expendable;
    });
    if (below == chunk_id::none) {
      if (const frame_id first = pool.lowest(1); first != frame_pool::none) return first;
      if (victim == chunk_id::none) throw shortage_of_frames(tier::device, 1);
      below = victim;
    }
    evict_or_clean(below, mover);
    return pool.lowest(1);
  }

  /// The frames that the plan prefers for a chunk that arrives now, cleared; none where they cannot be cleared.
  template <cache_mover Mover>
  frame_id preferred_window(std::uint32_t count, std::uint32_t lease_limit, access_index now, Mover& mover)
  {
    const frame_id own{candidates_.policy().preferred(now)};
    const bool is_below = index_of(own) < lease_limit && count <= lease_limit - index_of(own);
    return is_below && clear_frame_run(own, count, chunk_id::none, mover) ? own : frame_pool::none;
  }

  /// The first frame, below `lease_limit`, of the chunk of `count` frames that the plan gives up and that was unpinned
  /// first, if this was before the given time. Of chunks with several frames only gathered ones count: they leave
  /// without a copy. None where there is no such chunk; nothing was evicted.
  template <cache_mover Mover>
  frame_id make_expendable_room(std::uint32_t count, std::uint32_t lease_limit, std::uint64_t before, Mover& mover)
  {
    chunk_id victim = chunk_id::none;
    candidates_.rank(access_index::none, table_.all(), [&](chunk_id id) {
      if (!candidates_.gives_up(id) || candidates_.released(id) >= before) return true;
      const chunk& chunk_state = table_[id];
      const bool is_below = index_of(chunk_state.first_frame[tier::device]) + count <= lease_limit;
      const bool may_go = chunk_state.frames == count && (count == 1 || chunk_state.is_gathered());
      if (may_go && is_below && can_leave(chunk_state)) victim = id;
      return victim != chunk_id::none;
    });
    if (victim == chunk_id::none) return frame_pool::none;
    const frame_id first = table_[victim].first_frame[tier::device];
    evict(victim, mover);
    return first;
  }

  /// The frames that the plan has for a chunk, cleared. A chunk that lies elsewhere leaves its frames, where it would
  /// block others. None where the plan has no frames or they cannot be cleared.
  template <cache_mover Mover>
  frame_id planned_room(chunk_id id, access_index now, Mover& mover)
  {
    const chunk& chunk_state = table_[id];
    const frame_id own = candidates_.policy().place(now);
    if (own == frame_pool::none || own == chunk_state.first_frame[tier::device]) return frame_pool::none;
    if (chunk_state.has_frames(tier::device) && !can_leave_now(chunk_state)) return frame_pool::none;
    if (!clear_frame_run(own, chunk_state.frames, id, mover)) return frame_pool::none;
    if (chunk_state.has_frames(tier::device) && !leaves(id, mover)) return frame_pool::none;
    return own;
  }

  /// @param coming   the chunk that the frames are for, which may lie in some of them
  /// @return   the frames are free, if need be after chunks that the plan gives up left them; else nothing happened,
  ///           except where the host had room for only some of these chunks
  template <cache_mover Mover>
  bool clear_frame_run(frame_id first, std::uint32_t count, chunk_id coming, Mover& mover)
  {
    const tier_space& device = space(tier::device);
    if (index_of(first) >= device.frames() || count > device.frames() - index_of(first)) return false;
    for (frame_id frame = first; frame < first + count; frame = frame + 1)
      if (const chunk_id who = device.occupant(frame);
          who != tier_space::free_frame && who != coming && !is_given_up(who, count))
        return false;
    for (frame_id frame = first; frame < first + count; frame = frame + 1)
      if (const chunk_id who = device.occupant(frame); table_.has(who) && !leaves(who, mover)) return false;
    return true;
  }

  /// A free frame is spared when leases will reach it and push out its chunk, and another chunk below leaves without
  /// extra copies: the plan does not load that chunk again, and the host has its bytes, or gets them in any case and
  /// has frames for them.
  [[nodiscard]] bool is_spared(frame_id free, access_index now) noexcept
  {
    if (free < leases_from_) return false;
    const chunk_id victim = candidates_.victim(now, table_.all());
    if (victim == chunk_id::none) return false;
    const chunk& chunk_state = table_[victim];
    if (chunk_state.next_use != access_record::never || chunk_state.frames != 1) return false;
    if (chunk_state.first_frame[tier::device] >= free) return false;
    return chunk_state.is_valid(tier::host) ||
           (chunk_state.wanted_below() && chunk_state.first_frame[tier::host] != chunk::nowhere);
  }

  /// A plan gives this chunk up, and it can leave for one of `count` frames. No other policy gives chunks up. Where the
  /// plan does not have frames for all chunks, a chunk of several frames leaves for one of as many frames alone.
  [[nodiscard]] bool is_given_up(chunk_id id, std::uint32_t count = 1) const noexcept
  {
    if constexpr (!bounded_eviction<Eviction>)
      return false;
    else if (!table_.has(id) ||
             (table_[id].frames != 1 && table_[id].frames != count && !candidates_.policy().has_places()))
      return false;
    else
      return table_[id].next_use == access_record::never && can_leave_now(table_[id]);
  }

  /// A lease takes the frames of this chunk rather than free frames below. Not where some chunks have several frames
  /// and the plan has no frames for them: a plan in bytes cannot say which frames they need, and some measured steps
  /// then moved up to 0.04 of the bound more.
  [[nodiscard]] bool makes_way(chunk_id id) const noexcept
  {
    if constexpr (bounded_eviction<Eviction>)
      return (!has_long_chunks_ || candidates_.policy().has_places()) && is_given_up(id);
    else
      return false;
  }

  [[nodiscard]] static bool can_be_evicted(const chunk& chunk_state) noexcept
  {
    return chunk_state.has_frames(tier::device) && chunk_state.pins[tier::device] == 0;
  }
  /// It has no pins on the device, and evicting it takes no room on the host. A plan with frames for all chunks counts
  /// on a host copy of each: then evicting may take free room there.
  [[nodiscard]] bool can_leave_now(const chunk& chunk_state) const noexcept
    requires bounded_eviction<Eviction>
  {
    if (chunk_state.pins[tier::device] > 0) return false;
    return can_leave(chunk_state) || (candidates_.policy().has_places() &&
                                      space(tier::host).pool().lowest(chunk_state.frames) != frame_pool::none);
  }
  /// Evicting it takes no room on the host.
  [[nodiscard]] static bool can_leave(const chunk& chunk_state) noexcept
  {
    return chunk_state.is_valid(tier::host) || chunk_state.live == 0 ||
           chunk_state.first_frame[tier::host] != chunk::nowhere;
  }

  [[nodiscard]] out_of_memory shortage_of_frames(tier where, std::uint32_t count) const
  {
    return out_of_memory{table_.shortage(where, count * space(where).frame_bytes())};
  }

  chunk_table table_;
  candidate_set<Eviction> candidates_;
  frame_reclaim host_frames_{tier::host};
  std::uint64_t reclaims_ = 0;
  frame_id leases_from_ = frame_pool::none;  // the lowest device frame that leases of the record reach
  struct no_order {};
  [[no_unique_address]] std::conditional_t<bounded_eviction<Eviction>, free_frame_order, no_order> free_order_;
  bool has_long_chunks_ = false;  // of several frames; known from start_of() on
};

}  // namespace chunkmem::inline v0
