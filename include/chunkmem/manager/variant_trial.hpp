// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/decision_log.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/profile/access_record.hpp>

#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

/// How long an iteration is repeated to see what it moves: the first rounds settle, the last ones are counted.
///
///     const std::uint64_t moved = trial.frames_moved(now, record, chunk_of_slot, 0, {.rounds = 3, .counted = 1});
struct trial_length {
  int rounds = 5;
  int counted = 2;  ///< orbits of two are common
};

/// Long enough for two ways of moving to be compared: orbits of two, three, four, six and twelve are counted whole.
inline constexpr trial_length long_trial{18, 12};

/// Tries the settings of a tuned eviction policy on a recorded iteration: which moves the fewest bytes when it repeats?
///
///     variant_trial<eviction::cost_aware> trial;
///     cache.choose(trial.best(cache, record, chunk_of_slot));
///
/// Cost: five replays for each setting, nothing where there is one only; no allocation when sizes repeat.
template <class Eviction>
class variant_trial {
 public:
  /// The best setting for iterations that start from `now`; of equals the lowest, and 0 where none fits.
  [[nodiscard]] std::uint32_t best(const chunk_cache<Eviction>& now, const access_record& record,
                                   std::span<const std::uint32_t> chunk_of_slot)
  {
    if (now.variants() == 1) return 0;
    std::uint32_t best = 0;
    std::uint64_t least = impossible;
    for (std::uint32_t variant = 0; variant < now.variants(); ++variant) {
      const std::uint64_t moved = frames_moved(now, record, chunk_of_slot, variant);
      if (moved >= least) continue;
      least = moved;
      best = variant;
    }
    return best;
  }

  static constexpr std::uint64_t impossible = UINT64_MAX;

  /// Frames that the counted iterations copy, from `now` on; impossible where one does not fit.
  [[nodiscard]] std::uint64_t frames_moved(const chunk_cache<Eviction>& now, const access_record& record,
                                           std::span<const std::uint32_t> chunk_of_slot, std::uint32_t variant,
                                           trial_length length = {})
  {
    std::uint64_t moved = 0;
    state_ = now;
    state_.choose(variant);
    try {
      for (int round = 0; round < length.rounds; ++round) {
        state_.start_of(record);
        state_.tell_policy(record);
        log_.clear();
        replay_.run(record, chunk_of_slot, state_, log_, true);
        if (round >= length.rounds - length.counted) moved += log_.frames_copied();
      }
    } catch (const out_of_memory&) {
      return impossible;
    }
    return moved;
  }

  /// Room for longer runs than the last one.
  void make_room() { log_.make_room(); }

 private:
  chunk_cache<Eviction> state_;
  replay<Eviction> replay_;
  decision_log log_;
};

}  // namespace chunkmem::inline v0
