// SPDX-License-Identifier: Apache-2.0
#pragma once

// Lets the k-th call of a kind fail, anywhere in a program: an allocation of the heap on any thread, a copy, an
// allocation of a backend, an operation on a file, the start of a thread.
//
// The file that includes this header after `#define CHUNKMEM_TEST_FAILS_HEAP_AND_THREADS` replaces operator new and
// delete and pthread_create: exactly one file per test program does. That works under sanitizers too, since the memory
// still comes from malloc, which they watch. The library has no hook for faults, so production code has no cost.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace support {

enum class fault_source : std::uint8_t { heap, copy, arena, file, thread };
inline constexpr std::size_t fault_sources = 5;
[[nodiscard]] constexpr const char* name_of(fault_source it) noexcept
{
  constexpr const char* names[] = {"operator new", "copy", "allocation of a tier", "file operation", "thread"};
  return names[static_cast<std::size_t>(it)];
}

/// The call that fails, counted from 0; `retained`: and so do all calls after it of its source.
struct fault_point {
  static constexpr std::uint64_t never = UINT64_MAX;
  fault_source from = fault_source::heap;
  std::uint64_t at = never;
  bool retained = false;
};

/// Counts calls while it is armed, and says which of them fail. Allocates nothing. @threads any
class fault_control {
 public:
  /// Counts from 0 again. @param second   counts its calls from the first failure on
  void arm(const fault_point& first, const fault_point& second = {}) noexcept
  {
    for (auto& count : calls_) count = 0;
    later_ = struck_ = 0;
    first_ = first;
    second_ = second;
    repaired_ = false;
    armed_ = true;
  }
  void disarm() noexcept { armed_ = false; }
  /// Continues where `disarm` stopped.
  void resume() noexcept { armed_ = true; }
  /// Persistent faults end; calls are still counted.
  void repair() noexcept { repaired_ = true; }

  [[nodiscard]] std::uint64_t calls(fault_source from) const noexcept { return calls_[static_cast<std::size_t>(from)]; }
  [[nodiscard]] std::uint64_t struck() const noexcept { return struck_; }

  /// Called before each operation. @return   the operation has to fail
  [[nodiscard]] bool strikes(fault_source from) noexcept
  {
    if (!armed_.load(std::memory_order_acquire)) return false;
    const std::uint64_t now = calls_[static_cast<std::size_t>(from)].fetch_add(1, std::memory_order_relaxed);
    const bool again = !repaired_.load(std::memory_order_relaxed);
    bool hit = from == first_.from && (now == first_.at || (first_.retained && again && now > first_.at));
    if (!hit && from == second_.from && second_.at != fault_point::never && struck_.load() > 0) {
      const std::uint64_t since = later_.fetch_add(1, std::memory_order_relaxed);
      hit = since == second_.at || (second_.retained && again && since > second_.at);
    }
    struck_ += hit ? 1 : 0;
    return hit;
  }

 private:
  std::atomic<std::uint64_t> calls_[fault_sources] = {};
  std::atomic<std::uint64_t> later_{0};
  std::atomic<std::uint64_t> struck_{0};
  std::atomic<bool> armed_{false};
  std::atomic<bool> repaired_{false};
  fault_point first_{};
  fault_point second_{};
};

inline constinit fault_control faults;
inline constinit std::atomic<std::int64_t> live_blocks{0};  ///< blocks of operator new that were not deleted
inline constinit std::atomic<std::int64_t> live_arenas{0};  ///< the same of backends: see faulty

}  // namespace support

#ifdef CHUNKMEM_TEST_FAILS_HEAP_AND_THREADS

#include <support/replaced_new.hpp>

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>
#include <cstdlib>

namespace support {

void* own_new(std::size_t size, std::size_t alignment) noexcept
{
  if (faults.strikes(fault_source::heap)) return nullptr;
  const std::size_t wanted = size == 0 ? 1 : size;
  void* const place = alignment <= alignof(std::max_align_t)
                          ? std::malloc(wanted)
                          : std::aligned_alloc(alignment, (wanted + alignment - 1) / alignment * alignment);
  live_blocks += place != nullptr ? 1 : 0;
  return place;
}
void own_delete(void* place) noexcept
{
  live_blocks -= place != nullptr ? 1 : 0;
  std::free(place);
}

}  // namespace support

extern "C" {

using thread_starter = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

// The sanitizer's wrapper of the system function, where there is one.
[[gnu::weak]] int __interceptor_pthread_create(pthread_t* made, const pthread_attr_t* how, void* (*work)(void*),
                                               void* argument);

int pthread_create(pthread_t* made, const pthread_attr_t* how, void* (*work)(void*), void* argument) noexcept
{
  if (support::faults.strikes(support::fault_source::thread)) return EAGAIN;
  if (__interceptor_pthread_create != nullptr) return __interceptor_pthread_create(made, how, work, argument);
  static const auto next = reinterpret_cast<thread_starter>(::dlsym(RTLD_NEXT, "pthread_create"));
  return next(made, how, work, argument);
}
}

#endif
