// SPDX-License-Identifier: Apache-2.0
#include <support/count_allocations.hpp>

#if defined(__GLIBC__) && !defined(CHUNKMEM_TEST_UNDER_SANITIZER)

#include <support/replaced_new.hpp>

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>

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

void* own_new(std::size_t size, std::size_t alignment) noexcept
{
  news.fetch_add(1, std::memory_order_relaxed);
  void* const place = alignment <= alignof(std::max_align_t) ? __libc_malloc(size) : __libc_memalign(alignment, size);
  const auto usable = static_cast<std::int64_t>(::malloc_usable_size(place));
  const std::int64_t now = live_bytes.fetch_add(usable, std::memory_order_relaxed) + usable;
  for (std::int64_t most = most_live_bytes; now > most && !most_live_bytes.compare_exchange_weak(most, now);) {
  }
  return place;
}
void own_delete(void* place) noexcept
{
  live_bytes.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(place)), std::memory_order_relaxed);
  __libc_free(place);
}

}  // namespace support

#endif
