// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/fake_cuda_types.hpp>
#include <support/fake_cuda_work.hpp>
#include <support/fake_gpu_state.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

namespace support {

/// A GPU made of threads: one for each stream, which runs its work in order.
///
/// A copy or a fill poisons its destination with NaN bytes when it starts, and writes it a moment later. After a sticky
/// fault nothing starts any more, and a caller that learns of it can rely on no further writes. One lock guards
/// everything but the bytes themselves and the callables. The destructor finishes queued work. A callable must not keep
/// the last handle of the GPU.
///
/// @threads   any, with the lock where a function takes one
class fake_gpu : public fake_gpu_state, public std::enable_shared_from_this<fake_gpu> {
 public:
  using fake_gpu_state::fake_gpu_state;
  fake_gpu(const fake_gpu&) = delete;
  fake_gpu& operator=(const fake_gpu&) = delete;
  ~fake_gpu()
  {
    {
      const lock_type lock{mutex};
      for (const auto& it : streams) retire(*it);
    }
    for (const auto& it : streams)
      if (it->worker.joinable()) it->worker.join();
  }

  /// One call of the runtime: counts it, applies planned failures, and keeps the error for last_error.
  /// `body(lock, caller)` gives the code; it may wait.
  template <class Body>
  int call(fake_call which, Body&& body)
  {
    lock_type lock{mutex};
    const bool is_own = is_worker();
    const int device = is_own ? 0 : calls.caller().device();
    const auto before = calls.losses();
    int code = calls.admit(which, options.devices, device);
    if (before != calls.losses()) wake_all();
    if (is_own) {
      note("a host function or a kernel calls", name_of(which));
      return fake_code::not_permitted;
    }
    fake_caller& caller = calls.caller();
    if (code == fake_code::success && needs_context(which)) {
      if (!make_context(caller.device())) code = fake_code::memory;
      if (caller.contexts.empty()) caller.contexts.push_back(0);
    }
    if (code == fake_code::success) {
      code = body(lock, caller);
      if (code == fake_code::success) code = calls.code_after(which);
    } else if (which == fake_call::pop_context && code == calls.sticky(device)) {
      (void)body(lock, caller);  // the error is that of earlier work, and the pop succeeds
    }
    if (code != fake_code::success && which != fake_call::last_error) caller.last_error = code;
    if (calls.tell(which, code)) wait_until(lock, [this] { return writing_ == 0; });  // nothing is written any more
    return code;
  }

  /// Adds an operation at the end of a stream; call `start` when it is filled in.
  fake_operation& push(fake_stream& stream, fake_work kind)
  {
    fake_operation& slot = stream.queue.push(kind);
    ++stream.given;
    return slot;
  }

  /// Notifies the stream's thread of new work; the first work starts the thread.
  void start(fake_stream& stream)
  {
    if (stream.worker.joinable()) return stream.arrived.notify_one();
    stream.worker = std::thread{[this, &stream] { drain(stream); }};
    stream.thread = stream.worker.get_id();
  }

  /// Waits for a point, or for the loss of the device. @return   the code of the loss, or 0
  int wait_for(lock_type& lock, fake_point point)
  {
    if (point.stream == nullptr) return fake_code::success;
    const int device = point.stream->device;
    demand(point);
    wait_until(lock, [&] { return point.stream->done >= point.position || calls.sticky(device) != 0; });
    return calls.sticky(device);
  }

  /// Whether a point is reached. A caller that asks waits for the point sooner or later, so lazy work begins.
  bool is_reached(fake_point point)
  {
    if (point.stream == nullptr) return true;
    demand(point);
    return point.stream->done >= point.position;
  }

  /// Waits until all enqueued work is done, or dropped where the device is lost. @return   the code of the loss, or 0
  int wait_for_all(lock_type& lock)
  {
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const fake_point point = streams[i]->now();
      demand(point);
      wait_until(lock, [&] { return point.stream->done >= point.position; });
    }
    return calls.sticky();
  }

  /// No more work follows; queued work is still done, and then the thread ends.
  void retire(fake_stream& stream)
  {
    stream.exists = false;
    demand(stream.now());
    stream.arrived.notify_one();
  }

  /// The number of one more stream.
  std::uint64_t add_stream(int device)
  {
    for (const auto& it : streams)  // threads of destroyed streams that have ended
      if (it->worker.joinable() && it->thread == std::thread::id{}) it->worker.join();
    streams.push_back(std::make_unique<fake_stream>(streams.size() + 1, device, options.seed));
    return streams.size();
  }

  /// Later work of a stream starts after a point of another.
  void let_wait(fake_stream& stream, fake_point point)
  {
    if (point.stream == nullptr || point.stream == &stream || point.stream->done >= point.position) return;
    push(stream, fake_work::wait).point = point;
    start(stream);
  }

 private:
  /// As strict as possible: every call that creates, destroys, orders or queries an object needs a context of the
  /// thread's device, whichever stream or event it names.
  [[nodiscard]] static bool needs_context(fake_call which) noexcept
  {
    switch (which) {
      case fake_call::count_devices:
      case fake_call::current_device:
      case fake_call::use_device:
      case fake_call::open_context:
      case fake_call::push_context:
      case fake_call::pop_context:
      case fake_call::last_error: return false;
      default: return true;
    }
  }

  [[nodiscard]] bool is_worker() const
  {
    const auto self = std::this_thread::get_id();
    return std::ranges::any_of(streams, [self](const auto& it) { return it->thread == self; });
  }

  void wake_all()
  {
    for (const auto& it : streams) it->arrived.notify_one();
    moved_.notify_all();
  }

  template <class Reached>
  void wait_until(lock_type& lock, const Reached& reached)
  {
    ++waiting_;
    moved_.wait(lock, reached);
    --waiting_;
  }

  /// Lets a stream run up to this point, and all streams that it waits for.
  void demand(fake_point point)
  {
    fake_stream& stream = *point.stream;
    if (options.when != fake_schedule::latest || stream.demanded >= point.position) return;
    std::uint64_t position = stream.done;
    const std::uint64_t known = std::exchange(stream.demanded, point.position);
    for (const fake_operation* it = stream.queue.first(); it != nullptr && position < point.position; it = it->next)
      if (++position > known && it->kind == fake_work::wait) demand(it->point);
    stream.arrived.notify_one();
  }

  [[nodiscard]] bool may_run(const fake_stream& stream) const
  {
    return stream.queue.first() != nullptr &&
           (options.when != fake_schedule::latest || calls.sticky(stream.device) != 0 || stream.done < stream.demanded);
  }

  /// The main loop of a stream's thread.
  void drain(fake_stream& stream)
  {
    lock_type lock{mutex};
    for (;;) {
      stream.arrived.wait(lock, [&] { return may_run(stream) || (!stream.exists && stream.done == stream.given); });
      if (stream.queue.first() == nullptr) break;
      fake_operation& work = *stream.queue.first();
      if (calls.sticky(stream.device) == 0) run(lock, stream, work);
      if (work.kernel || work.executable != nullptr) let_go(lock, work);
      stream.queue.pop();
      ++stream.done;
      if (waiting_ > 0) moved_.notify_all();
    }
    stream.thread = {};  // another thread may get this id
  }

  /// The captures of a callable may do anything in their destructors, so the lock is released.
  static void let_go(lock_type& lock, fake_operation& work)
  {
    lock.unlock();
    work.kernel = nullptr;
    work.executable.reset();
    lock.lock();
  }

  void run(lock_type& lock, fake_stream& stream, fake_operation& work)
  {
    if (work.is_counted() && !calls.admit_operation(stream.device)) return wake_all();
    switch (work.kind) {
      case fake_work::copy: return write(lock, stream, work.range, 0);
      case fake_work::fill: return write(lock, stream, work.range, work.value);
      case fake_work::batch: return run_batch(lock, stream, work);
      case fake_work::graph: return run_graph(lock, stream, *work.executable);
      case fake_work::come_to_life: return memory.bring_to_life(work.range.to);
      case fake_work::bury: return memory.bury(work.range.to);
      case fake_work::wait:
        return wait_until(
            lock, [&] { return work.point.stream->done >= work.point.position || calls.sticky(stream.device) != 0; });
      case fake_work::host:
      case fake_work::kernel:
        lock.unlock();
        delay(stream);
        work.kind == fake_work::host ? work.work(work.argument) : work.kernel();
        lock.lock();
    }
  }

  /// A copy, or a fill where it has no source.
  void write(lock_type& lock, fake_stream& stream, const fake_range& range, int value)
  {
    const auto [to, from, size] = range;
    if (!may_touch(to, size)) return;
    const bool is_good = from == nullptr || (may_touch(from, size) && !overlap(range));
    ++writing_;
    lock.unlock();
    delay(stream);
    std::memset(to, std::to_integer<int>(fake_memory::poison), size);
    if (half_way) half_way(range);
    delay(stream);
    if (is_good && from != nullptr) std::memcpy(to, from, size);
    if (is_good && from == nullptr) std::memset(to, value, size);
    lock.lock();
    --writing_;
    may_touch(to, size);  // it may have been freed meanwhile
    if (is_good && from != nullptr) may_touch(from, size);
  }

  void run_batch(lock_type& lock, fake_stream& stream, fake_operation& work)
  {
    for (std::size_t left = work.ranges.size(); left > 0; --left) {  // in any order
      std::swap(work.ranges[stream.random.below(left)], work.ranges[left - 1]);
      write(lock, stream, work.ranges[left - 1], 0);
    }
  }

  /// Runs nodes in an order that their dependencies allow, chosen at random for each launch.
  void run_graph(lock_type& lock, fake_stream& stream, fake_executable& graph)
  {
    graph.ready.clear();
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      graph.missing[i] = graph.nodes[i].after.size();
      if (graph.missing[i] == 0) graph.ready.push_back(i);
    }
    while (!graph.ready.empty() && calls.sticky(stream.device) == 0) {
      std::swap(graph.ready[stream.random.below(graph.ready.size())], graph.ready.back());
      const std::size_t node = graph.ready.back();
      graph.ready.pop_back();
      run(lock, stream, graph.nodes[node].work);
      for (const std::size_t later : graph.before[node])
        if (--graph.missing[later] == 0) graph.ready.push_back(later);
    }
  }

  void delay(fake_stream& stream)
  {
    if (options.when != fake_schedule::random || options.longest_delay == 0 || stream.random.below(2) == 0) return;
    for (auto left = stream.random.below(options.longest_delay) + 1; left > 0; --left) std::this_thread::yield();
  }

  std::condition_variable moved_;
  int waiting_ = 0;
  int writing_ = 0;
};

}  // namespace support
