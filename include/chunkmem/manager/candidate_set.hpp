// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/sort_records.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

namespace chunkmem::inline v0 {

/// Tells an eviction policy which chunks may leave the device, and only when a victim is needed.
///
/// An access marks its chunk (`touch`, `let_go`, `arrive`). `victim` and `rank` first tell the policy about the marked
/// chunks, in the order in which they were let go of. So a resident access costs a test and a stamp, whatever the
/// policy does, and a key never changes inside the policy's set. A chunk is a candidate while it is on the device
/// without pins. Cost: O(1) for an access; a decision adds O(m log m) for the m chunks touched since the last one.
/// Memory: 57 bytes for each chunk.
/// @code
/// candidate_set<eviction::lru> candidates{{}};
/// candidates.reset(chunks);
/// candidates.tell(record, all_chunks);       // the policy starts over with what is on the device
/// candidates.let_go(at, all_chunks[at]);     // its last pin ended
/// const chunk_id leaves = candidates.victim(now, all_chunks);
/// @endcode
template <eviction_policy Eviction>
class candidate_set {
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

  /// Starts over with what is on the device now. O(chunks).
  /// @throws std::bad_alloc   the policy must not be asked until it is told again
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

  /// The same, and it was let go of now.
  void let_go(chunk_id id, chunk& chunk_state) noexcept
  {
    released_[index_of(id)] = ++clock_;
    touch(id, chunk_state);
  }

  /// The same, and it came to the device now.
  void arrive(chunk_id id, chunk& chunk_state) noexcept
  {
    let_go(id, chunk_state);
    arrived_[index_of(id)] = clock_;
  }

  [[nodiscard]] chunk_id victim(access_index now, std::span<chunk> chunks) noexcept
  {
    flush(chunks);
    return policy_.victim(now);
  }

  /// Names candidates in the order in which they would go, one after the other, until `enough(chunk)`.
  /// They all stay candidates. O(named ones) calls of the policy.   @return   it was enough
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
  /// Chunks on the device came there, and were let go of, in the same order as in `other`. O(chunks log chunks).
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
  [[nodiscard]] std::uint32_t border(access_index now) const noexcept
    requires bounded_eviction<Eviction>
  {
    return policy_.border(now);
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
  sequence<std::uint64_t> released_;       // by chunk: when it was let go of last
  sequence<std::uint64_t> arrived_;        // by chunk: when it came to the device
  sequence<chunk_id> named_;               // room for `rank` and `same_order`, one for each chunk
  sequence<std::uint8_t> is_named_;
  std::size_t touched_count_ = 0;
  std::uint64_t clock_ = 0;
  bool telling_ = true;
};

}  // namespace chunkmem::inline v0
