// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/wait_cause.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {
namespace backend {

/// Adds up waits that blocked. Cost: two additions for each; no lock.
///
///     wait_totals totals;
///     totals.add(wait_cause::demand_miss, 1'200);                    // on any thread
///     const wait_total waited = totals.of(wait_cause::demand_miss);  // 1 wait, 1200 ns
///
/// @threads   any
class wait_totals {
 public:
  void add(wait_cause why, std::uint64_t nanoseconds) noexcept
  {
    entry& it = entries_[static_cast<std::size_t>(why)];
    it.count.fetch_add(1, std::memory_order_relaxed);
    it.nanoseconds.fetch_add(nanoseconds, std::memory_order_relaxed);
  }
  [[nodiscard]] wait_total of(wait_cause why) const noexcept
  {
    const entry& it = entries_[static_cast<std::size_t>(why)];
    return {it.count.load(std::memory_order_relaxed), it.nanoseconds.load(std::memory_order_relaxed)};
  }

 private:
  struct entry {
    std::atomic<std::uint64_t> count{0};
    std::atomic<std::uint64_t> nanoseconds{0};
  };
  std::array<entry, wait_causes> entries_;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
