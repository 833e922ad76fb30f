#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/decision_log.hpp>
#include <chunkmem/manager/memory_requirement.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/manager/residency.hpp>
#include <chunkmem/profile/access_record.hpp>
#include <chunkmem/profile/tide.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

/// The record is good for a device of any size.
struct settles_always {
  [[nodiscard]] constexpr bool operator()(bytes) const noexcept { return true; }
};

/// Finds the smallest capacities at which a recorded step runs, by running it with the manager's own decisions.
///
/// `Core` shapes a residency for given capacities. The step is tried from the starts that a manager goes back to: as the
/// recorded iteration after the weights were filled, and on an empty device; and with its record known on an empty device.
/// Cost: two to thirty-two replays for each capacity tried; bookkeeping only, no bytes.
template <class Core, class Eviction, class Transfer, class Settle = settles_always>
class rehearsal {
 public:
  /// @param filled   by slot: it held bytes before the step
  /// @param settle   `settle(device)`: makes `record` and `filled` those of a device of this size; false where there are none
  rehearsal(const Core& core, const Eviction& eviction, const access_record& record, const std::vector<std::uint8_t>& filled,
            Settle settle = {})
      : core_{core}, record_{record}, filled_{filled}, state_{eviction}, settle_{settle}
  {
  }

  /// The step runs with these capacities.
  [[nodiscard]] bool fits(per_tier<bytes> capacity)
  {
    return settle_(capacity[tier::device]) && runs_from(capacity, begin::filled) && runs_from(capacity, begin::cleared) &&
           runs_from(capacity, begin::known);
  }

  /// The least that any order of decisions needs: the most that is pinned and leased at once, in whole frames.
  [[nodiscard]] std::uint64_t pinned_frames(std::uint64_t frame) const
  {
    std::vector<std::uint32_t> pins(core_.tensors().frames_of_chunk().size(), 0);
    std::uint64_t now = 0;
    std::uint64_t most = 0;
    visit_in_order(record_, [&](std::uint32_t at, bool begins) {
      const access_entry& entry = record_.entries()[at];
      if (entry.kind == entry_kind::lease_device) {
        now = begins ? now + record_.details()[at].bytes : now - record_.details()[at].bytes;
      } else if (is_access(entry.kind) && place_of(entry.kind) == at::device) {
        const std::uint32_t chunk = core_.tensors().chunk_of_slot()[entry.slot];
        const std::uint64_t size = core_.tensors().frames_of_chunk()[chunk] * frame;
        if (begins && pins[chunk]++ == 0) now += size;
        if (!begins && --pins[chunk] == 0) now -= size;
      }
      most = std::max(most, now);
    });
    return (most + frame - 1) / frame;
  }

  /// The least device capacity in whole frames, from `start` up, with `host` beside it.
  /// @return   frames, or `limit` + 1 if none fits
  [[nodiscard]] std::uint64_t smallest_device(std::uint64_t frame, bytes host, std::uint64_t limit, std::uint64_t start = 1)
  {
    (void)settle_(bytes{});  // where states have no room on the device, fewer are pinned there
    for (std::uint64_t frames = std::max(pinned_frames(frame), start); frames <= limit; ++frames)
      if (fits({{bytes{frames * frame}, host, bytes{}}})) return frames;
    return limit + 1;
  }

  /// The least host capacity in whole frames, beside `device`. @return   frames, or `limit` if less does not fit
  [[nodiscard]] std::uint64_t smallest_host(std::uint64_t frame, bytes device, std::uint64_t limit)
  {
    std::uint64_t low = 0;
    std::uint64_t high = limit;
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (fits({{device, bytes{middle * frame}, bytes{}}})) high = middle;
      else low = middle + 1;
    }
    return high;
  }

 private:
  enum class begin : std::uint8_t { filled, cleared, known };

  [[nodiscard]] bool runs_from(per_tier<bytes> capacity, begin from)
  {
    const bool as_filled = from != begin::known;
    core_.shape(state_, capacity);
    log_.clear();
    try {
      for (std::uint32_t slot = 0; slot < filled_.size(); ++slot)
        if (filled_[slot] != 0 && !core_.tensors().is_master(slot)) fill(slot, as_filled);
      for (std::uint32_t value = 0; value < core_.tensors().parameters(); ++value) make_master(value);
      const bool holds_all = core_.device_holds_all(state_);
      if (from == begin::cleared && !holds_all) return true;  // the same as the first
      if (as_filled && (from == begin::cleared || !holds_all)) state_.evict_all(log_);  // a recording starts so
    } catch (const out_of_memory&) {
      return false;
    }
    return replay_.settles(record_, core_.tensors().chunk_of_slot(), state_, log_, from == begin::known, Transfer::plans);
  }

  void fill(std::uint32_t slot, bool as_filled) { hold(slot, kind_of(access::write, as_filled ? at::device : at::host), [] {}); }

  /// As the manager does before the first iteration, where the step has its masters.
  void make_master(std::uint32_t value)
  {
    const std::uint32_t master = core_.tensors().master_of(value);
    if (master == slot::nowhere || filled_[master] == 0) return;
    const auto& entries = record_.entries();
    const auto used = std::find_if(entries.begin(), entries.end(), [&](const access_entry& it) { return it.slot == master; });
    const at place = used == entries.end() ? at::host : place_of(used->kind);
    hold(value, kind_of(access::read, place), [&] { hold(master, kind_of(access::write, place), [] {}); });
  }

  template <class Inside>
  void hold(std::uint32_t slot, entry_kind kind, Inside inside)
  {
    const std::uint32_t chunk = core_.tensors().chunk_of_slot()[slot];
    state_.acquire(slot, chunk, kind, access_record::never, moment{0}, log_);
    inside();
    place_of(kind) == at::host ? state_.unpin_host(chunk, writes(access_of(kind))) : state_.unpin_device(chunk);
  }

  const Core& core_;
  const access_record& record_;
  const std::vector<std::uint8_t>& filled_;
  residency<Eviction> state_;
  replay<Eviction> replay_;
  decision_log log_;
  Settle settle_;
};

}  // namespace chunkmem::inline v0
