// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/transfer/update_split.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

// split_rule, its input measured_split_rank and its answers tried_share and measured_split; split_options.

namespace chunkmem::inline v0 {

namespace optimizer {

/// Options of the search for the share of the updates on the device.
///
///     split_updates<model_type, loop_launcher> updates{m, on_this_thread, {.least_gain = 0.05}};
struct split_options {
  std::uint32_t settling_steps = 5;  ///< with each share, at least 4: its iterations are recorded, planned and metered
  std::uint32_t measured_steps = 4;  ///< with each share, after the settling steps; at least 1
  double least_gain = 0.02;          ///< of a mixed share over the better extreme; a smaller gain counts as noise
};

/// One rank's measurements while all ranks updated with one share.
///
///     const measured_split_rank mine{.rates = rates, .seconds = 0.5};
struct measured_split_rank {
  transfer::update_rates rates;   ///< of this rank; the largest double for a rate without a limit
  transfer::update_traffic each;  ///< of one parameter
  double seconds = 0;             ///< of one step with the share
  bool has_room = true;           ///< for updates on the device
};

/// A stage of the search for a share, see split_rule.
///
///     if (updates.split().stage == split_stage::held) std::cout << "the share holds\n";
enum class split_stage : std::uint8_t { all_on_host, all_on_device, mixed, held };
[[nodiscard]] constexpr std::string_view name_of(split_stage it) noexcept
{
  constexpr std::array<std::string_view, 4> names{"all on the host", "all on the device", "mixed", "held"};
  return names[static_cast<std::size_t>(it)];
}
/// A share of the updates on the device, and the seconds of a step with it.
///
///     for (const tried_share& it : updates.split().tried) std::cout << it.device_share << ": " << it.seconds << "\n";
struct tried_share {
  double device_share = 0;
  double seconds = 0;  ///< the slowest rank's
};

/// A share of the updates and the measurements that led to it.
///
///     const measured_split& seen = updates.split();
///     std::cout << seen.device_share << " of the updates on the device\n";
struct measured_split {
  split_stage stage = split_stage::all_on_host;  ///< of the search
  double device_share = 0;                       ///< of the updates, now
  std::vector<tried_share> tried;  ///< in the order of the stages: all on the host, all on the device, mixed
};

/// Chooses the share of the updates that the device does, by steps that were measured.
///
///     split_rule rule;
///     while (!rule.is_held()) rule.end_stage(<the measurements of all ranks with rule.now().device_share>);
///
/// The stages:
///
/// 1. All updates on the host.
/// 2. All updates on the device. Where a rank has no room for that, the search ends: the host keeps all updates.
/// 3. Mixed: the share with the fewest seconds by the rates of the stages before, for the slowest rank. Then the middle
///    between this share and 1, and half of this share. The rates do not include states that stay on the device or
///    updates that overlap with other work. No mixed share is tried where the rates predict a gain below `least_gain`
///    over the better extreme.
/// 4. Held: the fastest mixed share if its steps were faster than those of both extremes, by `least_gain`. Else the
///    faster extreme.
///
/// So the held share is not slower than the better extreme, by the measured steps. Pure: ranks with the same
/// measurements choose the same share. Source: Deep Optimizer States (Maurya et al. 2024, arXiv 2410.21316), whose user
/// gives the share. Cost: O(ranks) for each stage.
class split_rule {
 public:
  /// @throws usage_error   a gain that is not from 0 to 1
  explicit split_rule(double least_gain = split_options{}.least_gain) : least_gain_{least_gain}
  {
    expects(least_gain >= 0 && least_gain <= 1, "the least gain of a split is not from 0 to 1");
  }

  [[nodiscard]] const measured_split& now() const noexcept { return now_; }
  [[nodiscard]] bool is_held() const noexcept { return now_.stage == split_stage::held; }

  /// The stage is over. @param ranks   all of them, the same on each
  /// @throws usage_error   no rank, or the share is held already; config_error   a rate that is not above 0
  void end_stage(std::span<const measured_split_rank> ranks)
  {
    expects(!ranks.empty() && !is_held(), "a stage of the search for a split ended without ranks, or after its last");
    double seconds = 0;
    for (const measured_split_rank& it : ranks) seconds = std::max(seconds, it.seconds);
    now_.tried.push_back({now_.device_share, seconds});
    switch (now_.stage) {
      case split_stage::all_on_host:
        std::ranges::all_of(ranks, &measured_split_rank::has_room) ? begin(split_stage::all_on_device, 1)
                                                                   : begin(split_stage::held, 0);
        return;
      case split_stage::all_on_device: choose_mixed(ranks); break;
      default: ++next_;
    }
    next_ < mixed_.size() ? begin(split_stage::mixed, mixed_[next_]) : hold();
  }

 private:
  static constexpr std::size_t extremes = 2;

  void choose_mixed(std::span<const measured_split_rank> ranks)
  {
    std::vector<transfer::update_bound> bounds;
    for (const measured_split_rank& it : ranks) bounds.emplace_back(it.rates, 0, it.each);
    const transfer::update_split best = transfer::best_split(bounds);
    const double better = std::min(transfer::slowest_seconds(bounds, 0), transfer::slowest_seconds(bounds, 1));
    if (best.seconds < (1 - least_gain_) * better)
      mixed_ = {best.device_share, (best.device_share + 1) / 2, best.device_share / 2};
  }
  void hold()
  {
    const auto faster = [](const tried_share& left, const tried_share& right) { return left.seconds < right.seconds; };
    const auto begin_of_mixed = now_.tried.begin() + extremes;
    const tried_share extreme = *std::min_element(now_.tried.begin(), begin_of_mixed, faster);
    const auto mixed = std::min_element(begin_of_mixed, now_.tried.end(), faster);
    const bool gains = mixed != now_.tried.end() && mixed->seconds < (1 - least_gain_) * extreme.seconds;
    begin(split_stage::held, (gains ? *mixed : extreme).device_share);
  }
  void begin(split_stage stage, double share)
  {
    now_.stage = stage;
    now_.device_share = share;
  }

  double least_gain_;
  measured_split now_;
  std::vector<double> mixed_;  // to be tried
  std::size_t next_ = 0;       // of them
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
