// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/core/sort_records.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// Reads from the decisions of an eviction policy which chunks stayed on the device between which uses.
///
/// An eviction policy may leave each iteration with other chunks on the device than the iteration before: a scan over n
/// chunks under belady comes back after n - 1 iterations. Chunks that stayed in one iteration can stay in every
/// iteration. Belady often has a chunk stay until its use, and another one after it in the same frames; then the first
/// one stays on. Cost: O(accesses + moves + chunks log chunks); no allocation when sizes repeat.
/// @code
/// const transfer::retention seen = reader.of(record, chunk_of_slot, chunks, log.moves());
/// if (reader.saved() > 0) plan.keep(seen);
/// @endcode
class policy_retention {
 public:
  /// @param moves   of an iteration that began where an iteration like it had ended, by the access that needed them
  /// @return        good until the next call; a stay around the end has to hold in both parts
  [[nodiscard]] transfer::retention of(const access_record& record, std::span<const std::uint32_t> chunk_of_slot,
                                       std::uint32_t chunks, std::span<const transfer::move> moves)
  {
    retained_until_.assign(record.size(), access_record::never);
    borders_.assign(record.size(), UINT32_MAX);
    first_use_.assign(chunks, access_record::never);
    first_break_.assign(chunks, access_record::never);
    next_break_.assign(chunks, access_record::never);
    last_break_.assign(chunks, {});
    early_.clear();
    late_.clear();
    early_.reserve(chunks);
    late_.reserve(chunks);
    for (const transfer::move& action : moves) {
      if (!breaks(action)) continue;
      first_break_[action.chunk] = std::min(first_break_[action.chunk], action.access_index);
      last_break_[action.chunk] = {action.access_index, chunk_id{action.chunk}, action.frames};
    }
    saved_ = 0;
    std::size_t left = moves.size();
    for (std::uint32_t now = record.size(); now-- > 0;) {
      for (; left > 0 && moves[left - 1].access_index > now; --left) note(moves[left - 1]);
      mark(record.entries()[now], now, chunk_of_slot);
    }
    join_halves(record);
    return {retained_until_, first_use_, borders_};
  }
  /// How many uses the last answer serves without a copy.
  [[nodiscard]] std::uint32_t saved() const noexcept { return saved_; }

 private:
  /// A chunk that is there for one part of the way around the end.
  struct half {
    std::uint32_t access_index = 0;  ///< of its last use, or when it came
    chunk_id chunk{0};
    std::uint32_t frames = 0;
  };

  [[nodiscard]] static bool breaks(const transfer::move& action) noexcept
  {
    return action.kind == transfer::move_kind::evict || action.kind == transfer::move_kind::load ||
           action.kind == transfer::move_kind::claim;
  }
  void note(const transfer::move& action) noexcept
  {
    if (breaks(action)) next_break_[action.chunk] = action.access_index;
  }

  /// @pre next_break_ knows all that is later than this access
  void mark(const access_entry& entry, std::uint32_t now, std::span<const std::uint32_t> chunk_of_slot) noexcept
  {
    if (!is_access(entry.kind) || entry.next_of_chunk == access_record::never) return;
    const std::uint32_t chunk = chunk_of_slot[entry.slot];
    const std::uint32_t next = entry.next_of_chunk;
    const std::uint32_t broken = next_break_[chunk];
    if (next > now) {
      if (broken > next) stay(now, next);
      return;
    }
    const bool until_first = first_break_[chunk] > next;
    const bool until_end = broken == access_record::never;
    if (until_first && until_end)
      stay_around(chunk_id{chunk}, now, next);
    else if (until_first)
      early_.push_back({now, chunk_id{chunk}, last_break_[chunk].frames});
    else if (until_end)
      late_.push_back(last_break_[chunk]);
  }

  /// What is there until its first use stays after its last one, where something else came by then that stays until the
  /// end.
  void join_halves(const access_record& record)
  {
    const auto earlier = [](const half& left, const half& right) {
      return left.access_index != right.access_index ? left.access_index < right.access_index
                                                     : left.chunk < right.chunk;
    };
    sort_records(std::span{early_}, earlier);
    sort_records(std::span{late_}, earlier);
    auto other = late_.begin();
    for (const half& it : early_) {
      while (other != late_.end() && other->access_index <= it.access_index && other->frames < it.frames) ++other;
      if (other == late_.end() || other->access_index > it.access_index) continue;
      stay_around(it.chunk, it.access_index, record.entries()[it.access_index].next_of_chunk);
      ++other;
    }
  }

  void stay(std::uint32_t now, std::uint32_t next) noexcept
  {
    retained_until_[now] = next;
    ++saved_;
  }
  void stay_around(chunk_id chunk, std::uint32_t now, std::uint32_t next) noexcept
  {
    stay(now, next);
    first_use_[index_of(chunk)] = next;
  }

  sequence<std::uint32_t> retained_until_;
  sequence<std::uint32_t> first_use_;
  sequence<std::uint32_t> borders_;
  std::uint32_t saved_ = 0;
  sequence<std::uint32_t> first_break_;  // by chunk: the first access at which it comes or leaves
  sequence<std::uint32_t> next_break_;   // by chunk: the same after the access that is looked at
  sequence<half> last_break_;            // by chunk: when it came or left last
  sequence<half> early_;
  sequence<half> late_;
};

}  // namespace chunkmem::inline v0
