// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

namespace chunkmem::inline v0 {
namespace backend {

/// A callable without arguments, kept inline: queueing it never touches the heap.
///
///     inline_task task{[=] { std::memset(to, 0, count); }};
///     task();
///
/// The callable must not throw: it stands for a kernel, whose exception nobody could catch. An exception ends the
/// program. Cost: one indirect call to run, one to move.
///
/// @threads   moves between threads like any value; never shared
class inline_task {
 public:
  static constexpr std::size_t room = 128;

  inline_task() = default;

  template <class Callable>
    requires(!std::is_same_v<std::remove_cvref_t<Callable>, inline_task>)
  explicit inline_task(Callable&& work) noexcept(std::is_nothrow_constructible_v<std::decay_t<Callable>, Callable>)
  {
    using kept = std::decay_t<Callable>;
    static_assert(std::is_invocable_v<kept&>,
                  "chunkmem: a launched callable takes no arguments: capture what it needs");
    static_assert(sizeof(kept) <= room,
                  "chunkmem: a launched callable keeps more than 128 bytes: capture a pointer to its data instead");
    static_assert(alignof(kept) <= alignof(std::max_align_t),
                  "chunkmem: a launched callable is over-aligned: capture a pointer to its data instead");
    static_assert(std::is_nothrow_move_constructible_v<kept>,
                  "chunkmem: a launched callable may throw when moved: capture by pointer, or make its move noexcept");
    ::new (static_cast<void*>(storage_)) kept(std::forward<Callable>(work));
    actions_ = &actions_for<kept>;
  }

  inline_task(inline_task&& other) noexcept { take(other); }
  inline_task& operator=(inline_task&& other) noexcept
  {
    if (this == &other) return *this;
    reset();
    take(other);
    return *this;
  }
  ~inline_task() { reset(); }

  [[nodiscard]] explicit operator bool() const noexcept { return actions_ != nullptr; }

  /// Runs the callable, if there is one.
  void operator()() noexcept
  {
    if (actions_ != nullptr) actions_->run(storage_);
  }

  /// Destroys the callable, so that its captures are released now and not when the slot of the queue is used again.
  void reset() noexcept
  {
    if (actions_ != nullptr) std::exchange(actions_, nullptr)->destroy(storage_);
  }

 private:
  struct actions {
    void (*run)(void*) noexcept;
    void (*relocate)(void* to, void* from) noexcept;
    void (*destroy)(void*) noexcept;
  };

  template <class Kept>
  static constexpr actions actions_for = {
      [](void* place) noexcept { (*static_cast<Kept*>(place))(); },
      [](void* to, void* from) noexcept {
        ::new (to) Kept(std::move(*static_cast<Kept*>(from)));
        std::destroy_at(static_cast<Kept*>(from));
      },
      [](void* place) noexcept { std::destroy_at(static_cast<Kept*>(place)); },
  };

  void take(inline_task& other) noexcept
  {
    actions_ = std::exchange(other.actions_, nullptr);
    if (actions_ != nullptr) actions_->relocate(storage_, other.storage_);
  }

  const actions* actions_ = nullptr;
  alignas(std::max_align_t) std::byte storage_[room];
};

/// The kinds of queued operations. The set is closed: each worker loop and each test schedule handles every kind.
enum class operation_kind : std::uint8_t {
  marker,  ///< only a place in the queue; an unused slot holds a marker
  copy,
  fill,
  wait,
  launch,
};

/// One operation that an agent was given.
///
///     copies.enqueue(operation::copying(to, from, size));
///
/// Cost: 208 bytes in a queue; no heap.
struct operation {
  operation_kind kind = operation_kind::marker;
  std::byte value{};                ///< fill: the byte to write
  std::byte* to = nullptr;          ///< copy, fill
  const std::byte* from = nullptr;  ///< copy
  bytes size;                       ///< copy, fill
  event point;                      ///< wait: the event to wait for
  std::uint8_t why = 0;             ///< wait: 1 + its cause, or 0 where the wait is not counted
  inline_task task;                 ///< launch

  [[nodiscard]] static operation copying(std::byte* to, const std::byte* from, bytes size) noexcept
  {
    return {.kind = operation_kind::copy, .to = to, .from = from, .size = size, .point = {}, .task = {}};
  }
  [[nodiscard]] static operation filling(std::byte* to, std::byte value, bytes size) noexcept
  {
    return {.kind = operation_kind::fill, .value = value, .to = to, .size = size, .point = {}, .task = {}};
  }
  [[nodiscard]] static operation waiting(event point, std::uint8_t why = 0) noexcept
  {
    return {.kind = operation_kind::wait, .size = {}, .point = point, .why = why, .task = {}};
  }
  template <class Callable>
  [[nodiscard]] static operation launching(Callable&& work)
  {
    return {.kind = operation_kind::launch, .size = {}, .point = {}, .task = inline_task{std::forward<Callable>(work)}};
  }

  /// Moves the bytes or calls the callable. The queue does the waits: they do nothing here.
  void run() noexcept
  {
    if (kind == operation_kind::launch) task();
    if (size == bytes{}) return;  // null with size 0 is allowed here, not by memmove
    if (kind == operation_kind::copy) std::memmove(to, from, size.count());
    if (kind == operation_kind::fill) std::memset(to, std::to_integer<int>(value), size.count());
  }
};

static_assert(std::is_nothrow_move_constructible_v<operation> && std::is_nothrow_move_assignable_v<operation>);

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

/// The progress of one agent: the number of operations it finished. An event of value v is reached at v.
///
///     progress done;
///     std::jthread agent{[&] { done.advance(); }};
///     done.wait_for(1);  // sleeps until the agent has finished its first operation
///
/// Sleeps on a condition variable and never spins: on two cores a spinning waiter takes time from the thread it waits
/// for. Cost: one load where the value is reached; else one sleep. No allocation.
///
/// @threads   any
class progress {
 public:
  [[nodiscard]] std::uint64_t count() const noexcept { return count_.load(std::memory_order_acquire); }
  [[nodiscard]] bool reached(std::uint64_t value) const noexcept { return count() >= value; }

  void advance() noexcept
  {
    {
      const std::lock_guard lock{mutex_};  // without it a waiter could test, miss this step, and then sleep for ever
      count_.fetch_add(1, std::memory_order_release);
    }
    moved_.notify_all();
  }

  void wait_for(std::uint64_t value) const
  {
    if (reached(value)) return;
    std::unique_lock lock{mutex_};
    moved_.wait(lock, [&] { return reached(value); });
  }
  /// The same; a wait that blocks is added to the totals.
  void wait_for(std::uint64_t value, wait_cause why, wait_totals& totals) const
  {
    if (reached(value)) return;
    const auto begin = std::chrono::steady_clock::now();
    wait_for(value);
    const auto passed = std::chrono::steady_clock::now() - begin;
    totals.add(why, static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count()));
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable moved_;
  std::atomic<std::uint64_t> count_{0};
};

/// The progress of every agent of a backend. Outlives the workers, so that one may wait for another that has ended.
using progress_table = std::array<progress, max_agents>;

/// One thread that executes its operations in order.
///
///     agent_worker copies{agent::to_device, table, totals};
///     copies.enqueue(std::move(work));
///     table[index_of(agent::to_device)].wait_for(copies.given());
///
/// A ring of 256 operations; an enqueue that finds it full waits for the oldest, and is counted. A wait names only
/// earlier operations, so a full ring always empties. Good for copies of chunks; poor for work of less than a few
/// microseconds, which is the cost of a wake-up.
/// Cost: one uncontended lock per operation on each side; no allocation after construction.
/// A forked child has no such thread, and may not destroy the worker there: keep it in a process_owned.
///
/// @threads   `enqueue`, `given` and `stop` one caller at a time; the rest any
class agent_worker {
 public:
  static constexpr std::size_t queue_length = 256;

  /// @param self     the agent of this worker
  /// @param table    the progress of all agents; outlives the worker
  /// @param totals   of the waits that blocked; outlives the worker
  /// @throws device_error   the system gives no more threads
  agent_worker(agent self, progress_table& table, wait_totals& totals)
      : table_{&table}, own_{&table[index_of(self)]}, totals_{&totals}
  {
    try {
      thread_ = std::thread{[this] { drain(); }};
    } catch (const std::system_error& refused) {
      throw device_error{error_text{} << "chunkmem: starting a worker thread failed: agent " << index_of(self)
                                      << ", system error " << static_cast<std::uint64_t>(refused.code().value())
                                      << " (raise the limit of threads, or adopt fewer agents)"};
    }
  }
  agent_worker(const agent_worker&) = delete;
  agent_worker& operator=(const agent_worker&) = delete;
  ~agent_worker() { stop(); }

  /// Gives the thread one more operation; waits where 256 are queued.
  void enqueue(operation&& work)
  {
    if (given_ - own_->count() >= queue_length) {
      throttled_.fetch_add(1, std::memory_order_relaxed);
      own_->wait_for(given_ - queue_length + 1, wait_cause::throttle, *totals_);
    }
    ring_[given_ % queue_length] = std::move(work);
    {
      const std::lock_guard lock{mutex_};
      ++given_;
    }
    arrived_.notify_one();
  }

  /// The number of operations that the worker was given: the value of an event recorded now.
  [[nodiscard]] std::uint64_t given() const noexcept { return given_; }

  /// How often `enqueue` had to wait.
  [[nodiscard]] std::uint64_t throttled() const noexcept { return throttled_.load(std::memory_order_relaxed); }

  /// Finishes the queued operations and ends the thread. No operation may be enqueued afterwards.
  void stop() noexcept
  {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock{mutex_};
      stopping_ = true;
    }
    arrived_.notify_one();
    thread_.join();
  }

 private:
  void drain() noexcept
  {
    for (std::uint64_t next = 0; await(next); ++next) {
      operation& work = ring_[next % queue_length];
      if (work.kind == operation_kind::wait) wait_for(work);
      work.run();
      work.task.reset();  // before the count: afterwards the slot belongs to the caller again
      own_->advance();
    }
  }

  void wait_for(const operation& work) const
  {
    const progress& source = (*table_)[index_of(work.point.source)];
    if (work.why == 0)
      source.wait_for(work.point.value);
    else
      source.wait_for(work.point.value, static_cast<wait_cause>(work.why - 1), *totals_);
  }

  /// False when the queue is empty and the worker is stopping.
  bool await(std::uint64_t next)
  {
    std::unique_lock lock{mutex_};
    arrived_.wait(lock, [&] { return given_ > next || stopping_; });
    return given_ > next;
  }

  progress_table* table_;
  progress* own_;
  wait_totals* totals_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::uint64_t given_ = 0;  // written by the caller under the lock, so the caller itself may read it without
  bool stopping_ = false;
  std::atomic<std::uint64_t> throttled_{0};
  std::array<operation, queue_length> ring_;
  std::thread thread_;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
