// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/sequence.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/decision_log.hpp>
#include <chunkmem/manager/memory_requirement.hpp>
#include <chunkmem/manager/model_frames.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/profile/tide.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace chunkmem::inline v0 {

/// The record is good for a device of any size.
///
///     rehearsal<Eviction, Transfer, settles_always> trial{frames, Eviction{}, record, filled};
struct settles_always {
  [[nodiscard]] constexpr bool operator()(bytes) const noexcept { return true; }
};

/// Finds the smallest capacities at which a recorded step runs, by running it with the manager's own decisions.
///
///     rehearsal<Eviction, Transfer> trial{frames, Eviction{}, record, filled};
///     const std::uint64_t least = trial.smallest_device(host, 1'000);  // frames; 1001 where 1000 are too few
///
/// The step is tried from the starts that a manager goes back to: as
/// the recorded iteration after the weights were filled, and on an empty device; and with its record known on an empty
/// device. Cost: two to thirty-two replays for each capacity tried; bookkeeping only, no bytes.
template <class Eviction, class Transfer, class Settle = settles_always>
class rehearsal {
 public:
  /// @param filled   by slot: it held bytes before the step
  /// @param settle   `settle(device)`: makes `record` and `filled` those of a device of this size; false where there
  ///   are none
  rehearsal(const model_frames& frames, const Eviction& eviction, const access_record& record,
            const sequence<std::uint8_t>& filled, Settle settle = {})
      : rehearsal{frames, eviction, settle}
  {
    add(record, filled);
  }
  /// Without a step yet.
  rehearsal(const model_frames& frames, const Eviction& eviction, Settle settle)
      : frames_{frames}, state_{eviction}, settle_{settle}
  {
  }
  /// The step has another way too: all of them have to run, in any order.
  void add(const access_record& record, const sequence<std::uint8_t>& filled) { steps_.push_back({&record, &filled}); }

  /// The step runs with these capacities.
  [[nodiscard]] bool fits(per_tier<bytes> capacity)
  {
    if (!settle_(capacity[tier::device])) return false;
    for (const step& it : steps_)
      if (!runs_from(it, capacity, origin::filled) || !runs_from(it, capacity, origin::cleared) ||
          !runs_from(it, capacity, origin::known))
        return false;
    return true;
  }

  /// The least that any order of decisions needs: the most that is pinned and leased at once, in whole frames.
  [[nodiscard]] std::uint64_t pinned_frames() const
  {
    std::uint64_t most = 0;
    for (const step& it : steps_) most = std::max(most, pinned_frames(*it.record));
    return most;
  }

  /// The least device capacity in whole frames, from `start` up, with `host` beside it.
  /// @return   frames, or `limit` + 1 if none fits
  [[nodiscard]] std::uint64_t smallest_device(bytes host, std::uint64_t limit, std::uint64_t start = 1)
  {
    (void)settle_(bytes{});  // where states have no room on the device, fewer are pinned there
    for (std::uint64_t frames = std::max(pinned_frames(), start); frames <= limit; ++frames)
      if (fits({{frames * frames_.size, host}})) return frames;
    return limit + 1;
  }

  /// The least host capacity in whole frames, beside `device`. @return   frames, or `limit` if less does not fit
  [[nodiscard]] std::uint64_t smallest_host(bytes device, std::uint64_t limit)
  {
    std::uint64_t low = 0;
    std::uint64_t high = limit;
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (fits({{device, middle * frames_.size}}))
        high = middle;
      else
        low = middle + 1;
    }
    return high;
  }

 private:
  enum class origin : std::uint8_t { filled, cleared, known };
  struct step {
    const access_record* record = nullptr;
    const sequence<std::uint8_t>* filled = nullptr;
  };

  [[nodiscard]] std::uint64_t pinned_frames(const access_record& record) const
  {
    sequence<std::uint32_t> pins(frames_.tensors.frames_of_chunk().size(), 0);
    std::uint64_t now = 0;
    std::uint64_t most = 0;
    visit_in_order(record, [&](std::uint32_t index, bool begins) {
      const access_entry& entry = record.entries()[index];
      if (entry.kind == entry_kind::lease_device) {
        now = begins ? now + record.details()[index].bytes : now - record.details()[index].bytes;
      } else if (is_access(entry.kind) && place_of(entry.kind) == memory_location::device) {
        const std::uint32_t chunk = index_of(frames_.tensors.chunk_of(slot_id{entry.slot}));
        const std::uint64_t size = frames_.tensors.frames_of_chunk()[chunk] * frames_.size.count();
        if (begins && pins[chunk]++ == 0) now += size;
        if (!begins && --pins[chunk] == 0) now -= size;
      }
      most = std::max(most, now);
    });
    return (most + frames_.size.count() - 1) / frames_.size.count();
  }

  [[nodiscard]] bool runs_from(const step& it, per_tier<bytes> capacity, origin from)
  {
    const bool as_filled = from != origin::known;
    frames_.lay_out(state_, capacity);
    log_.clear();
    try {
      for (const slot_id slot : ids<slot_id>(static_cast<std::uint32_t>(it.filled->size())))
        if ((*it.filled)[index_of(slot)] != 0 && !frames_.tensors.is_master(slot)) fill(slot, as_filled);
      for (const slot_id value : ids<slot_id>(frames_.tensors.parameters())) make_master(it, value);
      const bool holds_all = frames_.fit_on_device(state_.table());
      if (from == origin::cleared && !holds_all) return true;                            // the same as the first
      if (as_filled && (from == origin::cleared || !holds_all)) state_.evict_all(log_);  // a recording starts so
    } catch (const out_of_memory&) {
      return false;
    }
    return replay_.settles(*it.record, frames_.tensors.chunk_of_slot(), state_, log_, from == origin::known,
                           Transfer::plans);
  }

  void fill(slot_id slot, bool as_filled)
  {
    const bool on_device = as_filled && !state_[frames_.tensors.chunk_of(slot)].is_derived();
    hold(slot, kind_of(access::write, on_device ? memory_location::device : memory_location::host), [] {});
  }

  /// As the manager does before the first iteration, where the step has its masters.
  void make_master(const step& it, slot_id value)
  {
    const slot_id master = frames_.tensors.master_of(value);
    if (master == slot_id::none || (*it.filled)[index_of(master)] == 0) return;
    const auto& entries = it.record->entries();
    const auto used = std::find_if(entries.begin(), entries.end(),
                                   [&](const access_entry& entry) { return slot_id{entry.slot} == master; });
    const memory_location place = used == entries.end() ? memory_location::host : place_of(used->kind);
    hold(value, kind_of(access::read, place), [&] { hold(master, kind_of(access::write, place), [] {}); });
  }

  template <class Inside>
  void hold(slot_id slot, entry_kind kind, Inside inside)
  {
    const chunk_id chunk = frames_.tensors.chunk_of(slot);
    state_.acquire(slot, chunk, kind, access_record::never, access_index{0}, log_);
    inside();
    state_.unpin(tier_of(kind), chunk, writes(access_of(kind)));
  }

  model_frames frames_;
  sequence<step> steps_;
  chunk_cache<Eviction> state_;
  replay<Eviction> replay_;
  decision_log log_;
  Settle settle_;
};

}  // namespace chunkmem::inline v0
