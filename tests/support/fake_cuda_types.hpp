// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace support {

class fake_gpu;

/// An object of a fake GPU: a plain value that is never reused. The default is none.
template <class Kind>
struct fake_handle {
  fake_gpu* owner = nullptr;
  std::uint64_t number = 0;  ///< counted from 1 for each kind

  friend bool operator==(const fake_handle&, const fake_handle&) = default;
};

using fake_stream_handle = fake_handle<struct fake_stream>;
using fake_event_handle = fake_handle<struct fake_event>;
using fake_pool_handle = fake_handle<struct fake_pool>;
using fake_graph_handle = fake_handle<struct fake_graph>;
using fake_executable_handle = fake_handle<struct fake_executable>;
using fake_context_handle = fake_handle<struct fake_context>;

/// The time at which queued work runs.
enum class fake_schedule : std::uint8_t {
  random,    ///< at once, with short delays before an operation and in the middle of it
  earliest,  ///< at once
  latest,    ///< when a caller waits for it or its successors: a missing wait gives a wrong result every time
};

struct fake_cuda_options {
  int devices = 1;
  std::size_t device_memory = std::size_t{64} << 20;  ///< of each device [bytes]
  std::size_t pinned_memory = SIZE_MAX;               ///< limit of pinned memory [bytes]
  int highest_priority = -5;                          ///< of streams; the lowest is 0
  std::size_t context_memory = 0;                     ///< of a context on its device [bytes]
  bool faults_stay = false;  ///< a sticky fault loses only its own device; else all of them, as documented
  bool has_pools = true;     ///< false: create_pool gives none, and freeing waits for all work
  fake_schedule when = fake_schedule::random;
  std::uint64_t seed = 1;
  unsigned longest_delay = 12;  ///< yields in one delay, at most
};

/// The numbers of live objects.
struct fake_live {
  std::size_t device_allocations = 0;
  std::size_t pinned_allocations = 0;
  std::size_t streams = 0;
  std::size_t events = 0;
  std::size_t pools = 0;
  std::size_t graphs = 0;
  std::size_t executables = 0;

  [[nodiscard]] std::size_t total() const noexcept
  {
    return device_allocations + pinned_allocations + streams + events + pools + graphs + executables;
  }
  friend bool operator==(const fake_live&, const fake_live&) = default;
};

/// The functions of the Api, and the launch of a kernel, which is none of them.
enum class fake_call : std::uint8_t {
  count_devices,
  current_device,
  use_device,
  memory_info,
  create_pool,
  destroy_pool,
  allocate_device,
  free_device,
  allocate_pinned,
  free_pinned,
  create_stream,
  destroy_stream,
  synchronize_stream,
  create_event,
  destroy_event,
  record_event,
  wait_event,
  synchronize_event,
  query_event,
  copy,
  copy_batch,
  fill,
  launch_host,
  last_error,
  begin_capture,
  end_capture,
  instantiate,
  destroy_graph,
  destroy_executable,
  launch_graph,
  place_of,
  pool_memory,
  stream_priorities,
  open_context,
  push_context,
  pop_context,
  launch_kernel,
};

inline constexpr std::array<std::string_view, 37> fake_call_names{"count_devices",      "current_device",
                                                                  "use_device",         "memory_info",
                                                                  "create_pool",        "destroy_pool",
                                                                  "allocate_device",    "free_device",
                                                                  "allocate_pinned",    "free_pinned",
                                                                  "create_stream",      "destroy_stream",
                                                                  "synchronize_stream", "create_event",
                                                                  "destroy_event",      "record_event",
                                                                  "wait_event",         "synchronize_event",
                                                                  "query_event",        "copy",
                                                                  "copy_batch",         "fill",
                                                                  "launch_host",        "last_error",
                                                                  "begin_capture",      "end_capture",
                                                                  "instantiate",        "destroy_graph",
                                                                  "destroy_executable", "launch_graph",
                                                                  "place_of",           "pool_memory",
                                                                  "stream_priorities",  "open_context",
                                                                  "push_context",       "pop_context",
                                                                  "launch_kernel"};
static_assert(fake_call_names[static_cast<std::size_t>(fake_call::launch_kernel)] == "launch_kernel");

[[nodiscard]] constexpr std::string_view name_of(fake_call which) noexcept
{
  return fake_call_names[static_cast<std::size_t>(which)];
}

/// The codes that the fake itself returns.
namespace fake_code {
inline constexpr int success = 0;
inline constexpr int invalid_value = 1;
inline constexpr int memory = 2;
inline constexpr int unloading = 4;
inline constexpr int no_device = 100;
inline constexpr int invalid_device = 101;
inline constexpr int invalid_context = 201;
inline constexpr int invalid_handle = 400;
inline constexpr int illegal_state = 401;
inline constexpr int not_permitted = 800;
inline constexpr int capture_unsupported = 900;
inline constexpr int capture_invalidated = 901;
inline constexpr int capture_merge = 902;
inline constexpr int capture_unmatched = 903;
inline constexpr int capture_unjoined = 904;
inline constexpr int capture_isolation = 905;
inline constexpr int captured_event = 907;
inline constexpr int capture_wrong_thread = 908;
}  // namespace fake_code

}  // namespace support
