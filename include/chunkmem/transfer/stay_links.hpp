// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/sort_records.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/transfer/lease_tide.hpp>
#include <chunkmem/transfer/record_uses.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// Turns "the chunk stays after this use" into the answer that a manager follows: next uses, and frames for a stay.
///
///     stay_links links;
///     retention answer = links.link(uses, retained, tide, record.size());
///
/// Cost: O(uses + chunks + stretches log accesses). `link` does not allocate when sizes repeat.
class stay_links {
 public:
  /// @param retained     by use: 1 if the chunk stays until its next use; only the use that ends a stretch counts
  /// @param access_count   number of accesses of the iteration
  /// @return          spans that are valid until the next call
  retention link(const record_uses& record, std::span<const std::uint8_t> retained, const lease_tide& tide,
                 std::uint32_t access_count)
  {
    const auto stretches = record.stretches();
    retained_until_.assign(access_count, access_record::never);
    first_use_.assign(record.last_of_chunk().size(), access_record::never);
    borders_.assign(access_count, UINT32_MAX);
    const auto next_use = [&](std::uint32_t stretch) {
      const held_stretch& it = stretches[stretch];
      return retained[it.last] != 0 ? stretches[it.next].begin : access_record::never;
    };
    for (std::uint32_t index = 0; index < record.uses().size(); ++index)
      if (const std::uint32_t stretch = record.stretch_of_use()[index]; stretch != record_uses::none)
        retained_until_[record.uses()[index].begin] = next_use(stretch);
    for (std::uint32_t chunk = 0; chunk < first_use_.size(); ++chunk)
      if (const std::uint32_t last = record.last_of_chunk()[chunk]; last != record_uses::none)
        first_use_[chunk] = next_use(last);
    for (const bool around : {false, true})  // the second time the last stretches know what the first ones need
      for (std::size_t index = stretches.size(); index-- > 0;) set_border(stretches, index, retained, tide, around);
    return {retained_until_, first_use_, borders_};
  }

  /// Makes each early load stay until its first use. The answer of link() changes too. @pre link() was called
  void expect(std::span<const early_load> early) noexcept
  {
    for (const early_load& load : early) first_use_[load.chunk] = load.first_use;
  }

 private:
  /// A chunk lies in one frame from its load until it leaves. The border lies below all leases of that time.
  void set_border(std::span<const held_stretch> stretches, std::size_t index, std::span<const std::uint8_t> retained,
                  const lease_tide& tide, bool around)
  {
    const held_stretch& stretch = stretches[index];
    if (retained[stretch.last] == 0) {
      borders_[stretch.begin] = tide.least_dry(stretch.begin, stretch.end);
      return;
    }
    const held_stretch& next = stretches[stretch.next];
    borders_[stretch.begin] = std::min(tide.least_dry(stretch.begin, next.begin),
                                       around || next.begin > stretch.begin ? borders_[next.begin] : UINT32_MAX);
  }

  sequence<std::uint32_t> retained_until_;
  sequence<std::uint32_t> first_use_;
  sequence<std::uint32_t> borders_;
};

/// The room of a plan, in which early loads have to fit.
///
///     const early_room room{chunk_bytes, device_bytes, borders};
struct early_room {
  std::span<const std::uint64_t> chunk_bytes;
  std::span<const std::uint64_t> device_bytes;  ///< what chunks may take, at each access [bytes]
  std::span<const std::uint32_t> borders;       ///< as in transfer::retention
};

/// The order of early loads: by `ready`, then by `first_use`, then by `chunk`.
inline void sort_by_readiness(std::span<early_load> loads) noexcept
{
  sort_records(loads, [](const early_load& left, const early_load& right) {
    if (left.ready != right.ready) return left.ready < right.ready;
    return left.first_use != right.first_use ? left.first_use < right.first_use : left.chunk < right.chunk;
  });
}

/// An early load with the border of its whole stay, which begins at the last access of an iteration.
[[nodiscard]] inline early_load make_early_load(std::uint32_t chunk, std::uint32_t ready, std::uint32_t first_use,
                                                const lease_tide& tide, std::span<const std::uint32_t> borders) noexcept
{
  const auto access_count = static_cast<std::uint32_t>(borders.size());
  const std::uint32_t dry = tide.least_dry(access_count - 1, first_use == 0 ? access_count : first_use);
  return {chunk, ready, first_use, std::min(dry, borders[first_use])};
}

/// Chooses the chunks that are loaded for the next iteration before this iteration ends.
///
///     early_loads early;
///     answer.early = early.choose(uses, retained, tide, {sizes, device_bytes, answer.borders});
///
/// Chunks are chosen in the order of their first uses. The choice ends at the first chunk for which there is no room
/// beside all chunks that are used or stay. A chosen chunk counts as if it stayed after its first use: otherwise it
/// would take the room of the next loads.
/// The links then have work while the last updates are made, and the first uses of an iteration do not wait for their
/// loads one after the other. The bytes moved are the same: each chosen chunk would be loaded for that use anyway.
/// A chunk that the last access uses is not chosen. Buys: without it `transfer.step_over_reachable_worst` is 1.051 or
/// more instead of 1.038, and its bound is 1.05. Cost: O(uses + chunks log chunks + accesses).
class early_loads {
 public:
  /// @param retained   as in stay_links   @return   valid until the next call
  std::span<const early_load> choose(const record_uses& record, std::span<const std::uint8_t> retained,
                                     const lease_tide& tide, const early_room& room)
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
      chosen_.push_back(make_early_load(use.chunk, end_of_chunk_[use.chunk], use.begin, tide, room.borders));
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

/// The early loads of a stored plan, which does not name them: the chunks that the plan wants at the start of
/// an iteration and does not keep until then. Cost: O(entries + chunks log chunks).
[[nodiscard]] inline std::vector<early_load> early_loads_of(const access_record& record,
                                                            std::span<const std::uint32_t> chunk_of_slot,
                                                            const retention& plan, bytes device, bytes frame)
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
  lease_tide tide;
  if (plan.first_use.empty() || !tide.read(record, device, frame)) return early;
  for (std::uint32_t chunk = 0; chunk < until.size(); ++chunk)
    if (plan.first_use[chunk] != access_record::never && until[chunk] == access_record::never)
      early.push_back(make_early_load(chunk, ready[chunk], plan.first_use[chunk], tide, plan.borders));
  sort_by_readiness(early);
  return early;
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
