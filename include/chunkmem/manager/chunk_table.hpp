// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/chunk/tier_space.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

namespace chunkmem::inline v0 {

/// The places of all chunks of a manager: the chunks, and the tiers that hold them. Plain data, without a policy.
///
/// A plan starts from a table, a copy of a table is where an iteration began, and a comparison of two tables says
/// whether a plan is valid again. `chunk_cache` moves chunks and keeps the frames of a chunk and of its tiers in step.
/// @code
/// chunk_table table;
/// table.reset(frames_of_chunk, slots);
/// table.space(tier::device).reset(capacity, frame, frames);  // and the same for each other tier
/// const chunk_table before = table;
/// // ... chunks move ...
/// if (table.same_places(before)) ...                         // the plan of before is valid again
/// @endcode
class chunk_table {
 public:
  [[nodiscard]] chunk& operator[](chunk_id id) noexcept { return chunks_[index_of(id)]; }
  [[nodiscard]] const chunk& operator[](chunk_id id) const noexcept { return chunks_[index_of(id)]; }
  /// `id` is a chunk, and no mark of an empty frame.
  [[nodiscard]] bool has(chunk_id id) const noexcept { return index_of(id) < chunks(); }
  [[nodiscard]] id_range<chunk_id> chunk_ids() const noexcept { return ids<chunk_id>(chunks()); }
  [[nodiscard]] std::span<chunk> all() noexcept { return chunks_; }
  [[nodiscard]] std::span<const chunk> all() const noexcept { return chunks_; }
  [[nodiscard]] std::uint32_t chunks() const noexcept { return static_cast<std::uint32_t>(chunks_.size()); }
  [[nodiscard]] tier_space& space(tier where) noexcept { return spaces_[where]; }
  [[nodiscard]] const tier_space& space(tier where) const noexcept { return spaces_[where]; }

  /// By slot: it holds bytes.
  [[nodiscard]] std::span<const std::uint8_t> live() const noexcept { return live_; }
  [[nodiscard]] bool is_live(slot_id slot) const noexcept { return live_[index_of(slot)] != 0; }
  void set_live(slot_id slot, bool holds_bytes) noexcept { live_[index_of(slot)] = holds_bytes ? 1 : 0; }
  void exchange_live(slot_id left, slot_id right) noexcept { std::swap(live_[index_of(left)], live_[index_of(right)]); }

  /// Nothing lies anywhere and no slot holds bytes. The spaces are set by the caller.
  /// @param frames_of_chunk   how many neighbouring frames each chunk takes
  void reset(std::span<const std::uint32_t> frames_of_chunk, std::uint32_t slots)
  {
    chunks_.assign(frames_of_chunk.size(), chunk{});
    for (std::size_t index = 0; index < chunks_.size(); ++index) chunks_[index].frames = frames_of_chunk[index];
    live_.assign(slots, 0);
  }

  /// The chunk's copy in this tier could be given up now without losing a byte or a pin, if need be after a write-back.
  [[nodiscard]] bool may_leave(tier where, chunk_id id) const noexcept
  {
    const chunk& chunk_state = (*this)[id];
    if (chunk_state.pins[where] > 0) return false;
    if (where != last_tier) return true;  // a write-back goes to the next tier
    return !chunk_state.is_valid(where) || std::any_of(all_tiers.begin(), all_tiers.end(), [&](tier other) {
      return other != where && chunk_state.is_valid(other);
    });
  }

  /// The numbers for the message of a request that cannot be met: bytes that cannot leave, and the capacity that this
  /// access needs. Where the free room is not contiguous, only more capacity guarantees a run. O(chunks).
  [[nodiscard]] memory_shortage shortage(tier where, std::uint64_t requested) const noexcept
  {
    const tier_space& room = space(where);
    std::uint64_t stuck = room.leased();
    for (const chunk_id each : chunk_ids())
      if ((*this)[each].has_frames(where) && !may_leave(where, each))
        stuck += (*this)[each].frames * room.frame_bytes();
    const std::uint64_t held = stuck + requested <= room.capacity() ? room.capacity() : stuck;
    return {where,
            requested,
            room.capacity(),
            stuck,
            requested > UINT64_MAX - held ? UINT64_MAX : held + requested,
            false,
            step_need_[where].count()};
  }
  /// What the rehearsed step needs, for messages.
  void note_step_need(per_tier<bytes> need) noexcept { step_need_ = need; }

  /// The same chunks in the same frames, with the same room left. Next uses are not compared. O(chunks + frames).
  [[nodiscard]] bool same_places(const chunk_table& other) const noexcept
  {
    return live_ == other.live_ &&
           std::all_of(all_tiers.begin(), all_tiers.end(),
                       [&](tier where) { return spaces_[where].same_places(other.spaces_[where]); }) &&
           std::equal(chunks_.begin(), chunks_.end(), other.chunks_.begin(), other.chunks_.end(),
                      [](const chunk& ours, const chunk& theirs) { return ours.same_place(theirs); });
  }

 private:
  sequence<chunk> chunks_;
  sequence<std::uint8_t> live_;  // by slot: it holds bytes
  per_tier<tier_space> spaces_;
  per_tier<bytes> step_need_;  // zero until a step was rehearsed
};

/// Notifies an eviction policy of the chunks that may leave the device, and only when a victim is needed.
///
/// An access marks its chunk (`touch`, `unpinned`, `arrive`). `victim` and `rank` first tell the policy about the
/// marked chunks, in the order in which they were unpinned. So a resident access costs a test and a stamp, whatever the
/// policy does, and a key never changes inside the policy's set. A chunk is a candidate while it is on the device
/// without pins. Cost: O(1) for an access; a decision adds O(m log m) for the m chunks touched since the last one.
/// Memory: 57 bytes for each chunk.
/// @code
/// candidate_set<eviction::lru> candidates{{}};
/// candidates.reset(chunks);
/// candidates.tell(record, all_chunks);       // the policy starts over with the chunks on the device
/// candidates.unpinned(at, all_chunks[at]);   // its last pin ended
/// const chunk_id leaves = candidates.victim(now, all_chunks);
/// @endcode
template <eviction_policy Eviction>
class candidate_set {
  // bounded_eviction is optional, so a policy with its old name would lose its limit without a word
  static_assert(
      !requires(const Eviction& policy, access_index now) { policy.border(now); },
      "the member border(now) of an eviction policy has the name lease_limit(now): rename it");

 public:
  explicit candidate_set(Eviction policy) : policy_{std::move(policy)} {}

  void reset(std::uint32_t chunks)
  {
    policy_.reset(chunks);
    entered_.assign(chunks, eviction::candidate{});
    touched_.assign(chunks, chunk_id{0});
    released_.assign(chunks, 0);
    arrived_.assign(chunks, 0);
    named_.assign(chunks, chunk_id{0});  // not reserved: copies keep a size, and no room beyond it
    is_named_.assign(chunks, 0);
    touched_count_ = 0;
    clock_ = 0;
    telling_ = true;
  }

  /// Starts over with the chunks on the device now. O(chunks).
  /// @throws std::bad_alloc   do not ask the policy before the next `tell`
  void tell(const access_record& record, std::span<chunk> chunks)
  {
    telling_ = false;
    policy_.reset(static_cast<std::uint32_t>(chunks.size()));
    policy_.on_profile(record);
    std::fill(entered_.begin(), entered_.end(), eviction::candidate{});
    for (const chunk_id each : ids<chunk_id>(static_cast<std::uint32_t>(chunks.size())))
      touch(each, chunks[index_of(each)]);
    telling_ = true;
  }

  /// The settings that a simulation may choose from; 1 where there is no choice.
  [[nodiscard]] std::uint32_t variants() const noexcept
  {
    if constexpr (tuned_eviction<Eviction>)
      return policy_.variants();
    else
      return 1;
  }
  /// Takes one of them. The policy must not be asked until `tell`.
  void choose(std::uint32_t variant) noexcept
  {
    telling_ = false;
    if constexpr (tuned_eviction<Eviction>) policy_.choose(variant);
  }

  /// Next uses are about to change under the policy: it must not be asked until `tell`.
  void silence() noexcept { telling_ = false; }
  [[nodiscard]] bool is_telling() const noexcept { return telling_; }

  /// Something about the chunk changed: where it is, its pins, its next use, or whether it is dirty.
  void touch(chunk_id id, chunk& chunk_state) noexcept
  {
    if (chunk_state.touched) return;
    chunk_state.touched = true;
    touched_[touched_count_++] = id;
  }

  /// As `touch`, and the last pin of the chunk ended now.
  void unpinned(chunk_id id, chunk& chunk_state) noexcept
  {
    released_[index_of(id)] = ++clock_;
    touch(id, chunk_state);
  }

  /// As `touch`, and the chunk arrived on the device now.
  void arrive(chunk_id id, chunk& chunk_state) noexcept
  {
    unpinned(id, chunk_state);
    arrived_[index_of(id)] = clock_;
  }

  /// Counts the times that a chunk was unpinned.
  [[nodiscard]] std::uint64_t clock() const noexcept { return clock_; }
  /// The count when this chunk was unpinned last.
  [[nodiscard]] std::uint64_t released(chunk_id id) const noexcept { return released_[index_of(id)]; }

  [[nodiscard]] chunk_id victim(access_index now, std::span<chunk> chunks) noexcept
  {
    flush(chunks);
    return policy_.victim(now);
  }

  /// Names candidates in the order in which they would leave, one after the other, until `enough(chunk)`. They all stay
  /// candidates. O(named ones) calls of the policy.   @return   it was enough
  template <class Enough>
  bool rank(access_index now, std::span<chunk> chunks, Enough enough) noexcept
  {
    flush(chunks);
    std::size_t count = 0;
    bool done = false;
    for (chunk_id next = policy_.victim(now); !done && next != chunk_id::none; next = policy_.victim(now)) {
      policy_.leave(entered_[index_of(next)]);
      named_[count++] = next;
      is_named_[index_of(next)] = 1;
      done = enough(next);
    }
    while (count-- > 0) {
      policy_.enter(entered_[index_of(named_[count])]);
      is_named_[index_of(named_[count])] = 0;
    }
    return done;
  }
  /// Chunks on the device arrived and were unpinned in the same order as in `other`. O(chunks log chunks).
  /// @pre the same chunks are on the device
  [[nodiscard]] bool same_order(const candidate_set& other, std::span<const chunk> chunks) noexcept
  {
    std::size_t count = 0;
    for (const chunk_id each : ids<chunk_id>(static_cast<std::uint32_t>(chunks.size())))
      if (chunks[index_of(each)].has_frames(where)) named_[count++] = each;
    const std::span named{named_.data(), count};
    const auto same = [named](const sequence<std::uint64_t>& ours, const sequence<std::uint64_t>& theirs) {
      sort_records(named, [&](chunk_id left, chunk_id right) { return is_before(ours, left, right); });
      for (std::size_t index = 1; index < named.size(); ++index)
        if (theirs[index_of(named[index])] < theirs[index_of(named[index - 1])]) return false;
      return true;
    };
    return same(arrived_, other.arrived_) && same(released_, other.released_);
  }
  /// As bounded_eviction, for a chunk that was named inside `enough`.
  [[nodiscard]] bool gives_up(chunk_id id) const noexcept
    requires bounded_eviction<Eviction>
  {
    return policy_.gives_up(entered_[index_of(id)]);
  }
  [[nodiscard]] std::uint32_t lease_limit(access_index now) const noexcept
    requires bounded_eviction<Eviction>
  {
    return policy_.lease_limit(now);
  }
  [[nodiscard]] Eviction& policy() noexcept { return policy_; }
  [[nodiscard]] const Eviction& policy() const noexcept { return policy_; }

  /// Inside `enough`: this one was named.
  [[nodiscard]] bool is_named(chunk_id id) const noexcept { return is_named_[index_of(id)] != 0; }

 private:
  static constexpr tier where = tier::device;  // which they may leave
  static constexpr tier below = tier::host;    // for which they are written back

  /// By a time of each chunk, then by their order.
  [[nodiscard]] static bool is_before(const sequence<std::uint64_t>& times, chunk_id left, chunk_id right) noexcept
  {
    const std::uint64_t first = times[index_of(left)];
    const std::uint64_t second = times[index_of(right)];
    return first != second ? first < second : left < right;
  }

  void flush(std::span<chunk> chunks) noexcept
  {
    const std::span<chunk_id> touched{touched_.data(), touched_count_};
    sort_records(touched, [this](chunk_id left, chunk_id right) { return is_before(released_, left, right); });
    for (const chunk_id next : touched) renew(next, chunks[index_of(next)]);
    touched_count_ = 0;
  }

  void renew(chunk_id id, chunk& chunk_state) noexcept
  {
    chunk_state.touched = false;
    eviction::candidate& known = entered_[index_of(id)];
    if (known.chunk != chunk_id::none) policy_.leave(known);
    known = {};
    if (!chunk_state.has_frames(where) || chunk_state.pins[where] > 0) return;
    known = {id,
             access_index{chunk_state.next_use},
             chunk_state.frames,
             !chunk_state.is_valid(below),
             arrived_[index_of(id)],
             released_[index_of(id)]};
    policy_.enter(known);
  }

  Eviction policy_;
  sequence<eviction::candidate> entered_;  // by chunk: what the policy has, or no chunk
  sequence<chunk_id> touched_;             // chunks whose entry is out of date; the first touched_count_
  sequence<std::uint64_t> released_;       // by chunk: when it was unpinned last
  sequence<std::uint64_t> arrived_;        // by chunk: when it came to the device
  sequence<chunk_id> named_;               // room for `rank` and `same_order`, one for each chunk
  sequence<std::uint8_t> is_named_;
  std::size_t touched_count_ = 0;
  std::uint64_t clock_ = 0;
  bool telling_ = true;
};

/// Chooses frames in a tier below the device, and decides whose frames are taken back when no frames are free.
///
/// A chunk keeps its frames there while there is room, whether its copy is valid or not. They are taken back when
/// another chunk needs them and no byte is lost: the copy is not valid, or the device has the bytes too. The price of
/// taking them back decides the order: nothing where a plan keeps the chunk on the device, 1 where the copy is not
/// valid, 4 where it is and would be written back again later.
///
/// Good for a tier that holds almost everything; a tier that chunks pass through wants an eviction policy.
/// Cost: O(1) while frames are free; else one frame looks at chunks from where the last search ended, and a run of
/// several frames looks at every place.
/// @code
/// frame_reclaim reclaim{tier::host};
/// const frame_id first = reclaim.find_frames(table, chunk, [&](chunk_id victim) { leave(victim); });
/// table.space(tier::host).place(chunk, first, table[chunk].frames);
/// @endcode
class frame_reclaim {
 public:
  explicit frame_reclaim(tier where) noexcept : where_{where} {}

  /// The next search starts as the first one did, so that decisions depend only on where chunks lie.
  void start_over() noexcept { hand_ = chunk_id{0}; }

  /// Finds free frames for a chunk. Places nothing.
  /// @param wanting   chunk that has no frames in this tier
  /// @param give_up   `give_up(victim)` frees the frames of the chunk `victim` in the table
  /// @return          first of its frames; none where there is no room, and nothing was given up
  template <class GiveUp>
  [[nodiscard]] frame_id find_frames(const chunk_table& table, chunk_id wanting, GiveUp give_up)
  {
    const std::uint32_t count = table[wanting].frames;
    const frame_id first = free_frames(table, count);
    if (first != frame_pool::none) return first;
    return count == 1 ? reclaim_frame(table, wanting, give_up) : reclaim_run(table, count, give_up);
  }

 private:
  /// Single frames come from the bottom and runs of several from the top, so that the first do not divide the room of
  /// the second.
  [[nodiscard]] frame_id free_frames(const chunk_table& table, std::uint32_t count) const noexcept
  {
    const frame_pool& pool = table.space(where_).pool();
    return count == 1 ? pool.lowest(1) : pool.highest(count);
  }

  [[nodiscard]] std::uint32_t price_of(const chunk& victim) const noexcept
  {
    return victim.never_leaves() ? 0 : victim.is_valid(where_) ? 4 : 1;
  }

  template <class GiveUp>
  frame_id reclaim_frame(const chunk_table& table, chunk_id wanting, GiveUp& give_up)
  {
    std::uint32_t price = 0;
    while (price != impossible_run) {
      std::uint32_t dearer = impossible_run;
      for (std::uint32_t step = 0; step < table.chunks(); ++step) {
        const std::uint32_t next = index_of(hand_) + 1;
        hand_ = chunk_id{next < table.chunks() ? next : 0};
        const chunk& victim = table[hand_];
        if (!victim.has_frames(where_) || hand_ == wanting || !table.may_leave(where_, hand_)) continue;
        if (const std::uint32_t of_victim = price_of(victim); of_victim > price) {
          dearer = std::min(dearer, of_victim);
          continue;
        }
        give_up(hand_);
        return table.space(where_).pool().lowest(1);
      }
      price = dearer;
    }
    return frame_pool::none;
  }

  template <class GiveUp>
  frame_id reclaim_run(const chunk_table& table, std::uint32_t count, GiveUp& give_up) const
  {
    const tier_space& space = table.space(where_);
    const frame_id first = cheapest_frame_run(
        space, count, frame_id{0}, frame_id{space.frames()},
        [&](chunk_id victim) { return table.may_leave(where_, victim) ? price_of(table[victim]) : impossible_run; });
    if (first == frame_pool::none) return first;
    for (frame_id frame = first; frame < first + count; frame = frame + 1)
      if (const chunk_id victim = space.occupant(frame); table.has(victim)) give_up(victim);
    return first;
  }

  tier where_;
  chunk_id hand_{0};  // the chunk at which the last search for a frame ended
};

}  // namespace chunkmem::inline v0
