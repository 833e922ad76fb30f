// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/agent_worker.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/backend/tier_ledger.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/own_process.hpp>

#include <sys/mman.h>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>

namespace chunkmem::inline v0 {
namespace backend {

/// The capacities of the two tiers, and the thread that computes.
///
///     host_arena memory{{.device_capacity = 64_MiB, .host_capacity = 1_GiB, .async_compute = true}};
struct host_arena_options {
  bytes device_capacity{};     ///< of the simulated device
  bytes host_capacity{};       ///< of the host tier
  bool async_compute = false;  ///< compute is a thread of its own, as on a GPU
};

/// A slice of host memory that stands in for a GPU: real bytes, real concurrency.
///
///     host_arena memory{{.device_capacity = 64_MiB, .host_capacity = 1_GiB}};
///     manager<host_arena> m{memory};
///
/// Each copy agent is a thread. Compute is the calling thread: a launch on it runs immediately, and a wait of compute
/// blocks. With `async_compute` compute is a thread too, which shows a missing wait of compute without a GPU.
/// Pages are mapped when first touched, so resident memory counts only what is used. Good for embedding, tests and
/// trainers on the CPU; poor as a measure of a GPU's step time, because copies and compute share one memory.
/// An event's value is the number of operations its agent was given; waits count, so it never depends on timing.
/// Cost: copies cost a lock and a wake-up; no allocation after construction other than by `allocate` and `adopt`.
/// Needs a system with mmap (POSIX).
/// A forked child does not have its threads: the arena can be destroyed there, and memory released; work and waits are
/// a usage_error.
///
/// @threads   one caller at a time, from any thread
class host_arena {
 public:
  static constexpr bool host_addressable = true;

  /// @throws device_error   the system gives no more threads
  explicit host_arena(const host_arena_options& options)
      : ledger_{options.device_capacity, options.host_capacity}, start_{std::chrono::steady_clock::now()}
  {
    start_worker(agent::to_device);
    start_worker(agent::to_host);
    if (options.async_compute) start_worker(agent::compute);
  }
  host_arena(const host_arena&) = delete;
  host_arena& operator=(const host_arena&) = delete;

  /// Finishes queued work, then unmaps memory that was not released, unless it is held.
  ~host_arena()
  {
    if (workers_.is_owner())
      for (auto& worker : *workers_) worker.reset();
    for (const tier_ledger::allocation& entry : ledger_.allocations()) unmap(entry.place, entry.size);
    if (kept_ != 0)
      std::fprintf(stderr,
                   "chunkmem: %llu B stay with this process, since a communicator that failed may still use them (end "
                   "the process)\n",
                   static_cast<unsigned long long>(kept_));
  }

  [[nodiscard]] bytes capacity(tier where) const noexcept { return ledger_.capacity(where); }

  /// Maps fresh memory, aligned to a page.
  ///
  /// @throws usage_error     size is 0, or there is no such tier
  /// @throws out_of_memory   above the capacity, or the system has no more; nothing was changed
  [[nodiscard]] std::byte* allocate(tier where, bytes size)
  {
    ledger_.require(where, size);
    void* const place = ::mmap(nullptr, size.count(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) ledger_.refuse(where, size);
    ledger_.add(where, static_cast<std::byte*>(place), size);
    return static_cast<std::byte*>(place);
  }

  /// Finishes all queued work first, since some of it may touch this memory; then unmaps. A forked child does not wait.
  /// Null is ignored; an address that was never allocated is counted by `unknown_releases` and left alone.
  void release(tier where, std::byte* place) noexcept
  {
    if (workers_.is_owner())
      for (std::size_t i = 0; i < agents_; ++i) progress_[i].wait_for(given(static_cast<agent>(i)));
    const bytes size = ledger_.remove(where, place);
    if (size != bytes{}) unmap(place, size);
  }
  /// For communicators: where this is true, others may still use memory of this arena, and none is unmapped any more.
  /// Communicators may set it until the arena has finished its queued work.
  [[nodiscard]] const std::shared_ptr<std::atomic<bool>>& held() const noexcept { return held_; }
  [[nodiscard]] std::uint64_t unknown_releases() const noexcept { return ledger_.unknown_releases(); }

  void copy(std::byte* to, const std::byte* from, bytes size) { copy(to, from, size, agent::host); }
  void fill(std::byte* to, std::byte value, bytes size) { fill(to, value, size, agent::host); }

  /// @throws usage_error   unknown agent, or a null address; nothing was enqueued
  void copy(std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    require_places(to, from, size);
    give(stream, operation::copying(to, from, size));
  }
  /// @throws usage_error   unknown agent, or a null address; nothing was enqueued
  void fill(std::byte* to, std::byte value, bytes size, agent stream)
  {
    require_places(to, to, size);
    give(stream, operation::filling(to, value, size));
  }

  /// Runs a callable on an agent. The callable must not throw, and has at most 128 bytes. @see inline_task
  /// @throws usage_error   unknown agent; nothing was enqueued
  template <class Callable>
  void launch(agent stream, Callable&& work)
  {
    give(stream, operation::launching(std::forward<Callable>(work)));
  }

  /// @throws usage_error   unknown agent
  [[nodiscard]] event record(agent stream) const
  {
    require_agent(stream, agents_);
    return {.value = given(stream), .source = stream};
  }

  /// Later work of `stream` starts after `point`. Blocks only where `stream` works on the calling thread.
  /// @throws usage_error   unknown agent, or the event was never recorded; nothing was enqueued
  void wait(agent stream, event point) { order(stream, point, 0); }
  /// The same; a wait that blocks is added to `waited`.
  /// @throws usage_error   as above
  void wait(agent stream, event point, wait_cause why)
  {
    order(stream, point, static_cast<std::uint8_t>(1 + static_cast<unsigned>(why)));
  }

  /// Waits with this cause that blocked the calling thread or a stream's thread; for `throttle`, the enqueues that
  /// blocked.
  [[nodiscard]] wait_total waited(wait_cause why) const noexcept { return totals_.of(why); }

  /// One more agent, a thread of its own.
  /// @throws usage_error    `max_agents` are in use
  /// @throws device_error   the system gives no more threads; nothing was changed
  agent adopt()
  {
    require_room_for_agent(agents_);
    require_own_process();
    const auto fresh = static_cast<agent>(agents_);
    start_worker(fresh);
    ++agents_;
    return fresh;
  }

  [[nodiscard]] std::size_t agents() const noexcept { return agents_; }

  /// Time since construction [ns].
  [[nodiscard]] std::uint64_t now() const noexcept
  {
    const auto passed = std::chrono::steady_clock::now() - start_;
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count());
  }

  [[nodiscard]] std::uint64_t throttled() const noexcept
  {
    std::uint64_t sum = 0;
    for (const auto& worker : *workers_) sum += worker ? worker->throttled() : 0;
    return sum;
  }

 private:
  void unmap(std::byte* place, bytes size) noexcept
  {
    if (*held_)
      kept_ += size.count();
    else
      ::munmap(place, size.count());
  }
  void start_worker(agent stream)
  {
    workers_[index_of(stream)] = std::make_unique<agent_worker>(stream, *progress_, totals_);
  }
  void require_own_process() const { workers_.expect_owner("a host_arena"); }

  /// @param why   as operation
  void order(agent stream, event point, std::uint8_t why)
  {
    require_agent(stream, agents_);
    require_agent(point.source, agents_);
    require_recorded(point, given(point.source));
    require_own_process();
    if (point.source == stream || point.value == 0) return;
    // Never skip a wait for a reached event: the counts, and with them later events, would depend on timing.
    if (workers_[index_of(stream)]) {
      workers_[index_of(stream)]->enqueue(operation::waiting(point, why));
    } else if (why == 0) {
      progress_[index_of(point.source)].wait_for(point.value);
    } else {
      progress_[index_of(point.source)].wait_for(point.value, static_cast<wait_cause>(why - 1), totals_);
    }
  }

  [[nodiscard]] std::uint64_t given(agent stream) const noexcept
  {
    const auto& worker = workers_[index_of(stream)];
    return worker ? worker->given() : progress_[index_of(stream)].count();
  }

  void give(agent stream, operation&& work)
  {
    require_agent(stream, agents_);
    require_own_process();
    if (workers_[index_of(stream)]) {
      workers_[index_of(stream)]->enqueue(std::move(work));
    } else {
      work.run();
      progress_[index_of(stream)].advance();
    }
  }

  tier_ledger ledger_;
  std::shared_ptr<std::atomic<bool>> held_ = std::make_shared<std::atomic<bool>>(false);
  std::uint64_t kept_ = 0;  ///< bytes that were released while memory was held
  std::chrono::steady_clock::time_point start_;
  std::size_t agents_ = built_in_agents;
  wait_totals totals_;  // before the workers, as the next one: they use both until they are joined
  process_owned<progress_table> progress_;
  process_owned<std::array<std::unique_ptr<agent_worker>, max_agents>> workers_;
};

static_assert(measuring_backend<host_arena>);

}  // namespace backend
}  // namespace chunkmem::inline v0
