// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/chunk/max_tree.hpp>
#include <chunkmem/chunk/tier_space.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/containers.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/transfer/record_uses.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

// Frames and times of the chunks that stay on the device: lease_usage and frame_calendar know the free frames,
// stay_frames chooses frames, link_stays makes the plan that a manager follows, and early_loads fills the next
// iteration.

namespace chunkmem::inline v0 {

namespace transfer {

/// Computes the frames that the leases of a recorded iteration reach down to at each access, without chunks.
///
///     lease_usage leased;
///     if (leased.read(record, device, frame)) use(leased.frames_below_leases(access));
///
/// Cost: O(entries x live leases) for each record, O(log entries) for a query.
class lease_usage {
 public:
  /// @param frame   bytes of a frame   @return   all leases fit into `device` bytes
  [[nodiscard]] bool read(const access_record& record, bytes device, bytes frame)
  {
    const auto frames = static_cast<std::uint32_t>(device.count() / frame.count());
    arena_.reset(device, frame, frames);
    place_.assign(record.size(), tier_space::no_place);
    leased_frames_.clear();
    bool fits = true;
    visit_in_order(record, [&](std::uint32_t index, bool begins) {
      if (record.entries()[index].kind == entry_kind::lease_device) {
        if (begins)
          fits = take(index, record.details()[index].bytes) && fits;
        else
          give(index, record.details()[index].bytes);
      }
      if (begins) leased_frames_.push_back(frames - dry());
    });
    frames_ = frames;
    return fits;
  }

  [[nodiscard]] std::uint32_t accesses() const noexcept { return static_cast<std::uint32_t>(leased_frames_.size()); }
  /// The frames of the device.
  [[nodiscard]] std::uint32_t frames() const noexcept { return frames_; }
  /// Frames from the bottom of the arena that no lease touches at this access.
  [[nodiscard]] std::uint32_t frames_below_leases(std::uint32_t now) const noexcept
  {
    return frames_ - static_cast<std::uint32_t>(leased_frames_.at(now));
  }

  /// The smallest frames_below_leases() of [`begin`, `end`). The range goes around the end of the iteration where `end`
  /// is not above `begin`.
  [[nodiscard]] std::uint32_t least_below_leases(std::uint32_t begin, std::uint32_t end) const noexcept
  {
    const std::uint64_t most =
        end > begin ? leased_frames_.largest(begin, end)
                    : std::max(leased_frames_.largest(begin, leased_frames_.size()), leased_frames_.largest(0, end));
    return frames_ - static_cast<std::uint32_t>(most);
  }

 private:
  [[nodiscard]] bool take(std::uint32_t index, std::uint64_t size)
  {
    place_[index] = arena_.find_lease(size, [](frame_id) { return false; });
    if (place_[index] == tier_space::no_place) return false;
    arena_.take_lease(place_[index], size);
    return true;
  }
  void give(std::uint32_t index, std::uint64_t size) noexcept
  {
    if (place_[index] != tier_space::no_place) arena_.give_lease(place_[index], size, [](frame_id) {});
  }
  [[nodiscard]] std::uint32_t dry() const noexcept
  {
    const std::uint64_t lowest = arena_.lowest_lease();
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(lowest / arena_.frame_bytes(), arena_.frames()));
  }

  tier_space arena_;
  sequence<std::uint64_t> place_;  // by access index
  max_tree leased_frames_;         // by access index
  std::uint32_t frames_ = 0;
};

}  // namespace transfer

/// The taken frames at each access of a repeating iteration; finds a run of frames that is free for a span of accesses.
///
///     frame_calendar calendar;
///     calendar.reset(100, frames);
///     const frame_id first = calendar.lowest({.begin = 90, .length = 20}, 2, frames);  // around the end
///     if (first != frame_id::none) calendar.take({.begin = 90, .length = 20}, first, 2);
///
/// Each node of a tree over the accesses has two sets of frames: the frames that are taken at all of its accesses, and
/// the frames that are taken at one of its accesses. Cost: O(log accesses * frames / 64) for each call, and
/// `memory_bits` for the sets.
class frame_calendar {
 public:
  /// The accesses from `begin` on, around the end of the iteration.
  struct span_of_time {
    std::uint32_t begin = 0;   ///< below the number of accesses
    std::uint32_t length = 0;  ///< in accesses, 1 to all
  };

  /// The memory that `reset` asks for [bits].
  [[nodiscard]] static std::uint64_t memory_bits(std::uint32_t accesses, std::uint32_t frames) noexcept
  {
    return std::uint64_t{4} * std::bit_ceil(std::max(accesses, 1U)) * ((frames + 63) / 64 * 64);
  }

  /// All frames are free at all accesses.
  void reset(std::uint32_t accesses, std::uint32_t frames)
  {
    accesses_ = accesses;
    leaves_ = std::bit_ceil(std::max(accesses, 1U));
    words_ = (frames + 63) / 64;
    at_all_.assign(2 * leaves_ * words_, 0);
    at_one_.assign(2 * leaves_ * words_, 0);
    taken_.assign(words_, 0);
  }

  /// The first frame of the lowest run of `count` frames that is free all the time, or none.
  /// @param lease_limit   the frame run lies below this frame; at most the number of frames
  [[nodiscard]] frame_id lowest(span_of_time when, std::uint32_t count, std::uint32_t lease_limit) noexcept
  {
    collect(when);
    std::uint32_t length = 0;
    for (std::uint32_t frame = 0; frame < lease_limit; ++frame) {
      if (frame % 64 == 0 && taken_[frame / 64] == ~std::uint64_t{0}) {
        frame += 63;
        length = 0;
        continue;
      }
      length = is_taken(frame) ? 0 : length + 1;
      if (length == count) return frame_id{frame + 1 - count};
    }
    return frame_id::none;
  }

  /// The frame run is free all the time.
  [[nodiscard]] bool is_free(span_of_time when, frame_id first, std::uint32_t count) noexcept
  {
    collect(when);
    for (std::uint32_t frame = index_of(first); frame < index_of(first) + count; ++frame)
      if (is_taken(frame)) return false;
    return true;
  }

  void take(span_of_time when, frame_id first, std::uint32_t count) noexcept
  {
    for_parts(when, [&](std::size_t begin, std::size_t end) {
      for (std::uint32_t frame = index_of(first); frame < index_of(first) + count; ++frame)
        mark(begin, end, frame / 64, std::uint64_t{1} << (frame % 64));
    });
  }

 private:
  [[nodiscard]] bool is_taken(std::uint32_t frame) const noexcept
  {
    return (taken_[frame / 64] >> (frame % 64) & 1) != 0;
  }

  /// Calls `visit(begin, end)` for the leaves of the one or two parts that do not go around the end.
  template <class Visit>
  void for_parts(span_of_time when, Visit visit) const
  {
    const std::uint32_t here = std::min(when.length, accesses_ - when.begin);
    visit(leaves_ + when.begin, leaves_ + when.begin + here);
    if (when.length > here) visit(leaves_, leaves_ + (when.length - here));
  }

  void mark(std::size_t begin, std::size_t end, std::size_t word, std::uint64_t bit) noexcept
  {
    const auto note = [&](std::size_t node) {
      at_all_[node * words_ + word] |= bit;
      for (; node > 0; node /= 2) at_one_[node * words_ + word] |= bit;
    };
    for (; begin < end; begin /= 2, end /= 2) {
      if (begin % 2 != 0) note(begin++);
      if (end % 2 != 0) note(--end);
    }
  }

  /// Finds the frames that are taken at one of the accesses.
  void collect(span_of_time when) noexcept
  {
    std::fill(taken_.begin(), taken_.end(), 0);
    const auto add = [&](const sequence<std::uint64_t>& sets, std::size_t node) {
      for (std::size_t word = 0; word < words_; ++word) taken_[word] |= sets[node * words_ + word];
    };
    for_parts(when, [&](std::size_t begin, std::size_t end) {
      // What is taken at all accesses of a node above is taken at the first or at the last access.
      for (std::size_t node = begin; node > 0; node /= 2) add(at_all_, node);
      for (std::size_t node = end - 1; node > 0; node /= 2) add(at_all_, node);
      for (; begin < end; begin /= 2, end /= 2) {
        if (begin % 2 != 0) add(at_one_, begin++);
        if (end % 2 != 0) add(at_one_, --end);
      }
    });
  }

  std::uint32_t accesses_ = 0;
  std::size_t leaves_ = 1;
  std::size_t words_ = 0;           // of a set
  sequence<std::uint64_t> at_all_;  // by node: frames taken at all of its accesses
  sequence<std::uint64_t> at_one_;  // by node: at one of them, as far as the nodes below and itself know
  sequence<std::uint64_t> taken_;   // of the last question
};

namespace transfer {

/// Chooses the frames in which chunks lie, for a plan of retention whose chunks have different lengths.
///
///     stay_frames frames;
///     answer.places = frames.choose(uses, retained, leased, chunks);  // may drop gaps of `retained`
///
/// A plan that fits by its bytes does not fit by its frames where free frames do not lie side by side. Therefore all
/// stays of an iteration get their frames at once. The longest stay comes first. A stay takes the lowest frames that
/// are free for all of it and lie below all leases. Frames that are free for a while before the stay are preferred, so
/// that a load can start early. A stay that finds no frames comes first in the next round. A stay that comes first and
/// finds none loses its longest gap: the chunk leaves there.
///
/// Good where chunks have several frames. Poor where all chunks have one frame: a chunk then fits into any free frame,
/// and the frame that is free the longest is known on demand. Source: first fit by decreasing time, for dynamic storage
/// allocation that is known in advance. Buys: without it `transfer.planned_bytes_raw_two_frames` is 1.19, and its bound
/// is 1.05. Cost: O(stays * log accesses * frames / 64) for each of at most 32 rounds; one or two are usual.
class stay_frames {
 public:
  static constexpr std::uint32_t none = index_of(frame_id::none);

  /// @param retained   by use, as in link_stays
  /// @param chunks     for their lengths
  /// @return           as iteration_plan::places, valid until the next call; empty where all chunks have one frame, or
  ///                   the iteration is too large
  std::span<const std::uint32_t> choose(const record_uses& record, sequence<std::uint8_t>& retained,
                                        const lease_usage& leased, std::span<const chunk> chunks)
  {
    places_.clear();
    is_cut_ = false;
    const std::uint32_t accesses = leased.accesses();
    const bool has_frame_runs =
        std::ranges::any_of(record.stretches(), [&](const held_stretch& it) { return chunks[it.chunk].frames > 1; });
    if (!has_frame_runs || frame_calendar::memory_bits(accesses, leased.frames()) > most_bits) return {};
    const sequence<std::uint8_t> wanted = retained;
    for (const std::uint32_t slack : {accesses / 4, 0U}) {
      retained = wanted;
      if (place(record, retained, leased, chunks, slack)) break;
    }
    is_cut_ = retained != wanted;
    tell(record, retained, accesses);
    return places_;
  }

  /// `choose` has dropped gaps.
  [[nodiscard]] bool is_cut() const noexcept { return is_cut_; }

  /// The early loads whose frames are free before their stays. @pre `choose` gave places
  std::span<const early_load> keep_possible(std::span<const early_load> early, std::span<const chunk> chunks)
  {
    early_.clear();
    const auto accesses = static_cast<std::uint32_t>(places_.size());
    for (const early_load& load : early) {
      const std::uint32_t place = places_[load.first_use];
      const std::uint32_t count = chunks[load.chunk].frames;
      const frame_calendar::span_of_time before{accesses - 1, load.first_use + 1};
      if (place == none || place + count > load.lease_limit || !calendar_.is_free(before, frame_id{place}, count))
        continue;
      calendar_.take(before, frame_id{place}, count);
      early_.push_back(load);
    }
    return early_;
  }

 private:
  static constexpr std::uint8_t listed = 1;
  static constexpr std::uint8_t follows_another = 2;
  static constexpr std::uint64_t most_bits = std::uint64_t{1} << 28;
  static constexpr int most_rounds = 16;

  /// A chunk lies in the same frames from a load until it leaves.
  struct stay {
    std::uint32_t stretch = 0;  ///< its first one
    std::uint32_t begin = 0;
    std::uint32_t length = 0;  ///< in accesses, around the end of the iteration
    std::uint32_t first = none;
  };

  /// @return   every stay has frames
  bool place(const record_uses& record, sequence<std::uint8_t>& retained, const lease_usage& leased,
             std::span<const chunk> chunks, std::uint32_t slack)
  {
    is_first_.assign(record.stretches().size(), 0);
    for (int round = 1;; ++round) {
      list_stays(record, retained, leased.accesses());
      calendar_.reset(leased.accesses(), leased.frames());
      bool all = true;
      for (stay& it : stays_) {
        const std::uint32_t count = chunks[record.stretches()[it.stretch].chunk].frames;
        it.first = find(it, count, leased, slack);
        all = all && it.first != none;
        if (it.first != none) calendar_.take({it.begin, it.length}, frame_id{it.first}, count);
      }
      if (all || round == most_rounds || !make_way(record, retained, leased.accesses())) return all;
    }
  }

  /// Stays without frames come first from now on; one that was first already loses its longest gap.
  /// @return   something changed
  bool make_way(const record_uses& record, sequence<std::uint8_t>& retained, std::uint32_t accesses)
  {
    bool changed = false;
    for (const stay& it : stays_)
      if (it.first == none)
        changed |= std::exchange(is_first_[it.stretch], std::uint8_t{1}) == 0 ||
                   cut_longest_gap(record, retained, it, accesses);
    return changed;
  }

  [[nodiscard]] std::uint32_t find(const stay& it, std::uint32_t count, const lease_usage& leased, std::uint32_t slack)
  {
    const std::uint32_t accesses = leased.accesses();
    const bool is_all = it.length == accesses;
    const std::uint32_t lease_limit = is_all ? leased.least_below_leases(0, accesses)
                                             : leased.least_below_leases(it.begin, (it.begin + it.length) % accesses);
    for (std::uint32_t before = std::min(slack, accesses - it.length);; before /= 2) {
      const std::uint32_t begin = (it.begin + accesses - before) % accesses;
      const frame_id first = calendar_.lowest({begin, it.length + before}, count, lease_limit);
      if (first != frame_id::none || before == 0) return index_of(first);
    }
  }

  /// All stays, the longest first.
  void list_stays(const record_uses& record, std::span<const std::uint8_t> retained, std::uint32_t accesses)
  {
    const auto stretches = record.stretches();
    is_listed_.assign(stretches.size(), 0);
    stays_.clear();
    for (const held_stretch& it : stretches)
      if (retained[it.last] != 0) is_listed_[it.next] = follows_another;
    const auto list = [&](std::uint32_t from) {
      stay made{from, stretches[from].begin, 0, none};
      for_stretches(record, retained, from, [&](std::uint32_t index) {
        const held_stretch& it = stretches[index];
        is_listed_[index] = listed;
        made.length += it.end - it.begin + (retained[it.last] != 0 ? gap_after(record, it, accesses) : 0);
      });
      stays_.push_back(made);
    };
    for (const std::uint8_t pass : {std::uint8_t{0}, follows_another})  // then the chunks that never leave
      for (std::uint32_t index = 0; index < stretches.size(); ++index)
        if (is_listed_[index] == pass) list(index);
    sort_records(std::span{stays_}, [this](const stay& left, const stay& right) {
      if (is_first_[left.stretch] != is_first_[right.stretch]) return is_first_[left.stretch] != 0;
      if (left.length != right.length) return left.length > right.length;
      return left.begin != right.begin ? left.begin < right.begin : left.stretch < right.stretch;
    });
  }

  /// Calls `visit(stretch)` for each stretch of the stay that begins with `from`.
  template <class Visit>
  static void for_stretches(const record_uses& record, std::span<const std::uint8_t> retained, std::uint32_t from,
                            Visit visit)
  {
    std::uint32_t index = from;
    do {
      const held_stretch& it = record.stretches()[index];
      visit(index);
      if (retained[it.last] == 0) return;
      index = it.next;
    } while (index != from);
  }

  /// Accesses between the end of a stretch and the next one.
  [[nodiscard]] static std::uint32_t gap_after(const record_uses& record, const held_stretch& it,
                                               std::uint32_t accesses) noexcept
  {
    const std::uint32_t next = record.stretches()[it.next].begin;
    return next >= it.end ? next - it.end : next + accesses - it.end;
  }

  /// @return   there was a gap
  static bool cut_longest_gap(const record_uses& record, sequence<std::uint8_t>& retained, const stay& what,
                              std::uint32_t accesses)
  {
    std::uint32_t longest = 0;
    std::uint32_t use = record_uses::none;
    for_stretches(record, retained, what.stretch, [&](std::uint32_t index) {
      const held_stretch& it = record.stretches()[index];
      const std::uint32_t gap = retained[it.last] != 0 ? gap_after(record, it, accesses) : 0;
      if (gap <= longest) return;
      longest = gap;
      use = it.last;
    });
    if (use == record_uses::none) return false;
    retained[use] = 0;
    return true;
  }

  void tell(const record_uses& record, std::span<const std::uint8_t> retained, std::uint32_t accesses)
  {
    first_of_stretch_.assign(record.stretches().size(), none);
    for (const stay& it : stays_)
      for_stretches(record, retained, it.stretch, [&](std::uint32_t index) { first_of_stretch_[index] = it.first; });
    places_.assign(accesses, none);
    for (std::uint32_t index = 0; index < record.uses().size(); ++index)
      if (is_on_device(record.uses()[index].kind))
        places_[record.uses()[index].begin] = first_of_stretch_[record.stretch_of_use()[index]];
  }

  frame_calendar calendar_;
  sequence<stay> stays_;
  sequence<std::uint8_t> is_first_;           // by stretch: its stay once found no frames
  sequence<std::uint8_t> is_listed_;          // by stretch: 0, or one of the two above
  sequence<std::uint32_t> first_of_stretch_;  // by stretch
  sequence<std::uint32_t> places_;            // by access index
  sequence<early_load> early_;
  bool is_cut_ = false;
};

/// Turns "the chunk stays after this use" into the plan that a manager follows: next uses, and frames for a stay.
///
///     iteration_plan plan = link_stays(uses, retained, leased, record.size());
///
/// Cost: O(uses + chunks + stretches log accesses).
/// @param retained   by use: 1 if the chunk stays until its next use; only the use that ends a stretch counts
/// @param access_count   number of accesses of the iteration
[[nodiscard]] inline iteration_plan link_stays(const record_uses& record, std::span<const std::uint8_t> retained,
                                               const lease_usage& leased, std::uint32_t access_count)
{
  const auto stretches = record.stretches();
  iteration_plan plan;
  plan.retained_until.assign(access_count, access_record::never);
  plan.first_use.assign(record.last_of_chunk().size(), access_record::never);
  plan.lease_limits.assign(access_count, UINT32_MAX);
  const auto next_use = [&](std::uint32_t stretch) {
    const held_stretch& it = stretches[stretch];
    return retained[it.last] != 0 ? stretches[it.next].begin : access_record::never;
  };
  for (std::uint32_t index = 0; index < record.uses().size(); ++index)
    if (const std::uint32_t stretch = record.stretch_of_use()[index]; stretch != record_uses::none)
      plan.retained_until[record.uses()[index].begin] = next_use(stretch);
  for (std::uint32_t chunk = 0; chunk < plan.first_use.size(); ++chunk)
    if (const std::uint32_t last = record.last_of_chunk()[chunk]; last != record_uses::none)
      plan.first_use[chunk] = next_use(last);
  // A chunk lies in one frame from its load until it leaves. The lease limit lies below all leases of that time.
  const auto lease_limit_of = [&](const held_stretch& stretch, bool around) {
    if (retained[stretch.last] == 0) return leased.least_below_leases(stretch.begin, stretch.end);
    const held_stretch& next = stretches[stretch.next];
    return std::min(leased.least_below_leases(stretch.begin, next.begin),
                    around || next.begin > stretch.begin ? plan.lease_limits[next.begin] : UINT32_MAX);
  };
  for (const bool around : {false, true})  // the second time the last stretches know what the first ones need
    for (std::size_t index = stretches.size(); index-- > 0;)
      plan.lease_limits[stretches[index].begin] = lease_limit_of(stretches[index], around);
  return plan;
}

/// The room of a plan, in which early loads have to fit.
///
///     const early_room room{chunk_bytes, device_bytes, lease_limits};
struct early_room {
  std::span<const std::uint64_t> chunk_bytes;
  std::span<const std::uint64_t> device_bytes;  ///< what chunks may take, at each access [bytes]
  std::span<const std::uint32_t> lease_limits;  ///< as in iteration_plan
};

/// The order of early loads: by `ready`, then by `first_use`, then by `chunk`.
inline void sort_by_readiness(std::span<early_load> loads) noexcept
{
  sort_records(loads, [](const early_load& left, const early_load& right) {
    if (left.ready != right.ready) return left.ready < right.ready;
    return left.first_use != right.first_use ? left.first_use < right.first_use : left.chunk < right.chunk;
  });
}

/// An early load with the lease limit of its whole stay, which begins at the last access of an iteration.
[[nodiscard]] inline early_load make_early_load(std::uint32_t chunk, std::uint32_t ready, std::uint32_t first_use,
                                                const lease_usage& leased,
                                                std::span<const std::uint32_t> lease_limits) noexcept
{
  const auto access_count = static_cast<std::uint32_t>(lease_limits.size());
  const std::uint32_t dry = leased.least_below_leases(access_count - 1, first_use == 0 ? access_count : first_use);
  return {chunk, ready, first_use, std::min(dry, lease_limits[first_use])};
}

/// Chooses the chunks that are loaded for the next iteration before this iteration ends.
///
///     early_loads early;
///     answer.early = early.choose(uses, retained, leased, {sizes, device_bytes, answer.lease_limits});
///
/// Chunks are chosen in the order of their first uses. The choice ends at the first chunk for which there is no room
/// in addition to all chunks that are used or stay. A chosen chunk counts as if it stayed after its first use:
/// otherwise it would take the room of the next loads. The links then have work while the last updates run, and the
/// first uses of an iteration do not wait for their loads one after the other. The bytes moved are the same: each
/// chosen chunk would be loaded for that use anyway. A chunk that the last access uses is not chosen. Buys: without it
/// `transfer.step_over_reachable_worst` is 1.051 or more instead of 1.038, and its bound is 1.05. Cost: O(uses + chunks
/// log chunks + accesses).
class early_loads {
 public:
  /// @param retained   as in link_stays   @return   valid until the next call
  std::span<const early_load> choose(const record_uses& record, std::span<const std::uint8_t> retained,
                                     const lease_usage& leased, const early_room& room)
  {
    const auto access_count = static_cast<std::uint32_t>(room.device_bytes.size());
    const auto chunks = static_cast<std::uint32_t>(room.chunk_bytes.size());
    find_room(record, retained, room);
    find_ends(record, chunks);
    chosen_.clear();
    seen_.assign(chunks, 0);
    std::int64_t least = left_[access_count - 1];
    std::int64_t taken = 0;
    std::uint32_t passed = 0;
    for (std::size_t index = 0; index < record.uses().size(); ++index) {
      const retention_use& use = record.uses()[index];
      if (std::exchange(seen_[use.chunk], std::uint8_t{1}) != 0) continue;  // not its first
      if (use.kind != use_kind::read && use.kind != use_kind::update) continue;
      const std::uint32_t last = record.last_of_chunk()[use.chunk];
      const bool is_there = last != record_uses::none && retained[record.stretches()[last].last] != 0;
      if (is_there || end_of_chunk_[use.chunk] > access_count - 1) continue;
      for (; passed < use.begin; ++passed) least = std::min(least, left_[passed]);
      taken += static_cast<std::int64_t>(room.chunk_bytes[use.chunk]);
      if (taken > least) break;
      chosen_.push_back(make_early_load(use.chunk, end_of_chunk_[use.chunk], use.begin, leased, room.lease_limits));
    }
    sort_by_readiness(chosen_);
    return chosen_;
  }

 private:
  /// Bytes left at each access.
  void find_room(const record_uses& record, std::span<const std::uint8_t> retained, const early_room& room)
  {
    const std::size_t access_count = room.device_bytes.size();
    change_.assign(access_count + 1, 0);
    for (const held_stretch& stretch : record.stretches()) {
      const std::uint64_t size = room.chunk_bytes[stretch.chunk];
      const bool keeps = retained[stretch.last] != 0;
      const std::uint32_t next = record.stretches()[stretch.next].begin;
      const bool around = keeps && next <= stretch.begin;
      change_[stretch.begin] += size;
      change_[keeps ? (around ? access_count : next) : stretch.end] -= size;  // may wrap below zero, the sums do not
      if (around) change_[0] += size, change_[next] -= size;
    }
    left_.resize(access_count);
    std::uint64_t taken = 0;
    for (std::size_t index = 0; index < access_count; ++index) {
      taken += change_[index];
      left_[index] = static_cast<std::int64_t>(room.device_bytes[index] - taken);
    }
  }

  /// The access from which on a chunk is not used any more.
  void find_ends(const record_uses& record, std::uint32_t chunks)
  {
    end_of_chunk_.assign(chunks, 0);
    for (const retention_use& use : record.uses())
      end_of_chunk_[use.chunk] = std::max(end_of_chunk_[use.chunk], use.end);
  }

  std::vector<early_load> chosen_;
  sequence<std::uint64_t> change_;
  sequence<std::int64_t> left_;  // by access index
  sequence<std::uint32_t> end_of_chunk_;
  sequence<std::uint8_t> seen_;
};

/// The early loads of a stored plan, which does not contain them: the chunks that the plan has at the start of an
/// iteration and does not keep until then. Cost: O(entries + chunks log chunks).
[[nodiscard]] inline std::vector<early_load> early_loads_of(const access_record& record,
                                                            std::span<const std::uint32_t> chunk_of_slot,
                                                            const iteration_plan& plan, bytes device, bytes frame)
{
  sequence<std::uint32_t> until(plan.first_use.size(), access_record::never);
  sequence<std::uint32_t> ready(plan.first_use.size(), 0);
  for (std::uint32_t index = 0; index < record.size() && !plan.retained_until.empty(); ++index) {
    const access_entry& entry = record.entries()[index];
    if (entry.slot == access_record::never) continue;
    const std::uint32_t chunk = chunk_of_slot[entry.slot];
    const std::uint32_t end = record.is_drop(index) ? index + 1 : record.details()[index].until;
    ready[chunk] = std::max(ready[chunk], end == entry_detail::never ? record.size() : end);
    if (is_access(entry.kind) && place_of(entry.kind) == memory_location::device)
      until[chunk] = plan.retained_until[index];
  }
  std::vector<early_load> early;
  lease_usage leased;
  if (plan.first_use.empty() || !leased.read(record, device, frame)) return early;
  for (std::uint32_t chunk = 0; chunk < until.size(); ++chunk)
    if (plan.first_use[chunk] != access_record::never && until[chunk] == access_record::never)
      early.push_back(make_early_load(chunk, ready[chunk], plan.first_use[chunk], leased, plan.lease_limits));
  sort_by_readiness(early);
  return early;
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
