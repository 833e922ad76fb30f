// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

namespace chunkmem::inline v0 {

namespace activation {

/// The memory that activations may have, and the links through which they may leave it.
///
///     const activation_budget budget{.device = 14_GiB, .to_host_bytes_per_second = 12e9,
///                                    .to_device_bytes_per_second = 12e9};
struct activation_budget {
  bytes device{};
  double to_host_bytes_per_second = 0;
  double to_device_bytes_per_second = 0;
  double seconds_per_copy = 0;                            ///< before the first byte of a copy arrives
  bytes host{std::numeric_limits<std::uint64_t>::max()};  ///< for activations that left the device
  bytes frame{1};  ///< each tensor takes whole frames; 1: as many bytes as it has
  /// The most bytes that one copy moves: a larger tensor leaves and returns in parts. 0: a 64th of the device.
  bytes copy{};

  [[nodiscard]] bool operator==(const activation_budget&) const = default;

  /// The most bytes that one copy moves, in whole frames.
  [[nodiscard]] std::uint64_t in_one_copy() const
  {
    const bytes most = copy > bytes{} ? copy : bytes{device.count() / 64};
    return align_up(std::max(most, bytes{1}), frame).count();
  }
  /// Bytes of the frames that `size` takes.
  [[nodiscard]] std::uint64_t in_frames(bytes size) const { return align_up(size, frame).count(); }
  [[nodiscard]] double to_host_seconds(std::uint64_t size) const noexcept
  {
    return seconds_per_copy + static_cast<double>(size) / to_host_bytes_per_second;
  }
  [[nodiscard]] double to_device_seconds(std::uint64_t size) const noexcept
  {
    return seconds_per_copy + static_cast<double>(size) / to_device_bytes_per_second;
  }

  /// @throws config_error   names the member that cannot be
  void check() const
  {
    const auto refuse = [](std::string_view member) {
      throw config_error{error_text{} << "chunkmem: the budget of activations cannot be: " << member
                                      << " is 0, negative or no number"};
    };
    const auto is_rate = [](double rate) { return rate > 0 && rate <= std::numeric_limits<double>::max(); };
    if (!is_rate(to_host_bytes_per_second)) refuse("to_host_bytes_per_second");
    if (!is_rate(to_device_bytes_per_second)) refuse("to_device_bytes_per_second");
    if (!(seconds_per_copy >= 0 && seconds_per_copy <= std::numeric_limits<double>::max())) refuse("seconds_per_copy");
    if (frame == bytes{}) refuse("frame");
  }
};

}  // namespace activation

}  // namespace chunkmem::inline v0
