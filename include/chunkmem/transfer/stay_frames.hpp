// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk.hpp>
#include <chunkmem/chunk/frame_calendar.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/sort_records.hpp>
#include <chunkmem/transfer/lease_tide.hpp>
#include <chunkmem/transfer/record_uses.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace chunkmem::inline v0 {

namespace transfer {

/// Chooses the frames in which chunks lie, for a plan of retention whose chunks have different lengths.
///
///     stay_frames frames;
///     answer.places = frames.choose(uses, retained, tide, chunks);  // may drop gaps of `retained`
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

  /// @param retained   by use, as in stay_links
  /// @param chunks     for their lengths
  /// @return           as retention::places, valid until the next call; empty where all chunks have one frame, or the
  ///                   iteration is too large
  std::span<const std::uint32_t> choose(const record_uses& record, sequence<std::uint8_t>& retained,
                                        const lease_tide& tide, std::span<const chunk> chunks)
  {
    places_.clear();
    is_cut_ = false;
    const std::uint32_t accesses = tide.accesses();
    const bool has_windows =
        std::ranges::any_of(record.stretches(), [&](const held_stretch& it) { return chunks[it.chunk].frames > 1; });
    if (!has_windows || frame_calendar::memory_bits(accesses, tide.frames()) > most_bits) return {};
    const sequence<std::uint8_t> wanted = retained;
    for (const std::uint32_t slack : {accesses / 4, 0U}) {
      retained = wanted;
      if (place(record, retained, tide, chunks, slack)) break;
    }
    is_cut_ = retained != wanted;
    tell(record, retained, accesses);
    return places_;
  }

  /// `choose` dropped gaps.
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
      if (place == none || place + count > load.border || !calendar_.is_free(before, frame_id{place}, count)) continue;
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
  bool place(const record_uses& record, sequence<std::uint8_t>& retained, const lease_tide& tide,
             std::span<const chunk> chunks, std::uint32_t slack)
  {
    is_first_.assign(record.stretches().size(), 0);
    for (int round = 1;; ++round) {
      list_stays(record, retained, tide.accesses());
      calendar_.reset(tide.accesses(), tide.frames());
      bool all = true;
      for (stay& it : stays_) {
        const std::uint32_t count = chunks[record.stretches()[it.stretch].chunk].frames;
        it.first = find(it, count, tide, slack);
        all = all && it.first != none;
        if (it.first != none) calendar_.take({it.begin, it.length}, frame_id{it.first}, count);
      }
      if (all || round == most_rounds || !make_way(record, retained, tide.accesses())) return all;
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

  [[nodiscard]] std::uint32_t find(const stay& it, std::uint32_t count, const lease_tide& tide, std::uint32_t slack)
  {
    const std::uint32_t accesses = tide.accesses();
    const bool is_all = it.length == accesses;
    const std::uint32_t border =
        is_all ? tide.least_dry(0, accesses) : tide.least_dry(it.begin, (it.begin + it.length) % accesses);
    for (std::uint32_t before = std::min(slack, accesses - it.length);; before /= 2) {
      const std::uint32_t begin = (it.begin + accesses - before) % accesses;
      const frame_id first = calendar_.lowest({begin, it.length + before}, count, border);
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

}  // namespace transfer

}  // namespace chunkmem::inline v0
