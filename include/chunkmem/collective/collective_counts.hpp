// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/call.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace collective {

/// Counts of one rank's end of a group, by operation. Tests compare them with the formulas of bytes for each step.
///
///     const collective_counts seen = ranks.counts();
///     std::cout << seen[operation::all_gather].sent << " B sent\n";
struct collective_counts {
  struct entry {
    std::uint64_t calls = 0;
    std::uint64_t sent = 0;              ///< [bytes]
    std::uint64_t received = 0;          ///< [bytes]
    std::uint64_t busy_nanoseconds = 0;  ///< on the links, without waits for them

    [[nodiscard]] constexpr bool operator==(const entry&) const noexcept = default;
    constexpr entry& operator+=(const entry& other) noexcept
    {
      calls += other.calls;
      sent += other.sent;
      received += other.received;
      busy_nanoseconds += other.busy_nanoseconds;
      return *this;
    }
  };
  static constexpr std::size_t operations = static_cast<std::size_t>(operation::exchange) + 1;

  std::array<entry, operations> entries{};

  [[nodiscard]] constexpr const entry& operator[](operation what) const noexcept
  {
    return entries[static_cast<std::size_t>(what)];
  }
  [[nodiscard]] constexpr entry& operator[](operation what) noexcept { return entries[static_cast<std::size_t>(what)]; }
  [[nodiscard]] constexpr entry total() const noexcept
  {
    entry all;
    for (const entry& each : entries) all += each;
    return all;
  }
  [[nodiscard]] constexpr bool operator==(const collective_counts&) const noexcept = default;
};

}  // namespace collective

}  // namespace chunkmem::inline v0
