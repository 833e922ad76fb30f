// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/fake_cuda_types.hpp>
#include <support/fake_cuda_work.hpp>
#include <support/fake_gpu.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

/// The controls and queries of a fake GPU for tests. No function here counts as a call.
///
/// @threads   any
class fake_cuda_control {
 public:
  /// Call `number`, counted from 1 over all functions, returns `code` and does nothing; so do all later calls if it is
  /// persistent. After a sticky code every call returns that code, and streams run nothing.
  void fail_call(std::uint64_t number, int code, bool is_persistent = false) const
  {
    const std::lock_guard lock{gpu_->mutex};
    gpu_->calls.fail_call(number, code, is_persistent);
  }

  /// The same for the calls of one function; "launch_kernel" is one here.
  void fail_call_of(std::string_view function, std::uint64_t number, int code, bool is_persistent = false) const
  {
    const std::lock_guard lock{gpu_->mutex};
    gpu_->calls.fail_call_of(fake_calls::which(function), number, code, is_persistent);
  }

  /// The call is made, and then returns `code`: the error of earlier work.
  void fail_after(std::string_view function, std::uint64_t number, int code) const
  {
    const std::lock_guard lock{gpu_->mutex};
    gpu_->calls.fail_after(fake_calls::which(function), number, code);
  }

  /// The `number`-th operation to start on any stream (copy, batch, fill, host function, kernel, node of a graph)
  /// faults instead, and the device is lost.
  void fail_operation(std::uint64_t number, int sticky_code) const
  {
    const std::lock_guard lock{gpu_->mutex};
    gpu_->calls.fail_operation(number, sticky_code);
  }

  /// From now on every call returns 4, as after the end of main.
  void unload() const
  {
    const std::lock_guard lock{gpu_->mutex};
    gpu_->calls.unload();
  }

  /// Called on a stream's thread for each copy and fill where its target is poisoned and not written yet. Set it first.
  void on_half_way(std::function<void(const fake_range&)> look) const
  {
    const std::lock_guard lock{gpu_->mutex};
    gpu_->half_way = std::move(look);
  }

  /// Waits until all enqueued work is done or dropped.
  void finish() const
  {
    std::unique_lock lock{gpu_->mutex};
    gpu_->wait_for_all(lock);
  }

  [[nodiscard]] std::uint64_t calls() const
  {
    const std::lock_guard lock{gpu_->mutex};
    return gpu_->calls.count();
  }
  [[nodiscard]] std::uint64_t calls(std::string_view function) const
  {
    const std::lock_guard lock{gpu_->mutex};
    return gpu_->calls.count(fake_calls::which(function));
  }

  /// The function of call `number`.
  [[nodiscard]] std::string_view call_name(std::uint64_t number) const
  {
    const std::lock_guard lock{gpu_->mutex};
    return name_of(gpu_->calls.call(number));
  }

  /// Operations that ran on streams.
  [[nodiscard]] std::uint64_t operations() const
  {
    const std::lock_guard lock{gpu_->mutex};
    return gpu_->calls.operations;
  }

  /// Calls that block the calling thread until work is done.
  [[nodiscard]] std::uint64_t synchronizations() const
  {
    return calls("synchronize_event") + calls("synchronize_stream");
  }

  /// Calls that allocate or create an object.
  [[nodiscard]] std::uint64_t allocations() const
  {
    return calls("allocate_device") + calls("allocate_pinned") + calls("create_pool") + calls("create_stream") +
           calls("create_event");
  }

  /// Calls made after one had returned a sticky code, without pops of a context, which only restore a thread.
  [[nodiscard]] std::uint64_t calls_after_sticky() const
  {
    const std::lock_guard lock{gpu_->mutex};
    return gpu_->calls.after_sticky;
  }

  /// Copies that would have blocked on the real runtime, since one side is not pinned.
  [[nodiscard]] std::uint64_t pageable_copies() const
  {
    const std::lock_guard lock{gpu_->mutex};
    return gpu_->calls.pageable;
  }

  /// The user's cudaHostRegister and cudaHostUnregister.
  void register_host(std::byte* place, std::size_t size) const
  {
    const std::lock_guard lock{gpu_->mutex};
    gpu_->memory.enroll(place, size);
  }
  void unregister_host(const std::byte* place) const
  {
    const std::lock_guard lock{gpu_->mutex};
    gpu_->memory.dismiss(place);
  }
  /// A library allocates memory of a device without the Api. @return   false where there is too little
  [[nodiscard]] bool take_for_library(int device, std::size_t size) const
  {
    const std::lock_guard lock{gpu_->mutex};
    return gpu_->memory.take(device, size);
  }
  [[nodiscard]] int device_of(fake_stream_handle stream) const
  {
    const std::lock_guard lock{gpu_->mutex};
    return gpu_->streams.at(stream.number - 1)->device;
  }
  [[nodiscard]] int priority_of(fake_stream_handle stream) const
  {
    const std::lock_guard lock{gpu_->mutex};
    return gpu_->streams.at(stream.number - 1)->priority;
  }
  /// The device of the calling thread, also after a sticky code.
  [[nodiscard]] int device_of_thread() const
  {
    const std::lock_guard lock{gpu_->mutex};
    return gpu_->calls.caller().device();
  }
  /// Whether a context was made on a device.
  [[nodiscard]] bool has_context(int device) const
  {
    const std::lock_guard lock{gpu_->mutex};
    return gpu_->contexts.at(static_cast<std::size_t>(device));
  }
  /// The number of times that a thread changed its device, by cudaSetDevice or by a push or pop of a context.
  [[nodiscard]] std::uint64_t switches() const
  {
    const std::lock_guard lock{gpu_->mutex};
    return gpu_->switches;
  }

  /// The code that the device was lost with, or 0.
  [[nodiscard]] int lost() const
  {
    const std::lock_guard lock{gpu_->mutex};
    return gpu_->calls.sticky();
  }

  /// Broken rules without a number. Queued work may add some: call `finish()` first.
  [[nodiscard]] std::vector<std::string> faults() const
  {
    const std::lock_guard lock{gpu_->mutex};
    return gpu_->faults;
  }

  /// The objects that were created and not released.
  [[nodiscard]] fake_live live() const
  {
    const std::lock_guard lock{gpu_->mutex};
    const auto count = [](const auto& all) {
      return static_cast<std::size_t>(std::ranges::count_if(all, [](const auto& it) { return it.exists; }));
    };
    return {.device_allocations = gpu_->memory.live_on_device(),
            .pinned_allocations = gpu_->memory.live_pinned(),
            .streams = static_cast<std::size_t>(
                std::ranges::count_if(gpu_->streams, [](const auto& it) { return it->exists; })),
            .events = count(gpu_->events),
            .pools = count(gpu_->memory.pools),
            .graphs = count(gpu_->graphs),
            .executables = static_cast<std::size_t>(
                std::ranges::count_if(gpu_->executables, [](const auto& it) { return it != nullptr; }))};
  }

 protected:
  explicit fake_cuda_control(std::shared_ptr<fake_gpu> gpu) noexcept : gpu_{std::move(gpu)} {}

  std::shared_ptr<fake_gpu> gpu_;
};

}  // namespace support
