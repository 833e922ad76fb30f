// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cuda_api.hpp>
#include <support/fake_cuda_codes.hpp>
#include <support/fake_cuda_resources.hpp>
#include <support/fake_cuda_types.hpp>
#include <support/fake_gpu.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace support {

/// A CUDA runtime on threads: models `chunkmem::cuda_api`. Copies of it share one GPU.
///
/// It uses every freedom of the real runtime, and answers broken rules with the real error numbers. `faults()` lists
/// errors without a number (memory used after it was freed, copies that overlap, a host function that calls the
/// runtime). It can fail at every call and at every operation: see `fake_cuda_control`. Stricter than the real runtime:
/// copies of pageable memory do not block; there is no legacy stream; a fill needs device memory, and its stream's
/// device as the current one; a thread that captures may wait for nothing. Cost: a lock per call, and a wake-up where
/// its stream was idle; a thread starts with the first work. Under `fake_schedule::latest` calls that repeat allocate
/// nothing on the heap; under the other schedules only a queue that grows longer than ever before allocates.
///
/// @threads   any
class fake_cuda : public fake_cuda_resources {
 public:
  using graph_type = fake_graph_handle;
  using executable_type = fake_executable_handle;

  fake_cuda() : fake_cuda{fake_cuda_options{}} {}
  explicit fake_cuda(const fake_cuda_options& options) : fake_cuda{std::make_shared<fake_gpu>(options)} {}
  explicit fake_cuda(std::shared_ptr<fake_gpu> gpu) noexcept : fake_cuda_resources{std::move(gpu)} {}

  [[nodiscard]] static const char* name_of(int code) noexcept { return fake_name_of(code); }

  int last_error() const noexcept
  {
    return call(fake_call::last_error, [](fake_caller& caller) { return std::exchange(caller.last_error, 0); });
  }

  int copy(void* to, const void* from, std::size_t size, stream_type stream) const noexcept
  {
    const fake_range range{static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size};
    return enqueue(
        fake_call::copy, stream, fake_work::copy, size == 0, [&] { return check(range); },
        [&](fake_operation& it) { it.range = range; });
  }
  int copy_batch(void* const* to, const void* const* from, const std::size_t* sizes, std::size_t count,
                 stream_type stream) const noexcept
  {
    const auto range = [&](std::size_t i) {
      return fake_range{static_cast<std::byte*>(to[i]), static_cast<const std::byte*>(from[i]), sizes[i]};
    };
    const auto check_all = [&] {
      int code = count == 0 ? fake_code::invalid_value : fake_code::success;
      for (std::size_t i = 0; i < count && code == 0; ++i)
        code = sizes[i] == 0 ? fake_code::invalid_value : check(range(i));
      return code;
    };
    return enqueue(fake_call::copy_batch, stream, fake_work::batch, false, check_all, [&](fake_operation& it) {
      it.ranges.clear();
      for (std::size_t i = 0; i < count; ++i) it.ranges.push_back(range(i));
    });
  }
  int fill(void* to, int value, std::size_t size, stream_type stream) const noexcept
  {
    const auto check_place = [&](const fake_stream& on, const fake_caller& caller) {
      if (on.device != caller.device()) return fake_code::invalid_handle;
      if (!gpu_->memory.is_device(static_cast<std::byte*>(to))) return fake_code::invalid_value;
      return check_lifetime(to), fake_code::success;
    };
    return enqueue(fake_call::fill, stream, fake_work::fill, size == 0, check_place, [&](fake_operation& it) {
      it.range = {static_cast<std::byte*>(to), nullptr, size};
      it.value = value;
    });
  }
  int launch_host(stream_type stream, void (*work)(void*), void* argument) const noexcept
  {
    return enqueue(
        fake_call::launch_host, stream, fake_work::host, false,
        [&] { return work == nullptr ? fake_code::invalid_value : fake_code::success; },
        [&](fake_operation& it) {
          it.work = work;
          it.argument = argument;
        });
  }
  /// Launches a kernel, as `<<<>>>` does. No function of the Api, so not counted as a call; only `last_error()` reports
  /// a refused launch.
  void launch_kernel(stream_type stream, std::function<void()> kernel) const noexcept
  {
    enqueue(
        fake_call::launch_kernel, stream, fake_work::kernel, false,
        [](const fake_stream& on, const fake_caller& caller) {
          return on.device == caller.device() ? fake_code::success : fake_code::invalid_handle;
        },
        [&](fake_operation& it) { it.kernel = std::move(kernel); });
  }

  int synchronize_stream(stream_type stream) const noexcept
  {
    return call(fake_call::synchronize_stream, [&](fake_gpu::lock_type& lock) {
      fake_stream* const it = find(stream);
      if (it == nullptr) return fake_code::invalid_handle;
      if (breaks_capture(it)) return fake_code::capture_unsupported;
      return gpu_->wait_for(lock, it->now());
    });
  }
  int record_event(event_type event, stream_type stream) const noexcept
  {
    return call(fake_call::record_event, [&] {
      fake_stream* const from = find(stream);
      fake_event* const it = find(event, gpu_->events);
      if (from == nullptr || it == nullptr || from->device != it->device) return fake_code::invalid_handle;
      if (from->capture != nullptr) return fake_captures::record(*it, *from);
      it->capture.reset();
      it->nodes.clear();
      it->point = from->now();
      return fake_code::success;
    });
  }
  int wait_event(stream_type stream, event_type event) const noexcept
  {
    return call(fake_call::wait_event, [&] {
      fake_stream* const who = find(stream);
      const fake_event* const it = find(event, gpu_->events);
      if (who == nullptr || it == nullptr) return fake_code::invalid_handle;
      if (who->capture != nullptr || it->capture != nullptr) return fake_captures::wait(*who, *it);
      gpu_->let_wait(*who, it->point);
      return fake_code::success;
    });
  }
  int synchronize_event(event_type event) const noexcept
  {
    return call(fake_call::synchronize_event, [&](fake_gpu::lock_type& lock) {
      const fake_event* const it = find(event, gpu_->events);
      if (it == nullptr) return fake_code::invalid_handle;
      if (it->capture != nullptr) {
        it->capture->is_broken = true;
        return fake_code::captured_event;
      }
      if (breaks_capture(nullptr)) return fake_code::capture_unsupported;
      return gpu_->wait_for(lock, it->point);
    });
  }
  int query_event(event_type event, bool& is_over) const noexcept
  {
    return call(fake_call::query_event, [&] {
      const fake_event* const it = find(event, gpu_->events);
      if (it == nullptr) return fake_code::invalid_handle;
      if (breaks_capture(nullptr)) return fake_code::capture_unsupported;
      is_over = gpu_->is_reached(it->point);
      return fake_code::success;
    });
  }

  int begin_capture(stream_type stream) const noexcept
  {
    return call(fake_call::begin_capture, [&] {
      fake_stream* const it = find(stream);
      return it == nullptr ? fake_code::invalid_handle : gpu_->captures.begin(*it);
    });
  }
  /// @param graph   none where the capture broke a rule
  int end_capture(stream_type stream, graph_type& graph) const noexcept
  {
    return call(fake_call::end_capture, [&] {
      fake_stream* const it = find(stream);
      if (it == nullptr) return fake_code::invalid_handle;
      std::vector<fake_node> nodes;
      const int code = gpu_->captures.end(*it, nodes);
      graph = {};
      if (code != fake_code::success) return code;
      gpu_->graphs.push_back({.nodes = std::move(nodes)});
      graph = {gpu_.get(), gpu_->graphs.size()};
      return code;
    });
  }
  int instantiate(executable_type& executable, graph_type graph) const noexcept
  {
    return call(fake_call::instantiate, [&] {
      const fake_graph* const it = find(graph, gpu_->graphs);
      if (it == nullptr) return fake_code::invalid_handle;
      gpu_->executables.push_back(std::make_shared<fake_executable>(it->nodes));
      executable = {gpu_.get(), gpu_->executables.size()};
      return fake_code::success;
    });
  }
  int destroy_graph(graph_type graph) const noexcept
  {
    return call(fake_call::destroy_graph, [&] {
      fake_graph* const it = find(graph, gpu_->graphs);
      if (it == nullptr) return fake_code::invalid_handle;
      *it = {.exists = false, .nodes = {}};
      return fake_code::success;
    });
  }
  int destroy_executable(executable_type executable) const noexcept
  {
    return call(fake_call::destroy_executable, [&] {
      if (find(executable) == nullptr) return fake_code::invalid_handle;
      gpu_->executables[executable.number - 1].reset();  // queued launches keep it
      return fake_code::success;
    });
  }
  int launch_graph(executable_type executable, stream_type stream) const noexcept
  {
    return call(fake_call::launch_graph, [&] {
      fake_stream* const on = find(stream);
      const auto it = find(executable);
      if (on == nullptr || it == nullptr) return fake_code::invalid_handle;
      if (on->capture != nullptr) {
        on->capture->is_broken = true;
        return fake_code::capture_unsupported;
      }
      gpu_->let_wait(*on, it->last);  // launches of one graph run one after the other
      gpu_->push(*on, fake_work::graph).executable = it;
      gpu_->start(*on);
      it->last = on->now();
      return fake_code::success;
    });
  }

 private:
  using fake_cuda_resources::find;

  [[nodiscard]] std::shared_ptr<fake_executable> find(executable_type handle) const noexcept
  {
    return handle.owner == gpu_.get() && handle.number != 0 ? gpu_->executables[handle.number - 1] : nullptr;
  }

  /// Enqueues one operation on a stream, or adds one node to its capture. `check` returns the code of an error.
  template <class Check, class Describe>
  int enqueue(fake_call which, stream_type stream, fake_work kind, bool is_nothing, const Check& check,
              const Describe& describe) const noexcept
  {
    return gpu_->call(which, [&](fake_gpu::lock_type&, const fake_caller& caller) -> int {
      fake_stream* const on = find(stream);
      if (on == nullptr) return fake_code::invalid_handle;
      if (is_nothing) return fake_code::success;
      int code = 0;
      if constexpr (std::is_invocable_v<const Check&>)
        code = check();
      else
        code = check(*on, caller);
      if (code != fake_code::success) return code;
      fake_operation* const it = on->capture != nullptr ? fake_captures::append(*on, kind) : &gpu_->push(*on, kind);
      if (it == nullptr) return fake_code::capture_invalidated;
      describe(*it);
      if (on->capture == nullptr) gpu_->start(*on);
      return fake_code::success;
    });
  }

  [[nodiscard]] int check(const fake_range& range) const
  {
    if (range.to == nullptr || range.from == nullptr) return fake_code::invalid_value;
    check_lifetime(range.to);
    check_lifetime(range.from);
    const auto& memory = gpu_->memory;
    if (memory.is_pageable(range.to) || memory.is_pageable(range.from)) ++gpu_->calls.pageable;
    return fake_code::success;
  }

  void check_lifetime(const void* place) const
  {
    if (gpu_->memory.is_given_back(static_cast<const std::byte*>(place)))
      gpu_->note("freed memory", "is named by new work");
  }
};

/// The same with only the stream, as in a launcher.
inline void launch_kernel(fake_stream_handle stream, std::function<void()> kernel)
{
  if (stream.owner == nullptr) throw std::invalid_argument{"a kernel was launched on no stream"};
  fake_cuda{stream.owner->shared_from_this()}.launch_kernel(stream, std::move(kernel));
}

static_assert(chunkmem::cuda_api<fake_cuda>);

}  // namespace support
