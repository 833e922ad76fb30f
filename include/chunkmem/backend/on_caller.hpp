// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/agent_worker.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace chunkmem::inline v0 {
namespace backend {

/// Makes a stream backend of any memory backend: every agent is the calling thread, and its work is done at return.
///
///     on_caller<my_memory> memory{};  // my_memory: a memory_backend
///     manager<on_caller<my_memory>> m{memory};
///
/// Good for memory that has no streams (a Thrust system on the CPU, an allocator of yours), and for finding out whether
/// a wrong result comes from the order of work: here the order is fixed. Poor for speed, because no copy overlaps
/// compute. An event's value is the number of operations its agent was given.
/// Cost: a count on top of each operation; no allocation.
///
/// @tparam Memory   where bytes live; see memory_backend
/// @threads         one caller at a time, from any thread
template <memory_backend Memory>
class on_caller {
 public:
  static constexpr bool host_addressable = Memory::host_addressable;
  static constexpr bool has_bytes = chunkmem::has_bytes<Memory>();

  /// Constructs the memory from the arguments.
  template <class... Arguments>
    requires std::constructible_from<Memory, Arguments...>
  explicit on_caller(Arguments&&... arguments)
      : memory_{std::forward<Arguments>(arguments)...}, start_{std::chrono::steady_clock::now()}
  {
  }
  on_caller(const on_caller&) = delete;
  on_caller& operator=(const on_caller&) = delete;

  [[nodiscard]] Memory& memory() noexcept { return memory_; }
  [[nodiscard]] const Memory& memory() const noexcept { return memory_; }

  [[nodiscard]] bytes capacity(tier where) const { return memory_.capacity(where); }

  /// @throws usage_error, out_of_memory   as the memory does; nothing was changed
  [[nodiscard]] std::byte* allocate(tier where, bytes size) { return memory_.allocate(where, size); }
  void release(tier where, std::byte* place) noexcept { memory_.release(where, place); }

  void copy(std::byte* to, const std::byte* from, bytes size) { copy(to, from, size, agent::host); }
  void fill(std::byte* to, std::byte value, bytes size) { fill(to, value, size, agent::host); }

  /// @throws usage_error    unknown agent, or a null address; nothing was done
  /// @throws device_error   as the memory does; the operation does not count
  void copy(std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    require_agent(stream, agents_);
    require_places(to, from, size);
    memory_.copy(to, from, size);
    ++given_[index_of(stream)];
  }
  /// @throws usage_error    unknown agent, or a null address; nothing was done
  /// @throws device_error   as the memory does; the operation does not count
  void fill(std::byte* to, std::byte value, bytes size, agent stream)
  {
    require_agent(stream, agents_);
    require_places(to, to, size);
    memory_.fill(to, value, size);
    ++given_[index_of(stream)];
  }

  /// Runs a callable now. The callable must not throw, and has at most 128 bytes, as on every backend. Where the memory
  /// carries no bytes it is not run.
  /// @throws usage_error   unknown agent; nothing was done
  template <class Callable>
  void launch(agent stream, Callable&& work)
  {
    require_agent(stream, agents_);
    inline_task task{std::forward<Callable>(work)};
    if constexpr (has_bytes) task();
    ++given_[index_of(stream)];
  }

  /// @throws usage_error   unknown agent
  [[nodiscard]] event record(agent stream) const
  {
    require_agent(stream, agents_);
    return {.value = given_[index_of(stream)], .source = stream};
  }

  /// Returns immediately: recorded work is done.
  /// @throws usage_error   unknown agent, or the event was never recorded
  void wait(agent stream, event point)
  {
    require_agent(stream, agents_);
    require_agent(point.source, agents_);
    require_recorded(point, given_[index_of(point.source)]);
  }
  /// @throws usage_error   as above
  void wait(agent stream, event point, wait_cause) { wait(stream, point); }
  /// Always zero: no wait blocks.
  [[nodiscard]] wait_total waited(wait_cause) const noexcept { return {}; }

  /// @throws usage_error   `max_agents` are in use
  agent adopt()
  {
    require_room_for_agent(agents_);
    return static_cast<agent>(agents_++);
  }

  [[nodiscard]] std::size_t agents() const noexcept { return agents_; }

  /// Time since construction [ns].
  [[nodiscard]] std::uint64_t now() const noexcept
  {
    const auto passed = std::chrono::steady_clock::now() - start_;
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count());
  }

  [[nodiscard]] std::uint64_t throttled() const noexcept { return 0; }

 private:
  Memory memory_;
  std::chrono::steady_clock::time_point start_;
  std::size_t agents_ = built_in_agents;
  std::array<std::uint64_t, max_agents> given_{};
};

}  // namespace backend
}  // namespace chunkmem::inline v0
