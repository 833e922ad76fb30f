// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cost_table.hpp>
#include <chunkmem/backend/measuring_backend.hpp>
#include <chunkmem/backend/shared_bandwidth.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/backend/stream_checks.hpp>
#include <chunkmem/backend/tier_ledger.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace chunkmem::inline v0 {
namespace backend {

/// The machine that is played.
///
///     simulated memory{{.device_capacity = 1_GiB, .host_capacity = 8_GiB, .host_runs_ahead = true}};
struct simulated_options {
  bytes device_capacity{};       ///< what the device may hold
  bytes host_capacity{};         ///< what the host tier may hold
  cost_table costs{};            ///< what copies, launches and kernels take
  bool host_runs_ahead = false;  ///< the caller only enqueues compute, as on a GPU; else the caller is compute
};

/// A machine without bytes: the same agents on virtual clocks.
///
/// Addresses are made up and never read; copies and launches only let time pass, and a launched callable does not run.
/// Compute is `advance(agent, nanoseconds)`. A copy starts when its agent is free, the caller has enqueued it, and the
/// link of its direction is free; one that was enqueued first has the link first, so later copies pay, also where an
/// earlier one still waits for an event. Where the cost table has a rate of host memory, copies and what
/// `advance(agent, nanoseconds, host_bytes)` says of work on the host share it, as shared_bandwidth does. Good for
/// planning and for tests of decisions; poor where copies and kernels compete for the device's memory bandwidth, which
/// it does not model. An event's value is the virtual time at which its agent is done [ns]; it never falls, and may
/// stay the same. Cost: O(1) per operation, more where host memory has a rate; O(live allocations) per allocation.
///
/// @threads   one caller at a time, from any thread
class simulated {
 public:
  static constexpr bool host_addressable = false;
  static constexpr bool has_bytes = false;

  /// @throws config_error   a rate in the cost table is not above zero, or that of host memory below it
  explicit simulated(const simulated_options& options)
      : ledger_{options.device_capacity, options.host_capacity},
        costs_{options.costs},
        host_runs_ahead_{options.host_runs_ahead},
        host_memory_{options.costs.host_memory_bytes_per_second}
  {
    require_usable(costs_);
  }

  [[nodiscard]] bytes capacity(tier where) const noexcept { return ledger_.capacity(where); }

  /// @return a made-up address, never given twice
  /// @throws usage_error     size is 0, or there is no such tier
  /// @throws out_of_memory   past the capacity, or 2^60 B were given out over time; nothing was changed
  [[nodiscard]] std::byte* allocate(tier where, bytes size)
  {
    ledger_.require(where, size);
    const std::uint64_t left = address_room - taken_[where];
    const std::uint64_t lost = 2 * tensor_alignment.count();  // to rounding and distance
    if (left < lost || size.count() > left - lost) ledger_.refuse(where, size);
    const std::uint64_t address = first_address(where) + taken_[where];
    // one unit of distance, so that the end of one allocation is never the start of the next
    taken_[where] += align_up(size, tensor_alignment).count() + tensor_alignment.count();
    auto* const place = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
    ledger_.add(where, place, size);
    return place;
  }
  void release(tier where, std::byte* place) noexcept { ledger_.remove(where, place); }
  [[nodiscard]] std::uint64_t unknown_releases() const noexcept { return ledger_.unknown_releases(); }

  void copy(std::byte* to, const std::byte* from, bytes size) { copy(to, from, size, agent::host); }
  void fill(std::byte* to, std::byte value, bytes size) { fill(to, value, size, agent::host); }

  /// @throws usage_error   unknown agent, or a null address; no time passed
  void copy(std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    require_places(to, from, size);
    require_agent(stream, agents_);
    const tier source = tier_of(from);
    const tier target = tier_of(to);
    std::uint64_t begin = start_of(stream);
    if (source != target) begin = later_of(begin, link_free_[target]);
    const std::uint64_t cost = costs_.between(source, target).nanoseconds_for(size);
    const std::uint64_t end = end_of(begin, cost, cost_table::host_bytes(source, target, size));
    if (source != target) link_free_[target] = end;
    clock_of(stream) = end;
  }
  /// @throws usage_error   unknown agent, or a null address; no time passed
  void fill(std::byte* to, std::byte, bytes size, agent stream)
  {
    require_places(to, to, size);
    const tier target = tier_of(to);
    advance(stream, costs_.between(target, target).nanoseconds_for(size), target == tier::host ? size : bytes{});
  }

  /// Costs a launch. The callable is not run: it has no bytes to work on.
  /// @throws usage_error   unknown agent; no time passed
  template <class Callable>
  void launch(agent stream, Callable&&)
  {
    advance(stream, costs_.launch_nanoseconds);
  }

  /// Lets an agent work for a while: this is what compute costs.
  /// @throws usage_error   unknown agent; no time passed
  void advance(agent stream, std::uint64_t nanoseconds) { advance(stream, nanoseconds, bytes{}); }

  /// The same for work that reads and writes `host_bytes` of host memory, evenly over its time: it lasts longer where
  /// others leave it less.
  /// @throws usage_error   unknown agent; no time passed
  void advance(agent stream, std::uint64_t nanoseconds, bytes host_bytes)
  {
    require_agent(stream, agents_);
    clock_of(stream) = end_of(start_of(stream), nanoseconds, host_bytes);
  }

  /// @throws usage_error   unknown agent
  [[nodiscard]] event record(agent stream) const { return {.value = clock(stream), .source = stream}; }

  /// @throws usage_error   unknown agent, or the event was never recorded; no time passed
  void wait(agent stream, event point)
  {
    require_agent(stream, agents_);
    require_recorded(point, clock(point.source));
    clock_of(stream) = later_of(clock_of(stream), point.value);
  }
  /// The same; where the event is later than anything else that `stream` waits for, the time between is added to
  /// `waited`.
  /// @throws usage_error   as above
  void wait(agent stream, event point, wait_cause why)
  {
    require_agent(stream, agents_);
    const std::uint64_t ready = start_of(stream);
    wait(stream, point);
    if (point.value <= ready) return;
    wait_total& total = waited_[static_cast<std::size_t>(why)];
    ++total.count;
    total.nanoseconds += point.value - ready;
  }

  /// Waits that named a cause and let virtual time pass [ns].
  [[nodiscard]] wait_total waited(wait_cause why) const noexcept { return waited_[static_cast<std::size_t>(why)]; }

  /// @throws usage_error   `max_agents` are in use
  agent adopt()
  {
    require_room_for_agent(agents_);
    return static_cast<agent>(agents_++);
  }

  [[nodiscard]] std::size_t agents() const noexcept { return agents_; }

  /// When an agent is done with all it was given [ns].
  /// @throws usage_error   unknown agent
  [[nodiscard]] std::uint64_t clock(agent stream) const
  {
    require_agent(stream, agents_);
    return clocks_[clock_index(stream)];
  }
  [[nodiscard]] std::uint64_t now() const noexcept { return clocks_[index_of(agent::host)]; }
  [[nodiscard]] std::uint64_t throttled() const noexcept { return 0; }

 private:
  static constexpr std::uint64_t address_room = std::uint64_t{1} << 60;
  static_assert(sizeof(std::uintptr_t) == 8, "chunkmem: backend::simulated needs 64-bit addresses");

  [[nodiscard]] static constexpr std::uint64_t first_address(tier where) noexcept
  {
    return where == tier::device ? address_room : 2 * address_room;
  }
  // What was not allocated here is the caller's own memory, and that is on the host.
  [[nodiscard]] static tier tier_of(const std::byte* place) noexcept
  {
    const auto address = std::uint64_t{reinterpret_cast<std::uintptr_t>(place)};
    return address >= address_room && address < 2 * address_room ? tier::device : tier::host;
  }
  [[nodiscard]] static std::uint64_t after(std::uint64_t begin, std::uint64_t nanoseconds) noexcept
  {
    return nanoseconds > UINT64_MAX - begin ? UINT64_MAX : begin + nanoseconds;
  }

  [[nodiscard]] std::uint64_t end_of(std::uint64_t begin, std::uint64_t nanoseconds, bytes host_bytes)
  {
    if (costs_.host_memory_bytes_per_second == 0 || host_bytes == bytes{}) return after(begin, nanoseconds);
    host_memory_.forget_before(now());
    return host_memory_.serve(begin, nanoseconds, host_bytes);
  }

  // Not std::max: <algorithm> brings half the standard library into every planner.
  [[nodiscard]] static std::uint64_t later_of(std::uint64_t one, std::uint64_t other) noexcept
  {
    return one < other ? other : one;
  }

  [[nodiscard]] std::size_t clock_index(agent stream) const noexcept
  {
    return index_of(stream == agent::compute && !host_runs_ahead_ ? agent::host : stream);
  }
  [[nodiscard]] std::uint64_t& clock_of(agent stream) noexcept { return clocks_[clock_index(stream)]; }
  // Nothing starts before the caller asks for it.
  [[nodiscard]] std::uint64_t start_of(agent stream) const noexcept
  {
    return later_of(clocks_[clock_index(stream)], now());
  }

  tier_ledger ledger_;
  cost_table costs_;
  bool host_runs_ahead_;
  shared_bandwidth host_memory_;  // used where the cost table has its rate
  std::size_t agents_ = built_in_agents;
  per_tier<std::uint64_t> taken_;
  per_tier<std::uint64_t> link_free_;
  std::array<std::uint64_t, max_agents> clocks_{};
  std::array<wait_total, wait_causes> waited_{};
};

static_assert(measuring_backend<simulated>);

}  // namespace backend
}  // namespace chunkmem::inline v0
