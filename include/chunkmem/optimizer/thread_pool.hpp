// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/executor.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/own_process.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace chunkmem::inline v0 {

namespace optimizer {

/// An executor with threads of its own; the thread that calls `run` is one of them.
///
///     thread_pool workers{4};
///     step(m, adam, {.learning_rate = 1e-3F}, workers);
///
/// Parts are taken one by one, so that a slow thread takes fewer. Every thread works under a float_environment. Threads
/// without work look for more for some microseconds and then sleep. A `run` inside another one, or at the same time as
/// another thread's, runs all its parts on its own thread. So does a forked child, where the pool's threads do not
/// exist. Cost: about a microsecond for a run, tens where threads sleep; nothing is allocated after the constructor.
///
/// @threads   any thread may call `run`; work that throws ends the program
class thread_pool {
 public:
  /// @param threads   that work at once, the caller among them; at least 1
  /// @throws usage_error    for 0 threads
  /// @throws device_error   a thread cannot be started; started threads have ended
  explicit thread_pool(unsigned threads) : thread_pool{threads, &thread_pool::started} {}

  /// Starts threads by `start(function, argument)`, which makes a `std::thread`: for names, priorities and affinity.
  /// Its exceptions pass through, after the started threads have ended.
  template <class Start>
  thread_pool(unsigned threads, Start&& start)
  {
    expects(threads > 0, "a thread pool of 0 threads (the caller counts: ask for at least 1)");
    workers_->reserve(threads - 1);
    try {
      while (workers_->size() + 1 < threads) workers_->push_back(start(&thread_pool::serve, this));
    } catch (...) {
      stop();
      throw;
    }
  }

  ~thread_pool() { stop(); }
  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;

  [[nodiscard]] unsigned threads() const noexcept { return static_cast<unsigned>(workers_->size()) + 1; }

  /// Calls `work(part)` for each part below `parts`, in any order, and returns when all have ended.
  template <class Work>
  void run(unsigned parts, Work&& work) noexcept
  {
    const auto take = [&work](unsigned part) { work(part); };
    const job whole{[](const void* of, unsigned part) { (*static_cast<decltype(&take)>(of))(part); }, &take, parts};
    if (parts <= 1 || workers_->empty() || !workers_.is_owner() ||
        is_running_.exchange(true, std::memory_order_acquire)) {
      const float_environment standard;
      for (unsigned part = 0; part < parts; ++part) take(part);
      return;
    }
    share(whole);
    is_running_.store(false, std::memory_order_release);
  }

 private:
  struct job {
    void (*call)(const void* context, unsigned part) = nullptr;
    const void* context = nullptr;
    unsigned parts = 0;
  };

  [[nodiscard]] static std::thread started(void (*work)(thread_pool*) noexcept, thread_pool* pool)
  {
    try {
      return std::thread{work, pool};
    } catch (const std::system_error& refused) {
      throw device_error{error_text{} << "chunkmem: starting a thread of a pool failed: thread " << pool->threads()
                                      << ", system error " << static_cast<std::uint64_t>(refused.code().value())
                                      << " (raise the limit of threads, or make the pool smaller)"};
    }
  }

  static constexpr std::size_t line = 64;     // a cache line [B]
  static constexpr unsigned patience = 1000;  // polls before a thread sleeps

  static void pause() noexcept
  {
#if defined(__SSE2__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  }

  /// Returns when `value` is no longer `old`.
  static void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) noexcept
  {
    for (unsigned look = 0; look < patience; ++look) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause();
    }
    value.wait(old, std::memory_order_acquire);
  }

  void share(const job& whole) noexcept
  {
    job_ = whole;
    unfinished_.store(whole.parts, std::memory_order_relaxed);
    untaken_.store(whole.parts, std::memory_order_release);
    runs_.fetch_add(1, std::memory_order_release);
    runs_.notify_all();
    take_parts();
    for (std::uint32_t left = unfinished_.load(std::memory_order_acquire); left != 0;
         left = unfinished_.load(std::memory_order_acquire))
      wait_while(unfinished_, left);
  }

  /// Takes parts of the present run until none is left; there may be none at all.
  ///
  /// A thread with a part keeps the run from ending, and so the job from changing, until it reports the part as
  /// finished. A late thread takes no part, or a part of the next run.
  void take_parts() noexcept
  {
    const float_environment standard;
    std::uint32_t taken = 0;
    std::uint32_t left = untaken_.load(std::memory_order_acquire);
    while (left != 0) {
      if (!untaken_.compare_exchange_weak(left, left - 1, std::memory_order_acquire)) continue;
      job_.call(job_.context, job_.parts - left);
      ++taken;
      --left;
    }
    if (taken != 0 && unfinished_.fetch_sub(taken, std::memory_order_acq_rel) == taken) unfinished_.notify_one();
  }

  static void serve(thread_pool* pool) noexcept
  {
    std::uint32_t seen = 0;
    while (true) {
      wait_while(pool->runs_, seen);
      seen = pool->runs_.load(std::memory_order_acquire);
      if (pool->is_stopping_.load(std::memory_order_relaxed)) return;
      pool->take_parts();
    }
  }

  void stop() noexcept
  {
    if (!workers_.is_owner()) return;
    is_stopping_.store(true, std::memory_order_relaxed);
    runs_.fetch_add(1, std::memory_order_release);
    runs_.notify_all();
    for (std::thread& worker : *workers_) worker.join();
  }

  alignas(line) std::atomic<std::uint32_t> untaken_{0};     ///< parts that are not taken yet
  alignas(line) std::atomic<std::uint32_t> unfinished_{0};  ///< parts whose end is not yet reported
  alignas(line) std::atomic<std::uint32_t> runs_{0};        ///< changes with each run
  std::atomic<bool> is_running_{false};
  std::atomic<bool> is_stopping_{false};
  job job_;  ///< of the present run; changes only while every part is finished
  process_owned<std::vector<std::thread>> workers_;
};

static_assert(executor<thread_pool>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
