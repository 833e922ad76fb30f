// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/decision_log.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// Runs a recorded iteration on a chunk_cache without bytes, with the decisions that the manager would make.
///
/// The cache is left as the iteration would leave it. Cost: the manager's bookkeeping, O(accesses), and no copies.
/// @code
/// chunk_cache<Eviction> trial = cache;
/// replay.run(record, chunk_of_slot, trial, log, true);   // throws out_of_memory where the iteration does not fit
/// @endcode
template <class Eviction>
class replay {
  struct nothing {
    void operator()() const noexcept {}
  };

 public:
  /// Next uses by access index, for all runs from now on, instead of the record's; empty: the record's. They must
  /// outlive the runs.
  void follow(std::span<const std::uint32_t> next_uses) noexcept { next_uses_ = next_uses; }

  /// @param profiled   false: as the iteration that is being recorded, when next uses are unknown
  /// @param before_last   called before the last entry, when all that was released before it is
  /// @throws out_of_memory   the iteration does not fit; the residency is left in the middle
  template <class Early = nothing>
  void run(const access_record& record, std::span<const std::uint32_t> chunk_of_slot, chunk_cache<Eviction>& state,
           decision_log& log, bool profiled, Early before_last = {})
  {
    lease_at_.assign(record.size(), 0);
    state.begin_round();
    std::size_t ended = 0;
    for (std::uint32_t now = 0; now < record.size(); ++now) {
      log.at(now, now);
      ended = release_until(record, chunk_of_slot, state, log, ended, now);
      log.at(now, now + 1);
      if (now + 1 == record.size()) before_last();
      step(record, chunk_of_slot, state, log, now, profiled);
    }
    log.at(record.size(), record.size());
    release_until(record, chunk_of_slot, state, log, ended, record.size());
    // kept beyond its end: a repeated iteration would keep it again
    for (std::uint32_t index = 0; index < record.size(); ++index)
      if (!record.is_drop(index) && record.details()[index].until == entry_detail::never)
        end(record, chunk_of_slot, state, log, index);
  }

  /// Runs the record again and again until it ends as it ended before: then it fits for ever.
  /// @param profiled   false: the first time is that of the recording
  /// @param retold     the policy starts over with each iteration, as it does where plans are made
  /// @return           false where it does not fit; true also where 64 iterations fit and none ended as one before
  bool settles(const access_record& record, std::span<const std::uint32_t> chunk_of_slot, chunk_cache<Eviction>& state,
               decision_log& log, bool profiled, bool retold)
  {
    constexpr int most = 64;
    before_ = state;
    int kept = 1;  // compared with one of the passes 1, 2, 4, ...: orbits of any length are found (Brent 1980)
    for (int pass = 0; pass < most; ++pass) {
      const bool known = profiled || pass > 0;
      if (known && (retold || pass == (profiled ? 0 : 1))) {
        state.start_of(record);
        state.tell_policy(record);
      }
      log.clear();
      try {
        run(record, chunk_of_slot, state, log, known);
      } catch (const out_of_memory&) {
        return false;
      }
      if (known && state.table().same_places(before_.table()) && state.same_order(before_)) return true;
      if (pass + 1 != kept) continue;
      before_ = state;
      kept *= 2;
    }
    return true;
  }

 private:
  void step(const access_record& record, std::span<const std::uint32_t> chunk_of_slot, chunk_cache<Eviction>& state,
            decision_log& log, std::uint32_t now, bool profiled)
  {
    const access_entry& entry = record.entries()[now];
    if (is_lease(entry.kind)) {
      lease_at_[now] = state.lease(tier_of(entry.kind), record.details()[now].bytes, log);
    } else if (entry.kind == entry_kind::drop) {
      state.drop(slot_id{entry.slot}, chunk_id{chunk_of_slot[entry.slot]}, log);
    } else {
      const std::uint32_t known = next_uses_.empty() ? entry.next_of_chunk : next_uses_[now];
      const std::uint32_t next = profiled ? known : access_record::never;
      state.acquire(slot_id{entry.slot}, chunk_id{chunk_of_slot[entry.slot]}, entry.kind, next, access_index{now}, log);
    }
  }

  std::size_t release_until(const access_record& record, std::span<const std::uint32_t> chunk_of_slot,
                            chunk_cache<Eviction>& state, decision_log& log, std::size_t ended, std::uint32_t now)
  {
    const auto releases = record.releases();
    for (; ended < releases.size() && releases[ended].until <= now; ++ended)
      end(record, chunk_of_slot, state, log, releases[ended].access_index);
    return ended;
  }

  void end(const access_record& record, std::span<const std::uint32_t> chunk_of_slot, chunk_cache<Eviction>& state,
           decision_log& log, std::uint32_t index)
  {
    const access_entry& entry = record.entries()[index];
    const tier where = tier_of(entry.kind);
    if (is_lease(entry.kind))
      state.end_lease(where, lease_at_[index], record.details()[index].bytes, log);
    else
      state.unpin(where, chunk_id{chunk_of_slot[entry.slot]}, writes(access_of(entry.kind)));
  }

  std::span<const std::uint32_t> next_uses_;
  sequence<std::uint64_t> lease_at_;  // by access index
  chunk_cache<Eviction> before_;      // kept between calls, so that a repeated proof allocates nothing
};

}  // namespace chunkmem::inline v0
