// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "step_part.hpp"
#include "virtual_clocks.hpp"

#include <chunkmem/configurator/profile_meter.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/manager/report.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <type_traits>

namespace gpt {

/// The time and the copies of a step, or the mean of some steps.
struct step_account {
  double seconds = 0;
  part_seconds parts{};           ///< without waits
  double waited = 0;              ///< seconds of the calling thread, for copies, gathers and sums
  double loaded = 0;              ///< bytes to the device
  double written_back = 0;        ///< bytes to the host
  chunkmem::bytes device_peak{};  ///< since the manager was made
};

/// Ranks are not profiled.
struct no_profile {
  struct running {};
};

/// The seconds of the parts of steps, by the clock of the manager's backend.
template <class Manager>
class step_meter {
  static constexpr bool is_alone = !requires(Manager& m) { m.ranks(); };

 public:
  using profile_type = std::conditional_t<is_alone, chunkmem::configurator::profile_meter<Manager>, no_profile>;

  /// @param manager   outlives this
  explicit step_meter(Manager& manager) noexcept : m_{manager} {}
  step_meter(const step_meter&) = delete;

  /// A part of a step is timed while this object lives. Parts do not overlap. A rehearsal is not timed.
  class running {
   public:
    running(step_meter& meter, step_part part) : meter_{meter}, part_{part}
    {
      if (meter_.m_.rehearsing()) return;
      if constexpr (has_clocks<Manager>) meter_.m_.backend().begin(part);
      waited_ = meter_.waited();
      begin_ = meter_.now();
    }
    running(const running&) = delete;
    ~running()
    {
      if (meter_.m_.rehearsing()) return;
      meter_.seconds_[index_of(part_)] += std::max(meter_.now() - begin_ - (meter_.waited() - waited_), 0.0);
      if constexpr (has_clocks<Manager>) meter_.m_.backend().begin(step_part::ends);
    }

   private:
    step_meter& meter_;
    step_part part_;
    double waited_ = 0;
    double begin_ = 0;
  };
  [[nodiscard]] running during(step_part part) { return running{*this, part}; }

  /// The same for a run of a layer. The first layer includes the embeddings, the last one the head.
  class layer_running {
   public:
    layer_running(step_meter& meter, step_part part, std::size_t layer, chunkmem::configurator::profiled_run run)
        : part_{meter, part}
    {
      if constexpr (is_alone)
        if (meter.profile_ != nullptr) profiled_.emplace(*meter.profile_, layer, run);
    }

   private:
    running part_;
    std::optional<typename profile_type::running> profiled_;
  };
  [[nodiscard]] layer_running during(step_part part, std::size_t layer, chunkmem::configurator::profiled_run run)
  {
    return layer_running{*this, part, layer, run};
  }
  /// From now on runs of layers are profiled too. @param into   null: none
  void profile(profile_type* into) noexcept { profile_ = into; }

  /// Of all steps so far.
  [[nodiscard]] step_account account() const
  {
    const chunkmem::report seen = m_.report();
    return {.seconds = now(),
            .parts = seconds_,
            .waited = waited(),
            .loaded = static_cast<double>(seen.loaded.count()),
            .written_back = static_cast<double>(seen.written_back.count()),
            .device_peak = seen.peak[chunkmem::tier::device]};
  }

 private:
  [[nodiscard]] double now() const { return static_cast<double>(m_.backend().now()) * 1e-9; }
  [[nodiscard]] double waited() const { return m_.report().stalls.seconds(); }

  Manager& m_;
  part_seconds seconds_{};
  profile_type* profile_ = nullptr;
};

/// Adds the difference of two accounts, divided by `steps`.
inline void add_between(step_account& sum, const step_account& before, const step_account& after, std::size_t steps)
{
  const auto add = [&](double& into, double early, double late) {
    into += (late - early) / static_cast<double>(steps);
  };
  add(sum.seconds, before.seconds, after.seconds);
  add(sum.waited, before.waited, after.waited);
  add(sum.loaded, before.loaded, after.loaded);
  add(sum.written_back, before.written_back, after.written_back);
  for (std::size_t part = 0; part < step_parts; ++part) add(sum.parts[part], before.parts[part], after.parts[part]);
  sum.device_peak = after.device_peak;
}

}  // namespace gpt
