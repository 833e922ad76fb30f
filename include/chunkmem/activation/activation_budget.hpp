// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/layer_chain.hpp>
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
  /// The chain may be planned with this budget. Every planner asks first, so that no sum of sizes or times of a plan
  /// leaves its range.
  /// @throws config_error   the budget or the chain cannot be: names the member or the block   @complexity O(blocks)
  void check(const layer_chain& chain) const
  {
    chain.check();
    check();
    if (frame.count() > most_bytes)
      throw config_error{error_text{} << "chunkmem: the budget of activations cannot be: its frame is " << frame.count()
                                      << " B (give the size of the manager's chunks, or 1)"};
    std::uint64_t all = 0;
    const auto add = [&](bytes size) {
      const std::uint64_t taken = size.count() > most_bytes ? most_bytes : in_frames(size);
      all += std::min(taken, most_bytes);  // no wrap: the sum was below most_bytes before
    };
    add(chain.input);
    for (std::uint32_t index = 0; index < chain.size(); ++index) {
      const chain_block& block = chain.blocks[index];
      for (const bytes size : {block.inner(), block.boundary, block.gradient, block.carried, block.forward_working,
                               block.passing_working, block.backward_working}) {
        add(size);
        if (all >= most_bytes)
          throw config_error{error_text{} << "chunkmem: a chain of " << chain.size()
                                          << " blocks cannot be planned: block " << index << " (\"" << block.name
                                          << "\") and those before it take more than 2^60 B in one step (check the "
                                             "sizes of this block: saved, boundary, gradient, working)"};
      }
    }
    if (copy > bytes{} && all / in_one_copy() > most_copies)
      throw config_error{error_text{} << "chunkmem: the budget of activations cannot be: a copy of " << copy.count()
                                      << " B divides the tensors of the chain into more than 2^22 copies (give a "
                                         "larger copy, or 0)"};
    const double copied = static_cast<double>(all);
    const double slowest = copied / to_host_bytes_per_second + copied / to_device_bytes_per_second +
                           seconds_per_copy * (static_cast<double>(most_copies) + chain.size());
    if (!(slowest <= std::numeric_limits<double>::max()))
      throw config_error{error_text{} << "chunkmem: the budget of activations cannot be: its copies of this chain "
                                         "would take more seconds than a number holds (check to_host_bytes_per_second, "
                                         "to_device_bytes_per_second and seconds_per_copy)"};
  }

 private:
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 60;
  static constexpr std::uint64_t most_copies = std::uint64_t{1} << 22;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
