// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>

#include <array>
#include <cstddef>
#include <limits>
#include <span>

namespace chunkmem::inline v0 {

namespace transfer {

/// The rates of one rank's share of a machine while parameters are updated.
///
///     const update_split split = best_split({.host_updates_per_second = 1e9,
///                                            .device_updates_per_second = 1e10,
///                                            .to_device_bytes_per_second = 25e9,
///                                            .to_host_bytes_per_second = 25e9});
struct update_rates {
  double host_updates_per_second = 0;    ///< [parameters/s], without other use of the host's memory
  double device_updates_per_second = 0;  ///< [parameters/s], with their states on the device
  double to_device_bytes_per_second = 0;
  double to_host_bytes_per_second = 0;
  double host_memory_bytes_per_second = 0;  ///< reads and writes together; 0: never a limit
};

/// Bytes that the update of one parameter moves. The defaults are those of Adam with 32-bit states and master, and a
/// 16-bit weight and gradient.
///
///     const update_split split = best_split(rates, 0, {.gradient_bytes = 0});
struct update_traffic {
  double state_bytes = 12;        ///< both ways over the links where states are streamed
  double gradient_bytes = 2;      ///< to the host for updates there; 0 where gradients moved during backward
  double value_bytes = 2;         ///< back to the device
  double host_update_bytes = 28;  ///< of host memory, read and written by an update there
};

/// The share of the parameters that the device updates with streamed states, and the time of the update.
///
///     const update_split split = best_split(rates);
struct update_split {
  double device_share = 0;
  double seconds = 0;  ///< for each parameter of the rank
};

/// A lower bound of the time of an update: five resources, each busy for a time that is linear in the share updated on
/// the device.
///
///     const update_split best = update_bound{rates, resident_share}.best();
///
/// With x streamed, r resident on the device and y = 1 - x - r on the host, the seconds for each parameter are the
/// largest of five numbers: y / host updates, (x + r) / device updates, the bytes up and the bytes down over their
/// links, and the bytes of host memory over its rate (32 y + 24 x with Adam). No schedule is faster. Short updates and
/// large chunks are slower than the bound.
/// Source: Deep Optimizer States (Maurya et al. 2024, arXiv 2410.21316) interleaves updates of CPU and GPU; their ratio
/// leaves host memory out. Cost: O(1).
class update_bound {
 public:
  /// @param resident_share   share of the parameters whose states stay on the device, from 0 to 1
  /// @throws config_error    a rate that is not above zero, or negative for host memory; a negative count of bytes
  /// @throws usage_error     the share is not from 0 to 1
  explicit constexpr update_bound(const update_rates& rates, double resident_share = 0, const update_traffic& each = {})
      : most_{1 - resident_share}
  {
    expects(resident_share >= 0 && resident_share <= 1, "the resident share of an update is not from 0 to 1");
    require_usable(rates, each);
    const double up = each.value_bytes;
    const double down = each.gradient_bytes;
    lines_ = {line{most_, -1} / rates.host_updates_per_second,
              line{resident_share, 1} / rates.device_updates_per_second,
              line{up * most_, each.state_bytes - up} / rates.to_device_bytes_per_second,
              line{down * most_, each.state_bytes - down} / rates.to_host_bytes_per_second, line{}};
    if (rates.host_memory_bytes_per_second == 0) return;
    const double on_host = each.host_update_bytes + up + down;
    lines_[4] = line{on_host * most_, 2 * each.state_bytes - on_host} / rates.host_memory_bytes_per_second;
  }

  /// The largest share that can be streamed: all parameters that are not resident.
  [[nodiscard]] constexpr double most() const noexcept { return most_; }

  /// Seconds for each parameter, where this share is streamed. @pre the share is from 0 to most()
  [[nodiscard]] constexpr double seconds(double device_share) const noexcept
  {
    double longest = 0;
    for (const line& it : lines_) {
      const double busy = it.at_zero + it.slope * device_share;
      longest = busy > longest ? busy : longest;
    }
    return longest;
  }

  /// The smallest share with the fewest seconds. It lies at an end, or where two lines cross.
  [[nodiscard]] constexpr update_split best() const noexcept
  {
    update_split found{0, seconds(0)};
    const auto look_at = [&](double share) {
      if (!(share > 0 && share <= most_)) return;
      const double here = seconds(share);
      if (here < found.seconds || (here == found.seconds && share < found.device_share)) found = {share, here};
    };
    look_at(most_);
    for (std::size_t one = 0; one < lines_.size(); ++one)
      for (std::size_t other = 0; other < one; ++other)
        if (const double turn = lines_[other].slope - lines_[one].slope; turn != 0)
          look_at((lines_[one].at_zero - lines_[other].at_zero) / turn);
    return found;
  }

 private:
  struct line {
    double at_zero = 0;
    double slope = 0;

    [[nodiscard]] friend constexpr line operator/(line left, double rate) noexcept
    {
      return {left.at_zero / rate, left.slope / rate};
    }
  };

  static constexpr void require_usable(const update_rates& rates, const update_traffic& each)
  {
    for (const double rate : {rates.host_updates_per_second, rates.device_updates_per_second,
                              rates.to_device_bytes_per_second, rates.to_host_bytes_per_second}) {
      if (!(rate > 0 && rate <= std::numeric_limits<double>::max()))
        throw config_error{
            "update rates with one that is not above 0 (give all four; only host memory may be left at 0)"};
    }
    for (const double value : {rates.host_memory_bytes_per_second, each.state_bytes, each.gradient_bytes,
                               each.value_bytes, each.host_update_bytes}) {
      if (!(value >= 0 && value <= std::numeric_limits<double>::max()))
        throw config_error{
            "update rates or bytes with a number that is negative or no number (give 0 for a missing part)"};
    }
  }

  double most_;
  std::array<line, 5> lines_{};
};

/// The best split of an update between host and device. @throws config_error, usage_error   as update_bound
[[nodiscard]] constexpr update_split best_split(const update_rates& rates, double resident_share = 0,
                                                const update_traffic& each = {})
{
  return update_bound{rates, resident_share, each}.best();
}

/// Seconds for each parameter of the slowest of some ranks, where all stream this share. O(ranks)
[[nodiscard]] constexpr double slowest_seconds(std::span<const update_bound> ranks, double device_share) noexcept
{
  double longest = 0;
  for (const update_bound& it : ranks) {
    const double seconds = it.seconds(device_share);
    longest = seconds > longest ? seconds : longest;
  }
  return longest;
}

/// The smallest of the shares that are best for ranks with equally many parameters and one share for all.
///
///     const update_split split = best_split(bounds);   // of all ranks
///
/// The seconds are convex in the share, so the least is found between thirds. Cost: O(ranks).
/// @throws usage_error   no ranks
[[nodiscard]] constexpr update_split best_split(std::span<const update_bound> ranks)
{
  expects(!ranks.empty(), "the best split of no ranks");
  double low = 0;
  double high = 1;
  for (const update_bound& it : ranks) high = it.most() < high ? it.most() : high;
  constexpr int rounds = 90;  // a third less each: 1 becomes 1e-16
  for (int round = 0; round < rounds; ++round) {
    const double third = (high - low) / 3;
    if (slowest_seconds(ranks, low + third) <= slowest_seconds(ranks, high - third))
      high -= third;
    else
      low += third;
  }
  return {high, slowest_seconds(ranks, high)};
}

}  // namespace transfer

}  // namespace chunkmem::inline v0
