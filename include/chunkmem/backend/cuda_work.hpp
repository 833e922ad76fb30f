// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/agent_worker.hpp>
#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/backend/cuda_memory.hpp>
#include <chunkmem/backend/cuda_session.hpp>
#include <chunkmem/backend/cuda_streams.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {
namespace backend {

/// One of the copies that `copy_batch` makes.
///
///     const copy_range copies[] = {{to, from, size}, {to + size.count(), from, size}};
///     memory.copy_batch(copies, agent::to_device);
struct copy_range {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  bytes size;
};

/// The work of agents of a CUDA backend: copies, fills, launches.
///
///     cuda_work<Api> work{session, memory, streams, 0};
///     work.copy(std::array{copy_range{to, from, size}}, agent::to_device);
///     work.launch(agent::compute, [=](typename Api::stream_type on) { my_kernel(on); });
///
/// Cost: one call of the runtime for each copy and fill; a launch asks for errors before and after. No allocation.
/// @throws usage_error    unknown agent, null address, or work that cannot be captured in a capture; nothing was
///   enqueued
/// @throws device_error   nothing was enqueued, unless said otherwise
/// @threads   one caller at a time
template <cuda_api Api>
class cuda_work {
 public:
  using stream_type = typename Api::stream_type;

  cuda_work(cuda_session<Api>& session, cuda_memory<Api>& memory, cuda_streams<Api>& streams, int ordinal) noexcept
      : session_{&session}, memory_{&memory}, streams_{&streams}, device_{ordinal}
  {
  }

  /// @see cuda_device::copy_batch
  void copy(std::span<const copy_range> copies, agent stream)
  {
    require(stream, "a copy of the calling thread");
    for (const copy_range& it : copies) require_places(it.to, it.from, it.size);
    if (stream != agent::host) return enqueue_copies(copies, stream);
    try {
      enqueue_copies(copies, stream);
    } catch (...) {
      if (own_is_busy_) (void)streams_->finish_own();  // the caller may now free the memory that it named
      own_is_busy_ = false;
      throw;
    }
    finish_own();
  }

  void fill(std::byte* to, std::byte value, bytes size, agent stream)
  {
    require(stream, "a fill of the calling thread");
    require_places(to, to, size);
    if (size == bytes{}) return;
    const int pattern = std::to_integer<int>(value);
    const std::size_t count = size.count();
    if (stream == agent::host && !memory_->holds(tier::device, to, size)) {
      std::memset(to, pattern, count);
    } else if (stream != agent::host && memory_->holds(tier::host, to, size)) {
      streams_->require_no_capture("a fill of host memory");  // the runtime promises to fill memory of a device only
      streams_->enqueue(stream, inline_task{[to, pattern, count] { std::memset(to, pattern, count); }});
    } else {
      const cuda_current_device<Api> current{*session_, device_};
      const stream_type on_stream = streams_->stream(stream);
      session_->require("cudaMemsetAsync", [&](const Api& api) { return api.fill(to, pattern, count, on_stream); });
      own_is_busy_ = own_is_busy_ || stream == agent::host;
      if (stream == agent::host) finish_own();
    }
  }

  /// `work(stream)` now, or `work()` in the stream's order on a thread of the runtime.
  template <class Callable>
  void launch(agent stream, Callable&& work)
  {
    require(stream, "a launch of the calling thread");
    if constexpr (std::invocable<Callable&, stream_type>) {
      enqueue_kernels(stream, work);
    } else {
      streams_->require_no_capture("a callable that runs on the host");
      inline_task task{std::forward<Callable>(work)};
      if (stream == agent::host)
        task();
      else
        streams_->enqueue(stream, std::move(task));
    }
  }

 private:
  struct batch {
    static constexpr std::size_t room = 64;
    void* to[room];
    const void* from[room];
    std::size_t sizes[room];
    std::size_t count = 0;

    void add(const copy_range& it) noexcept
    {
      to[count] = it.to;
      from[count] = it.from;
      sizes[count++] = it.size.count();
    }
  };

  void require(agent stream, std::string_view what_of_the_host) const
  {
    require_agent(stream, streams_->agents());
    session_->require_alive();
    if (stream == agent::host) streams_->require_no_capture(what_of_the_host);
  }

  /// The calling thread copies memory of the host tier; other memory may be a device's.
  [[nodiscard]] bool copied_by_caller(const copy_range& it) const noexcept
  {
    if (!memory_->holds(tier::host, it.to, it.size) || !memory_->holds(tier::host, it.from, it.size)) return false;
    std::memmove(it.to, it.from, it.size.count());
    return true;
  }

  void enqueue_copies(std::span<const copy_range> copies, agent stream)
  {
    batch waiting;
    for (const copy_range& it : copies) {
      if (it.size == bytes{} || (stream == agent::host && copied_by_caller(it))) continue;
      waiting.add(it);
      if (waiting.count == batch::room) give(waiting, stream);
    }
    give(waiting, stream);
  }

  /// The runtime captures no batches: it refuses them, and the graph would go on without.
  void give(batch& waiting, agent stream)
  {
    const std::size_t count = std::exchange(waiting.count, 0);
    if (count == 0) return;
    const stream_type on_stream = streams_->stream(stream);
    own_is_busy_ = own_is_busy_ || stream == agent::host;
    if (count > 1 && !streams_->is_capturing()) {
      session_->require("cudaMemcpyBatchAsync", [&](const Api& api) {
        return api.copy_batch(waiting.to, waiting.from, waiting.sizes, count, on_stream);
      });
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      session_->require("cudaMemcpyAsync", [&](const Api& api) {
        return api.copy(waiting.to[i], waiting.from[i], waiting.sizes[i], on_stream);
      });
    }
  }

  /// An earlier error is dropped first: if it were taken for ours, the caller would enqueue the kernel a second time.
  template <class Callable>
  void enqueue_kernels(agent stream, Callable& work)
  {
    const cuda_current_device<Api> current{*session_, device_};
    session_->forget_error();
    own_is_busy_ = own_is_busy_ || stream == agent::host;
    work(streams_->stream(stream));
    session_->require("kernel launch", [](const Api& api) { return api.last_error(); });
    if (stream == agent::host) finish_own();
  }

  /// Waits for the work that the calling thread gave to its own stream.
  void finish_own()
  {
    if (!std::exchange(own_is_busy_, false)) return;
    if (!streams_->finish_own()) session_->raise();
  }

  cuda_session<Api>* session_;
  cuda_memory<Api>* memory_;
  cuda_streams<Api>* streams_;
  int device_;
  bool own_is_busy_ = false;
};

}  // namespace backend
}  // namespace chunkmem::inline v0
