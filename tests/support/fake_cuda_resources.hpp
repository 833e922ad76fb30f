// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/fake_cuda_codes.hpp>
#include <support/fake_cuda_control.hpp>
#include <support/fake_cuda_types.hpp>
#include <support/fake_gpu.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace support {

/// The part of the fake runtime that creates and destroys: devices, memory, streams, events.
///
/// @threads   any
class fake_cuda_resources : public fake_cuda_control {
 public:
  using stream_type = fake_stream_handle;
  using event_type = fake_event_handle;
  using pool_type = fake_pool_handle;
  using context_type = fake_context_handle;

  int count_devices(int& count) const noexcept
  {
    return call(fake_call::count_devices, [&] {
      count = gpu_->options.devices;
      return fake_code::success;
    });
  }
  int current_device(int& device) const noexcept
  {
    return call(fake_call::current_device, [&](fake_caller& caller) {
      device = caller.device();
      return fake_code::success;
    });
  }
  /// The user's cudaSetDevice; no function of the Api. It makes the device's context at once.
  int use_device(int device) const noexcept
  {
    return call(fake_call::use_device, [&](fake_caller& caller) {
      if (!has(device)) return fake_code::invalid_device;
      if (!gpu_->make_context(device)) return fake_code::memory;
      gpu_->switches += caller.device() != device ? 1U : 0U;
      if (caller.contexts.empty()) caller.contexts.push_back(device);
      caller.contexts.back() = device;
      return fake_code::success;
    });
  }
  int open_context(context_type& context, int device) const noexcept
  {
    return call(fake_call::open_context, [&] {
      if (!has(device)) return fake_code::invalid_device;
      if (!gpu_->make_context(device)) return fake_code::memory;
      context = {gpu_.get(), static_cast<std::uint64_t>(device) + 1};
      return fake_code::success;
    });
  }
  int push_context(context_type context) const noexcept
  {
    return call(fake_call::push_context, [&](fake_caller& caller) {
      if (context.owner != gpu_.get() || context.number == 0) return fake_code::invalid_context;
      const int device = static_cast<int>(context.number) - 1;
      gpu_->switches += caller.device() != device ? 1U : 0U;
      caller.contexts.push_back(device);
      return fake_code::success;
    });
  }
  int pop_context(context_type) const noexcept
  {
    return call(fake_call::pop_context, [&](fake_caller& caller) {
      if (caller.contexts.empty()) return fake_code::invalid_context;
      const int device = caller.device();
      caller.contexts.pop_back();
      gpu_->switches += caller.device() != device ? 1U : 0U;
      return fake_code::success;
    });
  }
  int memory_info(std::size_t& free, std::size_t& total) const noexcept
  {
    return call(fake_call::memory_info, [&](fake_caller& caller) {
      free = gpu_->memory.device_left(caller.device());
      total = gpu_->options.device_memory;
      return fake_code::success;
    });
  }

  int create_pool(pool_type& pool, int device, std::size_t limit) const noexcept
  {
    return call(fake_call::create_pool, [&] {
      if (!has(device)) return fake_code::invalid_device;
      pool = {};
      if (!gpu_->options.has_pools) return fake_code::success;
      gpu_->memory.pools.push_back({.device = device, .limit = limit});
      pool = {gpu_.get(), gpu_->memory.pools.size()};
      return fake_code::success;
    });
  }
  int destroy_pool(pool_type pool) const noexcept
  {
    return call(fake_call::destroy_pool, [&] {
      fake_pool* const it = find(pool, gpu_->memory.pools);
      if (it == nullptr) return fake_code::invalid_handle;
      it->exists = false;  // its allocations stay
      gpu_->memory.empty(*it);
      return fake_code::success;
    });
  }

  int pool_memory(pool_type pool, std::size_t& size) const noexcept
  {
    return call(fake_call::pool_memory, [&] {
      const fake_pool* const it = find(pool, gpu_->memory.pools);
      if (it == nullptr) return fake_code::invalid_handle;
      size = it->kept;
      return fake_code::success;
    });
  }

  int allocate_device(void*& fresh, std::size_t size, pool_type pool, stream_type stream) const noexcept
  {
    return call(fake_call::allocate_device, [&] {
      fake_stream* const on = find(stream);
      const fake_pool* const from = find(pool, gpu_->memory.pools);
      const bool is_right_pool = gpu_->options.has_pools ? from != nullptr : pool == pool_type{};
      if (on == nullptr || !is_right_pool) return fake_code::invalid_handle;
      if (size == 0 || (from != nullptr && from->device != on->device)) return fake_code::invalid_value;
      if (breaks_capture(on)) return fake_code::capture_unsupported;
      const auto first = from != nullptr ? fake_memory::state::promised : fake_memory::state::live;
      std::byte* const place = gpu_->memory.allocate_device(size, on->device, pool.number, first);
      if (place == nullptr) return fake_code::memory;
      if (from != nullptr) mark(*on, fake_work::come_to_life, place);
      fresh = place;
      return fake_code::success;
    });
  }
  int free_device(void* place, stream_type stream) const noexcept
  {
    return call(fake_call::free_device, [&](fake_gpu::lock_type& lock) {
      fake_stream* const on = find(stream);
      auto* const start = static_cast<std::byte*>(place);
      if (on == nullptr) return fake_code::invalid_handle;
      if (breaks_capture(on)) return fake_code::capture_unsupported;
      if (!give_back(start, true)) return fake_code::invalid_value;
      if (gpu_->options.has_pools) {
        mark(*on, fake_work::bury, start);
        return fake_code::success;
      }
      const int code = gpu_->wait_for_all(lock);
      gpu_->memory.bury(start);
      return code;
    });
  }
  int allocate_pinned(void*& fresh, std::size_t size) const noexcept
  {
    return call(fake_call::allocate_pinned, [&] {
      if (size == 0) return fake_code::invalid_value;
      if (breaks_capture(nullptr)) return fake_code::capture_unsupported;
      std::byte* const place = gpu_->memory.allocate_pinned(size);
      if (place == nullptr) return fake_code::memory;
      fresh = place;
      return fake_code::success;
    });
  }
  int free_pinned(void* place) const noexcept
  {
    return call(fake_call::free_pinned, [&] {
      auto* const start = static_cast<std::byte*>(place);
      if (breaks_capture(nullptr)) return fake_code::capture_unsupported;
      if (!give_back(start, false)) return fake_code::invalid_value;
      gpu_->memory.bury(start);
      return fake_code::success;
    });
  }

  int place_of(const void* place, int& kind, int& device) const noexcept
  {
    return call(fake_call::place_of, [&] {
      kind = 0;
      if (const auto* const it = gpu_->memory.block_of(static_cast<const std::byte*>(place)); it != nullptr) {
        kind = it->on_device ? 2 : 1;
        device = it->device;
      }
      return fake_code::success;
    });
  }

  int stream_priorities(int& least, int& greatest) const noexcept
  {
    return call(fake_call::stream_priorities, [&] {
      least = 0;
      greatest = gpu_->options.highest_priority;
      return fake_code::success;
    });
  }
  /// A priority is clamped to those of the device.
  int create_stream(stream_type& stream, int priority = 0) const noexcept
  {
    return call(fake_call::create_stream, [&](fake_caller& caller) {
      stream = {gpu_.get(), gpu_->add_stream(caller.device())};
      gpu_->streams.back()->priority = std::clamp(priority, gpu_->options.highest_priority, 0);
      return fake_code::success;
    });
  }
  int destroy_stream(stream_type stream) const noexcept
  {
    return call(fake_call::destroy_stream, [&] {
      fake_stream* const it = find(stream);
      if (it == nullptr) return fake_code::invalid_handle;
      if (it->capture != nullptr) {
        it->capture->is_broken = true;
        return fake_code::capture_unsupported;
      }
      gpu_->retire(*it);
      return fake_code::success;
    });
  }
  int create_event(event_type& event) const noexcept
  {
    return call(fake_call::create_event, [&](fake_caller& caller) {
      gpu_->events.emplace_back().device = caller.device();
      event = {gpu_.get(), gpu_->events.size()};
      return fake_code::success;
    });
  }
  int destroy_event(event_type event) const noexcept
  {
    return call(fake_call::destroy_event, [&] {
      fake_event* const it = find(event, gpu_->events);
      if (it == nullptr) return fake_code::invalid_handle;
      *it = fake_event{};
      it->exists = false;
      return fake_code::success;
    });
  }

 protected:
  using fake_cuda_control::fake_cuda_control;

  /// One call; `body` takes the caller, or the lock where it waits, or nothing.
  template <class Body>
  int call(fake_call which, Body&& body) const noexcept
  {
    return gpu_->call(which, [&](fake_gpu::lock_type& lock, fake_caller& caller) -> int {
      if constexpr (std::invocable<Body&>)
        return body();
      else if constexpr (std::invocable<Body&, fake_caller&>)
        return body(caller);
      else
        return body(lock);
    });
  }

  [[nodiscard]] fake_stream* find(stream_type handle) const noexcept
  {
    if (handle.owner != gpu_.get() || handle.number == 0) return nullptr;
    fake_stream& it = *gpu_->streams[handle.number - 1];
    return it.exists ? &it : nullptr;
  }
  template <class Kind, class Thing>
  [[nodiscard]] Thing* find(fake_handle<Kind> handle, std::vector<Thing>& all) const noexcept
  {
    if (handle.owner != gpu_.get() || handle.number == 0) return nullptr;
    Thing& it = all[handle.number - 1];
    return it.exists ? &it : nullptr;
  }

  /// True where a capture forbids the call: this thread's, which may not wait or allocate, or the stream's. The call
  /// then breaks the capture.
  bool breaks_capture(fake_stream* stream) const
  {
    bool is_broken = gpu_->captures.break_own();
    if (stream != nullptr && stream->capture != nullptr) is_broken = stream->capture->is_broken = true;
    return is_broken;
  }

 private:
  [[nodiscard]] bool has(int device) const noexcept { return device >= 0 && device < gpu_->options.devices; }

  /// Changes the state of an allocation in the order of a stream.
  void mark(fake_stream& stream, fake_work kind, std::byte* place) const
  {
    gpu_->push(stream, kind).range.to = place;
    gpu_->start(stream);
  }

  bool give_back(std::byte* place, bool is_device) const
  {
    const bool is_held = gpu_->memory.give_back(place, is_device);
    if (!is_held) gpu_->note("freed", is_device ? "what is no device allocation" : "what is no pinned allocation");
    return is_held;
  }
};

}  // namespace support
