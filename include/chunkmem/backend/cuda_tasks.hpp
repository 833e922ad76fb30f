// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/operation.hpp>
#include <chunkmem/core/error.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace chunkmem::inline v0 {
namespace backend {

/// The callables that a stream was given to run on the host and has not run yet: a ring of 256.
///
///     cuda_tasks tasks;
///     void* const place = tasks.put(std::move(task));  // where not is_full()
///     if (launch(&cuda_tasks::run, place)) tasks.keep(); else tasks.take_back();
///
/// The runtime gets the address of one slot for each. After an error that ends CUDA nobody can tell whether it will
/// still run one, so memory with callables that were not run is kept for good then, and their captures are not
/// destroyed. It stays reachable: a checker of leaks finds nothing to complain of. Cost: no allocation after
/// construction; one atomic increment for each callable that ran.
///
/// @threads   `run` on any one thread at a time; the rest one caller
class cuda_tasks {
 public:
  static constexpr std::uint64_t room = 256;
  static constexpr std::uint64_t part = 64;  ///< room is made for as many at once

  /// @throws device_error   the system gives no memory
  cuda_tasks()
  {
    if (shared_ == nullptr) {
      throw device_error{error_text{} << "chunkmem: no memory for the queue of a stream: "
                                      << std::uint64_t{sizeof(shared)}
                                      << " B asked for (free memory, or adopt fewer agents)"};
    }
  }
  cuda_tasks(const cuda_tasks&) = delete;
  cuda_tasks& operator=(const cuda_tasks&) = delete;
  ~cuda_tasks()
  {
    if (finished() == given_) {
      delete shared_;
      return;
    }
    shared_->next_kept = kept_.load();
    while (!kept_.compare_exchange_weak(shared_->next_kept, shared_)) {
    }
  }

  [[nodiscard]] std::uint64_t given() const noexcept { return given_; }
  [[nodiscard]] std::uint64_t finished() const noexcept { return shared_->finished.load(std::memory_order_acquire); }
  [[nodiscard]] bool is_full() const noexcept { return given_ - finished() >= room; }

  /// Puts a callable into the next slot and returns what `run` wants. `keep` it once a stream has it, else `take_back`.
  /// @pre   not is_full()
  [[nodiscard]] void* put(inline_task&& task) noexcept
  {
    slot& next = shared_->slots[given_ % room];
    next.finished = &shared_->finished;
    next.task = std::move(task);
    return &next;
  }
  void keep() noexcept { ++given_; }
  void take_back() noexcept { shared_->slots[given_ % room].task.reset(); }

  /// What the runtime calls.
  static void run(void* place) noexcept
  {
    slot& mine = *static_cast<slot*>(place);
    mine.task();
    mine.task.reset();
    mine.finished->fetch_add(1, std::memory_order_release);  // last: the slot belongs to the caller again
  }

 private:
  struct slot {
    inline_task task;
    std::atomic<std::uint64_t>* finished = nullptr;
  };
  struct shared {
    std::atomic<std::uint64_t> finished{0};
    std::array<slot, room> slots;
    shared* next_kept = nullptr;
  };

  /// Tasks that streams of lost devices may still run. It is a global: a runtime may call them after the last backend
  /// has ended, so no object could own them. They are added once for each lost backend, and never freed.
  static inline std::atomic<shared*> kept_{nullptr};

  shared* shared_ = ::new (std::nothrow) shared;
  std::uint64_t given_ = 0;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
