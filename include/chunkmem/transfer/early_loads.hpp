// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/transfer/lease_tide.hpp>
#include <chunkmem/transfer/record_uses.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace transfer {

/// What of a plan's room is there for early loads.
struct early_room {
  std::span<const std::uint64_t> chunk_bytes;
  std::span<const std::uint64_t> device_bytes;  ///< what chunks may take, at each moment
  std::span<const std::uint32_t> borders;       ///< as transfer::retention
};

[[nodiscard]] inline bool is_earlier(const early_load& left, const early_load& right) noexcept
{
  return std::tuple{left.ready, left.first_use, left.chunk} < std::tuple{right.ready, right.first_use, right.chunk};
}

/// With the border of its whole stay, which begins before the last moment.
[[nodiscard]] inline early_load make_early_load(std::uint32_t chunk, std::uint32_t ready, std::uint32_t first_use,
                                                const lease_tide& tide, std::span<const std::uint32_t> borders) noexcept
{
  const auto moments = static_cast<std::uint32_t>(borders.size());
  const std::uint32_t dry = tide.least_dry(moments - 1, first_use == 0 ? moments : first_use);
  return {chunk, ready, first_use, std::min(dry, borders[first_use])};
}

/// Chooses what is loaded for the next iteration before this one ends: in the order of its first uses, as long as from
/// the last moment to those there is room beside all that is used and all that stays, and for all of them to stay
/// beyond their uses: who takes more keeps out the loads that come next.
///
/// So the first uses of an iteration do not wait for their loads one after the other, and the links have work while the
/// last updates are made. Moves the same bytes: each chunk is one that would be loaded for that use in any case. What
/// the last moment itself uses is left to the next iteration. Cost: O(uses + chunks log chunks + moments).
class early_loads {
 public:
  /// @param stays   as stay_links   @return   good until the next call
  std::span<const early_load> choose(const record_uses& record, std::span<const std::uint8_t> stays,
                                     const lease_tide& tide, const early_room& room)
  {
    const auto moments = static_cast<std::uint32_t>(room.device_bytes.size());
    const auto chunks = static_cast<std::uint32_t>(room.chunk_bytes.size());
    find_room(record, stays, room);
    find_ends(record, chunks);
    chosen_.clear();
    seen_.assign(chunks, 0);
    std::int64_t least = left_[moments - 1];
    std::int64_t taken = 0;
    std::uint32_t passed = 0;
    for (std::size_t at = 0; at < record.uses().size(); ++at) {
      const retention_use& use = record.uses()[at];
      if (std::exchange(seen_[use.chunk], std::uint8_t{1}) != 0) continue;  // not its first
      if (use.kind != use_kind::read && use.kind != use_kind::update) continue;
      const std::uint32_t last = record.last_of_chunk()[use.chunk];
      const bool is_there = last != record_uses::none && stays[record.stretches()[last].last] != 0;
      if (is_there || end_of_chunk_[use.chunk] > moments - 1) continue;
      for (; passed < use.begin; ++passed) least = std::min(least, left_[passed]);
      taken += static_cast<std::int64_t>(room.chunk_bytes[use.chunk]);
      if (taken > least) break;
      chosen_.push_back(make_early_load(use.chunk, end_of_chunk_[use.chunk], use.begin, tide, room.borders));
    }
    std::ranges::sort(chosen_, is_earlier);
    return chosen_;
  }

 private:
  /// Bytes left at each moment.
  void find_room(const record_uses& record, std::span<const std::uint8_t> stays, const early_room& room)
  {
    const std::size_t moments = room.device_bytes.size();
    change_.assign(moments + 1, 0);
    for (const held_stretch& it : record.stretches()) {
      const std::uint64_t size = room.chunk_bytes[it.chunk];
      const bool keeps = stays[it.last] != 0;
      const std::uint32_t next = record.stretches()[it.next].begin;
      const bool around = keeps && next <= it.begin;
      change_[it.begin] += size;
      change_[keeps ? (around ? moments : next) : it.end] -= size;  // may wrap below zero, the sums do not
      if (around) change_[0] += size, change_[next] -= size;
    }
    left_.resize(moments);
    std::uint64_t taken = 0;
    for (std::size_t at = 0; at < moments; ++at) {
      taken += change_[at];
      left_[at] = static_cast<std::int64_t>(room.device_bytes[at] - taken);
    }
  }

  /// Behind which moment a chunk is not used any more.
  void find_ends(const record_uses& record, std::uint32_t chunks)
  {
    end_of_chunk_.assign(chunks, 0);
    for (const retention_use& it : record.uses()) end_of_chunk_[it.chunk] = std::max(end_of_chunk_[it.chunk], it.end);
  }

  std::vector<early_load> chosen_;
  std::vector<std::uint64_t> change_;
  std::vector<std::int64_t> left_;  // by moment
  std::vector<std::uint32_t> end_of_chunk_;
  std::vector<std::uint8_t> seen_;
};

/// The same of a plan that says only who stays: what it wants at the start of an iteration and nothing kept until then.
/// O(entries + chunks log chunks).
[[nodiscard]] inline std::vector<early_load> early_loads_of(const access_record& record,
                                                            std::span<const std::uint32_t> chunk_of_slot,
                                                            const retention& plan, bytes device, bytes frame)
{
  std::vector<std::uint32_t> until(plan.first_use.size(), access_record::never);
  std::vector<std::uint32_t> ready(plan.first_use.size(), 0);
  for (std::uint32_t at = 0; at < record.size() && !plan.stays_until.empty(); ++at) {
    const access_entry& entry = record.entries()[at];
    if (entry.slot == access_record::never) continue;
    const std::uint32_t chunk = chunk_of_slot[entry.slot];
    const std::uint32_t end = record.is_drop(at) ? at + 1 : record.details()[at].until;
    ready[chunk] = std::max(ready[chunk], end == entry_detail::never ? record.size() : end);
    if (is_access(entry.kind) && place_of(entry.kind) == at::device) until[chunk] = plan.stays_until[at];
  }
  std::vector<early_load> early;
  lease_tide tide;
  if (plan.first_use.empty() || !tide.read(record, device, frame)) return early;
  for (std::uint32_t chunk = 0; chunk < until.size(); ++chunk)
    if (plan.first_use[chunk] != access_record::never && until[chunk] == access_record::never)
      early.push_back(make_early_load(chunk, ready[chunk], plan.first_use[chunk], tide, plan.borders));
  std::ranges::sort(early, is_earlier);
  return early;
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
