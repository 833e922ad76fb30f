// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <bit>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace collective {

/// The time that a rank's arithmetic loses to its messages, where the processor that computes also sends and receives.
///
/// Good for ranks on CPUs, where MPI works on the processors of the passes. Ranks on GPUs lose nothing, which is the
/// default. The messages are those of `collective::mpi`, agreements of ranks included.
///
/// Use:
///
///     const message_work work{.seconds_per_message = 20e-6, .seconds_per_byte = 4e-9};
///     const double lost = work.of_group(4, 3'000'000);  // an all-gather of 4 MB: 3 MB go out, and 3 MB come in [s]
struct message_work {
  double seconds_per_message = 0;  ///< sent or received
  double seconds_per_byte = 0;     ///< sent or received

  [[nodiscard]] constexpr bool operator==(const message_work&) const noexcept = default;

  /// A gather, a sum or a barrier of a group: two messages in each round of its agreement, and with each other rank.
  /// @param bytes   that this rank sends; it receives as many
  [[nodiscard]] constexpr double of_group(std::uint32_t ranks, double bytes) const noexcept
  {
    return ranks < 2 ? 0 : seconds(messages_of_group(ranks), 2 * bytes);
  }
  /// One end of a send: two messages of the agreement, and the bytes.
  [[nodiscard]] constexpr double of_send(double bytes) const noexcept { return seconds(3, bytes); }

  [[nodiscard]] static constexpr double messages_of_group(std::uint32_t ranks) noexcept
  {
    return 2.0 * (std::bit_width(ranks - 1) + static_cast<double>(ranks - 1));
  }

 private:
  [[nodiscard]] constexpr double seconds(double messages, double bytes) const noexcept
  {
    return messages * seconds_per_message + bytes * seconds_per_byte;
  }
};

}  // namespace collective

}  // namespace chunkmem::inline v0
