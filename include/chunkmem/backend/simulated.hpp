// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/backend/tier_ledger.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {
namespace backend {

/// The cost of a copy in one direction: a latency, then a rate.
///
///     const link_cost link{.latency_nanoseconds = 10'000, .bytes_per_second = 25e9};
///     const std::uint64_t took = link.nanoseconds_for(bytes{25'000'000});  // 1'010'000
struct link_cost {
  std::uint64_t latency_nanoseconds = 0;
  double bytes_per_second = 1e9;

  /// Time for `size` bytes, rounded up [ns]; saturates at 64 bits. Never falls as `size` grows.
  [[nodiscard]] constexpr std::uint64_t nanoseconds_for(bytes size) const noexcept
  {
    const double exact = static_cast<double>(size.count()) / bytes_per_second * 1e9;
    constexpr double limit = 9e18;  // below 2^63, so that the latency can still be added
    if (!(exact < limit)) return UINT64_MAX;
    auto whole = static_cast<std::uint64_t>(exact);
    if (static_cast<double>(whole) < exact) ++whole;
    return whole > UINT64_MAX - latency_nanoseconds ? UINT64_MAX : whole + latency_nanoseconds;
  }
};

/// The costs of a machine's operations in virtual time.
///
///     simulated memory{{.device_capacity = 1_GiB, .host_capacity = 8_GiB, .costs = {.to_device = {10'000, 50e9}}}};
///
/// The defaults are round numbers of one GPU on PCIe 4.0 x16 with pinned memory, good for comparing plans. For the step
/// time of your machine, set values measured there. Assumes two tiers, device and host, and full duplex.
struct cost_table {
  link_cost to_device{.latency_nanoseconds = 10'000, .bytes_per_second = 25e9};
  link_cost to_host{.latency_nanoseconds = 10'000, .bytes_per_second = 25e9};
  link_cost within_device{.latency_nanoseconds = 2'000, .bytes_per_second = 1e12};
  link_cost within_host{.latency_nanoseconds = 1'000, .bytes_per_second = 10e9};
  std::uint64_t launch_nanoseconds = 5'000;
  /// Bandwidth of host memory, shared by copies of both links and work on the host; 0: unlimited.
  double host_memory_bytes_per_second = 0;

  /// Bytes of host memory that a copy between two tiers reads and writes. @throws size_overflow
  [[nodiscard]] static constexpr bytes host_bytes(tier from, tier to, bytes size)
  {
    return size * ((from == tier::host ? 1U : 0U) + (to == tier::host ? 1U : 0U));
  }

  /// The cost of a copy between two tiers; a fill costs as much as a copy within its tier.
  [[nodiscard]] constexpr const link_cost& between(tier from, tier to) const noexcept
  {
    if (from == to) return to == tier::device ? within_device : within_host;
    return to == tier::device ? to_device : to_host;
  }
};

/// @throws config_error   a rate is not above 0 (or NaN), or the rate of host memory is negative or NaN
constexpr void require_usable(const cost_table& costs)
{
  for (const link_cost* cost : {&costs.to_device, &costs.to_host, &costs.within_device, &costs.within_host}) {
    if (!(cost->bytes_per_second > 0)) {
      throw config_error{"cost table with a rate that is not above 0 B/s (give every link its bytes_per_second)"};
    }
  }
  if (!(costs.host_memory_bytes_per_second >= 0)) {
    throw config_error{
        "cost table whose host_memory_bytes_per_second is negative or not a number (0 leaves it unlimited)"};
  }
}

/// A bandwidth that several operations share in virtual time.
///
///     shared_bandwidth memory{50e9};
///     const std::uint64_t first = memory.serve(0, 1'000'000, bytes{25'000'000});  // half of the rate until 1'000'000
///     const std::uint64_t second = memory.serve(0, 500'000, bytes{50'000'000});   // the rest, until 1'500'000
///
/// Each operation moves its bytes at an even rate over its time. An operation that was given first keeps its rate; a
/// later one gets the rest, and lasts longer where that is too little. So no more than the bandwidth is ever in use,
/// and an operation that starts before one given earlier finds all of it unused until then. Good where operations are
/// many and short; poor as a model of fairness: real memory slows all of them down, and which one is late matters to
/// work that waits for it. Cost: O(log + changes of the rate during the operation); memory for the changes that are not
/// forgotten.
///
/// @threads   one caller at a time
class shared_bandwidth {
 public:
  /// @pre the rate is above zero [B/s]
  explicit shared_bandwidth(double bytes_per_second)
      : all_{.latency_nanoseconds = 0, .bytes_per_second = bytes_per_second}, pieces_{{0, 1.0}}
  {
  }

  /// Adds one more operation, and returns when it ends [ns].
  /// @param begin         when it starts [ns]
  /// @param nanoseconds   how long it lasts with unlimited bandwidth; it never lasts less
  /// @param size          bytes that it takes in that time
  /// @throws std::bad_alloc   nothing was changed
  [[nodiscard]] std::uint64_t serve(std::uint64_t begin, std::uint64_t nanoseconds, bytes size)
  {
    const std::uint64_t least = all_.nanoseconds_for(size);
    const std::uint64_t lasts = nanoseconds < least ? least : nanoseconds;
    if (size == bytes{}) return begin > UINT64_MAX - lasts ? UINT64_MAX : begin + lasts;
    // centuries from now
    if (lasts >= horizon || begin >= horizon || pieces_.back().begin >= horizon) return UINT64_MAX;
    const double wanted = static_cast<double>(size.count()) / all_.bytes_per_second * 1e9 / static_cast<double>(lasts);
    pieces_.reserve(pieces_.size() + 2);
    const std::size_t first = split(begin);
    const std::size_t last = take(first, wanted < 1 ? wanted : 1.0, static_cast<double>(lasts));
    const std::uint64_t end = pieces_[last].begin;
    merge(first == 0 ? 0 : first - 1, last);
    return end;
  }

  /// Promises that nothing will start before `now`, so that the changes until then are forgotten.
  void forget_before(std::uint64_t now)
  {
    const std::size_t gone = piece_at(now);
    if (2 * gone > pieces_.size()) pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(gone));
  }

  /// Changes of the rate that are kept.
  [[nodiscard]] std::size_t changes() const noexcept { return pieces_.size(); }

 private:
  static constexpr std::uint64_t horizon = std::uint64_t{1} << 62;

  /// From `begin` to that of the next piece, this share of the rate is unused. The last piece lasts for ever.
  struct piece {
    std::uint64_t begin;
    double unused;
  };

  // The last piece that begins at `now` or before it; the first, if none does.
  [[nodiscard]] std::size_t piece_at(std::uint64_t now) const noexcept
  {
    std::size_t low = 0;
    for (std::size_t high = pieces_.size(); high - low > 1;) {
      const std::size_t middle = low + (high - low) / 2;
      (pieces_[middle].begin <= now ? low : high) = middle;
    }
    return low;
  }

  // The piece that begins at `now`, which is made if there is none.
  std::size_t split(std::uint64_t now)
  {
    const std::size_t index = piece_at(now);
    if (pieces_[index].begin >= now) return index;
    pieces_.insert(pieces_.begin() + static_cast<std::ptrdiff_t>(index) + 1, {now, pieces_[index].unused});
    return index + 1;
  }

  // Takes the wanted share, or the unused one if smaller, from piece to piece until the work is done. Returns the piece
  // that begins at its end.
  std::size_t take(std::size_t index, double wanted, double left)
  {
    for (;; ++index) {
      piece& now = pieces_[index];
      const bool is_short = now.unused < wanted;
      const double pace = is_short ? now.unused / wanted : 1.0;
      if (index + 1 == pieces_.size() || left <= static_cast<double>(pieces_[index + 1].begin - now.begin) * pace) {
        const double lasts = left / pace;
        auto whole = static_cast<std::uint64_t>(lasts);
        if (static_cast<double>(whole) < lasts) ++whole;
        const std::size_t end = split(now.begin + whole);
        pieces_[index].unused = is_short ? 0.0 : pieces_[index].unused - wanted;
        return end;
      }
      left -= static_cast<double>(pieces_[index + 1].begin - now.begin) * pace;
      now.unused = is_short ? 0.0 : now.unused - wanted;
    }
  }

  // Merges neighbours with the same share.
  void merge(std::size_t first, std::size_t last)
  {
    std::size_t kept = first;
    for (std::size_t index = first + 1; index <= last; ++index)
      if (pieces_[index].unused != pieces_[kept].unused) pieces_[++kept] = pieces_[index];
    pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(kept) + 1,
                  pieces_.begin() + static_cast<std::ptrdiff_t>(last) + 1);
  }

  link_cost all_;
  std::vector<piece> pieces_;
};

/// The simulated machine.
///
///     simulated memory{{.device_capacity = 1_GiB, .host_capacity = 8_GiB, .host_runs_ahead = true}};
struct simulated_options {
  bytes device_capacity{};       ///< of the device tier
  bytes host_capacity{};         ///< of the host tier
  cost_table costs{};            ///< of copies and launches
  bool host_runs_ahead = false;  ///< the caller only enqueues compute, as on a GPU; else the caller is compute
};

/// A machine without bytes: the same agents on virtual clocks.
///
/// Addresses are made up and never read; copies and launches only let time pass, and a launched callable does not run.
/// Compute is `advance(agent, nanoseconds)`. A copy starts when its agent is free, the caller has enqueued it, and the
/// link of its direction is free. Copies take a link in the order of enqueueing, also where an earlier one still waits
/// for an event. Where the cost table has a bandwidth of host memory, copies and the host bytes of
/// `advance(agent, nanoseconds, host_bytes)` share it, see shared_bandwidth. Good for planning and for tests of
/// decisions; poor where copies and kernels compete for the device's memory bandwidth, which is not modelled. An
/// event's value is the virtual time at which its agent is done [ns]; it never falls, and may stay the same. Cost: O(1)
/// per operation, more where host memory has a rate; O(live allocations) per allocation.
///
/// @threads   one caller at a time, from any thread
class simulated {
 public:
  static constexpr bool host_addressable = false;
  static constexpr bool has_bytes = false;

  /// @throws config_error   a rate in the cost table is not above 0, or the rate of host memory is negative
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
  /// @throws out_of_memory   above the capacity, or 2^60 B were given out over time; nothing was changed
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

  /// Takes the time of a launch. The callable is not run: it has no bytes to work on.
  /// @throws usage_error   unknown agent; no time passed
  template <class Callable>
  void launch(agent stream, Callable&&)
  {
    advance(stream, costs_.launch_nanoseconds);
  }

  /// Lets an agent work for this time: the cost of compute.
  /// @throws usage_error   unknown agent; no time passed
  void advance(agent stream, std::uint64_t nanoseconds) { advance(stream, nanoseconds, bytes{}); }

  /// The same for work that reads and writes `host_bytes` of host memory, evenly over its time: the work lasts longer
  /// where other operations leave too little bandwidth.
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

  /// When an agent is done with all its work [ns].
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
  // Memory that was not allocated here is the caller's own, on the host.
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
  // No operation starts before the caller enqueues it.
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
