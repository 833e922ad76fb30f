// SPDX-License-Identifier: Apache-2.0
#pragma once

// Counts what a program asks the heap and the system for, on all threads. The file that includes this after
// `#define CHUNKMEM_TEST_COUNTS_ALLOCATIONS` defines the replacements: exactly one file per test program does.
// Off under sanitizers, which need these functions themselves: ask `support::counts_allocations`, and skip.
// Needs glibc: its __libc_* functions do the work.

#include <atomic>
#include <cstddef>
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

inline std::atomic<std::uint64_t> news{0};            ///< operator new, every form
inline std::atomic<std::uint64_t> mallocs{0};         ///< malloc, calloc, realloc and the aligned ones, called directly
inline std::atomic<std::uint64_t> maps{0};            ///< mmap, called directly (not by the heap itself)
inline std::atomic<std::int64_t> live_bytes{0};       ///< bytes that operator new gave and has not back
inline std::atomic<std::int64_t> most_live_bytes{0};  ///< the most of them at once, since somebody set it

struct allocation_counts {
  std::uint64_t by_new = 0;
  std::uint64_t by_malloc = 0;
  std::uint64_t by_mmap = 0;

  [[nodiscard]] std::uint64_t heap() const noexcept { return by_new + by_malloc; }
  [[nodiscard]] std::uint64_t all() const noexcept { return heap() + by_mmap; }
};

/// What was asked for since the program began, by any thread.
[[nodiscard]] inline allocation_counts allocations_so_far() noexcept
{
  return {news, mallocs, maps};
}

/// The most bytes that `work()` held at once beyond what was there, by operator new.
template <class Work>
[[nodiscard]] std::int64_t most_bytes_of(Work work)
{
  const std::int64_t before = live_bytes;
  most_live_bytes = before;
  work();
  return most_live_bytes - before;
}

/// What was asked for between two readings.
[[nodiscard]] inline allocation_counts operator-(const allocation_counts& now, const allocation_counts& before) noexcept
{
  return {now.by_new - before.by_new, now.by_malloc - before.by_malloc, now.by_mmap - before.by_mmap};
}

}  // namespace support

#if defined(CHUNKMEM_TEST_COUNTS_ALLOCATIONS) && defined(__GLIBC__) && !defined(CHUNKMEM_TEST_UNDER_SANITIZER)

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <new>

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* place, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* place);

void* malloc(std::size_t size) noexcept
{
  support::mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept
{
  support::mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, size);
}
void* realloc(void* place, std::size_t size) noexcept
{
  support::mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(place, size);
}
void* memalign(std::size_t alignment, std::size_t size) noexcept
{
  support::mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept
{
  return memalign(alignment, size);
}
int posix_memalign(void** place, std::size_t alignment, std::size_t size) noexcept
{
  void* const got = memalign(alignment, size);
  if (got == nullptr) return ENOMEM;
  *place = got;
  return 0;
}
void free(void* place) noexcept
{
  __libc_free(place);
}

void* mmap(void* where, std::size_t size, int protection, int flags, int file, off_t offset) noexcept
{
  support::maps.fetch_add(1, std::memory_order_relaxed);
  return reinterpret_cast<void*>(::syscall(SYS_mmap, where, size, protection, flags, file, offset));
}
}

namespace support {

inline void* counted_new(std::size_t size, std::size_t alignment) noexcept
{
  news.fetch_add(1, std::memory_order_relaxed);
  void* const place = alignment <= alignof(std::max_align_t) ? __libc_malloc(size) : __libc_memalign(alignment, size);
  const auto usable = static_cast<std::int64_t>(::malloc_usable_size(place));
  const std::int64_t now = live_bytes.fetch_add(usable, std::memory_order_relaxed) + usable;
  for (std::int64_t most = most_live_bytes; now > most && !most_live_bytes.compare_exchange_weak(most, now);) {
  }
  return place;
}
inline void counted_delete(void* place) noexcept
{
  live_bytes.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(place)), std::memory_order_relaxed);
  __libc_free(place);
}
inline void* counted_new_or_throw(std::size_t size, std::size_t alignment)
{
  if (void* const place = counted_new(size, alignment)) return place;
  throw std::bad_alloc{};
}

}  // namespace support

void* operator new(std::size_t size)
{
  return support::counted_new_or_throw(size, 1);
}
void* operator new[](std::size_t size)
{
  return support::counted_new_or_throw(size, 1);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept
{
  return support::counted_new(size, 1);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept
{
  return support::counted_new(size, 1);
}
void* operator new(std::size_t size, std::align_val_t alignment)
{
  return support::counted_new_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment)
{
  return support::counted_new_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept
{
  return support::counted_new(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept
{
  return support::counted_new(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* place) noexcept
{
  support::counted_delete(place);
}
void operator delete[](void* place) noexcept
{
  support::counted_delete(place);
}
void operator delete(void* place, std::size_t) noexcept
{
  support::counted_delete(place);
}
void operator delete[](void* place, std::size_t) noexcept
{
  support::counted_delete(place);
}
void operator delete(void* place, const std::nothrow_t&) noexcept
{
  support::counted_delete(place);
}
void operator delete[](void* place, const std::nothrow_t&) noexcept
{
  support::counted_delete(place);
}
void operator delete(void* place, std::align_val_t) noexcept
{
  support::counted_delete(place);
}
void operator delete[](void* place, std::align_val_t) noexcept
{
  support::counted_delete(place);
}
void operator delete(void* place, std::size_t, std::align_val_t) noexcept
{
  support::counted_delete(place);
}
void operator delete[](void* place, std::size_t, std::align_val_t) noexcept
{
  support::counted_delete(place);
}
void operator delete(void* place, std::align_val_t, const std::nothrow_t&) noexcept
{
  support::counted_delete(place);
}
void operator delete[](void* place, std::align_val_t, const std::nothrow_t&) noexcept
{
  support::counted_delete(place);
}

#endif
