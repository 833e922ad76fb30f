// SPDX-License-Identifier: Apache-2.0
#pragma once

// Counts the requests of a program to the heap and the system, on all threads. A program with a test that includes this
// header is linked to the replacements, count_allocations.cpp. Off under sanitizers, which need these functions
// themselves: check `support::counts_allocations`, and skip. Needs glibc: its __libc_* functions do the work.

#include <atomic>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHUNKMEM_TEST_UNDER_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CHUNKMEM_TEST_UNDER_SANITIZER 1
#endif
#endif

namespace support {

#if defined(__GLIBC__) && !defined(CHUNKMEM_TEST_UNDER_SANITIZER)
inline constexpr bool counts_allocations = true;
#else
inline constexpr bool counts_allocations = false;
#endif

inline std::atomic<std::uint64_t> news{0};       ///< operator new, every form
inline std::atomic<std::uint64_t> mallocs{0};    ///< malloc, calloc, realloc and the aligned forms, called directly
inline std::atomic<std::uint64_t> maps{0};       ///< mmap, called directly (not by the heap itself)
inline std::atomic<std::int64_t> live_bytes{0};  ///< bytes of operator new that were not released
inline std::atomic<std::int64_t> most_live_bytes{0};  ///< the peak of live_bytes since a test set it

struct allocation_counts {
  std::uint64_t by_new = 0;
  std::uint64_t by_malloc = 0;
  std::uint64_t by_mmap = 0;

  [[nodiscard]] std::uint64_t heap() const noexcept { return by_new + by_malloc; }
  [[nodiscard]] std::uint64_t all() const noexcept { return heap() + by_mmap; }
};

/// The requests since the program began, of any thread.
[[nodiscard]] inline allocation_counts allocations_so_far() noexcept
{
  return {news, mallocs, maps};
}

/// The peak of bytes that `work()` allocated by operator new.
template <class Work>
[[nodiscard]] std::int64_t most_bytes_of(Work work)
{
  const std::int64_t before = live_bytes;
  most_live_bytes = before;
  work();
  return most_live_bytes - before;
}

/// The requests between two readings.
[[nodiscard]] inline allocation_counts operator-(const allocation_counts& now, const allocation_counts& before) noexcept
{
  return {now.by_new - before.by_new, now.by_malloc - before.by_malloc, now.by_mmap - before.by_mmap};
}

}  // namespace support
