// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/agent_worker.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/splitmix64.hpp>
#include <support/poisoned_memory.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace support {

/// The time at which queued work runs: as late as its events allow, as early as possible, or somewhere in between.
enum class schedule : std::uint8_t { latest, earliest, random };

struct adversarial_options {
  chunkmem::bytes device_capacity{};
  chunkmem::bytes host_capacity{};
  schedule when = schedule::random;
  std::uint64_t seed = 1;
  bool async_compute = false;
};

/// A backend that uses every freedom of the concept, so that a missing event gives a wrong result every time.
///
/// One thread, deterministic in its seed. Each agent has a queue; its head is ready when no wait stands before it. At
/// every call, ready copies and fills have their destinations poisoned with NaN bytes (the earliest moment at which
/// they may be half written), and then run now, later or last, as the schedule says. `wait(host, e)` runs everything
/// that e depends on. Fresh and released memory is poisoned. A copy outside of live memory, or whose memory is released
/// while it is queued, is a fault: it is recorded and not run. `skip_wait` removes one edge, to test that tests notice.
/// A callable launched while compute is the caller runs at once, as in host_arena.
///
/// Cost: O(agents + live allocations) per operation; allocates freely. Queued work is dropped at the end.
class adversarial {
 public:
  using agent = chunkmem::agent;
  using event = chunkmem::event;
  using bytes = chunkmem::bytes;
  using tier = chunkmem::tier;
  using operation = chunkmem::backend::operation;
  using operation_kind = chunkmem::backend::operation_kind;
  using wait_filter = std::function<bool(agent stream, event point, std::uint64_t index)>;

  struct counts {
    std::uint64_t copies = 0;    ///< copies and fills that ran
    std::uint64_t launches = 0;  ///< callables that ran
    std::uint64_t poisoned = 0;  ///< destinations poisoned while their copy was queued
    std::uint64_t waits = 0;     ///< calls of wait
    std::uint64_t skipped = 0;   ///< waits that the filter removed
  };

  static constexpr bool host_addressable = true;
  static constexpr std::byte poison = poisoned_memory::poison;

  explicit adversarial(const adversarial_options& options)
      : options_{options}, memory_{options.device_capacity, options.host_capacity}, random_{options.seed}
  {
  }
  adversarial(const adversarial&) = delete;
  adversarial& operator=(const adversarial&) = delete;

  [[nodiscard]] bytes capacity(tier where) const noexcept { return memory_.capacity(where); }

  [[nodiscard]] std::byte* allocate(tier where, bytes size)
  {
    step();
    return memory_.allocate(where, size);
  }

  void release(tier where, std::byte* place) noexcept
  {
    step();
    if (place == nullptr) return;
    const bytes size = memory_.size_of(place);
    for (const auto& queue : queues_) {
      for (const queued& entry : queue) {
        if (touches(entry.work, place, size)) note("release of memory that a queued operation uses");
      }
    }
    if (!memory_.release(where, place)) note("release of memory that is not allocated");
  }

  void copy(std::byte* to, const std::byte* from, bytes size) { copy(to, from, size, agent::host); }
  void fill(std::byte* to, std::byte value, bytes size) { fill(to, value, size, agent::host); }

  void copy(std::byte* to, const std::byte* from, bytes size, agent stream)
  {
    chunkmem::backend::require_places(to, from, size);
    give(stream, operation::copying(to, from, size));
  }
  void fill(std::byte* to, std::byte value, bytes size, agent stream)
  {
    chunkmem::backend::require_places(to, to, size);
    give(stream, operation::filling(to, value, size));
  }
  template <class Callable>
  void launch(agent stream, Callable&& work)
  {
    give(stream, operation::launching(std::forward<Callable>(work)));
  }

  [[nodiscard]] event record(agent stream)
  {
    chunkmem::backend::require_agent(stream, agents_);
    step();
    return {.value = given_[index_of(stream)], .source = stream};
  }

  void wait(agent stream, event point)
  {
    chunkmem::backend::require_agent(stream, agents_);
    chunkmem::backend::require_agent(point.source, agents_);
    chunkmem::backend::require_recorded(point, given_[index_of(point.source)]);
    step();
    const std::uint64_t index = counts_.waits++;
    if (skips_ && skips_(stream, point, index)) {
      ++counts_.skipped;
      return;
    }
    if (point.source == stream || point.value == 0) return;
    if (runs_on_caller(stream)) {
      finish(point);
    } else {
      append(stream, operation::waiting(point));
    }
    step();
  }

  agent adopt()
  {
    chunkmem::backend::require_room_for_agent(agents_);
    return static_cast<agent>(agents_++);
  }
  [[nodiscard]] std::size_t agents() const noexcept { return agents_; }
  [[nodiscard]] std::uint64_t now() const noexcept { return time_; }  ///< calls so far: time enough for a report
  [[nodiscard]] std::uint64_t throttled() const noexcept { return 0; }

  /// Runs all queued work.
  void drain()
  {
    for (std::size_t i = 0; i < agents_; ++i) finish({.value = given_[i], .source = static_cast<agent>(i)});
  }

  /// All faults so far, one sentence each. A test ends with the check that the list is empty.
  [[nodiscard]] const std::vector<std::string>& faults() const noexcept { return faults_; }
  [[nodiscard]] const counts& counters() const noexcept { return counts_; }
  [[nodiscard]] std::size_t queued_operations() const noexcept
  {
    std::size_t sum = 0;
    for (const auto& queue : queues_) sum += queue.size();
    return sum;
  }

  /// Ignores each wait for which the filter returns true; index counts the calls of wait from 0, over all agents.
  void skip_wait(wait_filter filter) { skips_ = std::move(filter); }
  void skip_wait(std::uint64_t index)
  {
    skips_ = [index](agent, event, std::uint64_t now) { return now == index; };
  }

 private:
  struct queued {
    operation work;
    bool poisoned = false;
  };

  [[nodiscard]] bool runs_on_caller(agent stream) const noexcept
  {
    return stream == agent::host || (stream == agent::compute && !options_.async_compute);
  }
  [[nodiscard]] bool reached(event point) const noexcept { return finished_[index_of(point.source)] >= point.value; }

  void give(agent stream, operation&& work)
  {
    chunkmem::backend::require_agent(stream, agents_);
    step();
    if (moves_bytes(work) && !in_bounds(work)) note("copy or fill outside of live memory");
    append(stream, std::move(work));
    if (runs_on_caller(stream)) run_head(index_of(stream));
    step();
  }

  void append(agent stream, operation&& work)
  {
    queues_[index_of(stream)].push_back({std::move(work)});
    ++given_[index_of(stream)];
  }

  /// Runs at every call: poisons the ready work, and runs as much as the schedule says.
  void step()
  {
    ++time_;
    settle();
    if (options_.when == schedule::latest) return;
    while (options_.when == schedule::earliest || coin()) {
      if (!run_one_ready()) return;
    }
  }

  /// Releases waits whose event is reached, and poisons every destination that may be half written from now on.
  void settle()
  {
    for (bool moved = true; std::exchange(moved, false);) {
      for (std::size_t i = 0; i < agents_; ++i) {
        auto& queue = queues_[i];
        while (!queue.empty() && queue.front().work.kind == operation_kind::wait && reached(queue.front().work.point)) {
          run_head(i);
          moved = true;
        }
      }
    }
    for (auto& queue : queues_) {
      if (queue.empty() || queue.front().poisoned || !moves_bytes(queue.front().work)) continue;
      queue.front().poisoned = true;
      const operation& work = queue.front().work;
      const bool onto_itself = work.kind == operation_kind::copy && overlap(work.to, work.size, work.from, work.size);
      if (!in_bounds(work) || onto_itself) continue;
      poisoned_memory::spoil(work.to, work.size);
      ++counts_.poisoned;
    }
  }

  bool run_one_ready()
  {
    const std::size_t first = options_.when == schedule::random ? random_.next() % agents_ : 0;
    for (std::size_t i = 0; i < agents_; ++i) {
      const std::size_t who = (first + i) % agents_;
      if (queues_[who].empty() || queues_[who].front().work.kind == operation_kind::wait) continue;
      run_head(who);
      settle();
      return true;
    }
    return false;
  }

  /// Runs exactly the work that `point` depends on.
  void finish(event point)
  {
    const std::size_t who = index_of(point.source);
    while (finished_[who] < point.value) {
      settle();
      if (finished_[who] >= point.value) return;
      const operation& head = queues_[who].front().work;
      if (head.kind == operation_kind::wait) {
        const event before = head.point;  // a copy, since the queue changes
        finish(before);
      } else {
        run_head(who);
      }
    }
    settle();
  }

  void run_head(std::size_t who)
  {
    operation work = std::move(queues_[who].front().work);
    queues_[who].pop_front();
    if (moves_bytes(work)) {
      if (in_bounds(work)) work.run();
      ++counts_.copies;
    } else if (work.kind == operation_kind::launch) {
      work.run();
      ++counts_.launches;
    }
    ++finished_[who];
  }

  [[nodiscard]] static bool moves_bytes(const operation& work) noexcept
  {
    return (work.kind == operation_kind::copy || work.kind == operation_kind::fill) && work.size != bytes{};
  }
  [[nodiscard]] bool in_bounds(const operation& work) const noexcept
  {
    return memory_.holds(work.to, work.size) &&
           (work.kind == operation_kind::fill || memory_.holds(work.from, work.size));
  }
  [[nodiscard]] static bool touches(const operation& work, const std::byte* place, bytes size) noexcept
  {
    if (!moves_bytes(work)) return false;
    return overlap(work.to, work.size, place, size) ||
           (work.kind == operation_kind::copy && overlap(work.from, work.size, place, size));
  }

  void note(const char* what)
  {
    faults_.push_back(std::string{what} + " (call " + std::to_string(time_) + ", seed " +
                      std::to_string(options_.seed) + ")");
  }

  [[nodiscard]] bool coin() noexcept { return (random_.next() & 1) != 0; }

  adversarial_options options_;
  poisoned_memory memory_;
  chunkmem::splitmix64 random_;
  std::uint64_t time_ = 0;
  std::size_t agents_ = chunkmem::built_in_agents;
  std::array<std::deque<queued>, chunkmem::max_agents> queues_;
  std::array<std::uint64_t, chunkmem::max_agents> given_{};
  std::array<std::uint64_t, chunkmem::max_agents> finished_{};
  counts counts_;
  wait_filter skips_;
  std::vector<std::string> faults_;
};

static_assert(chunkmem::stream_backend<adversarial>);

/// Makes the memory of each rank; the seed chooses freedoms.
struct adversarial_ranks {
  using type = adversarial;
  std::uint64_t seed = 1;
  type operator()(std::uint32_t rank, chunkmem::bytes device, chunkmem::bytes host) const
  {
    return type{{.device_capacity = device,
                 .host_capacity = host,
                 .when = static_cast<schedule>(seed % 3),
                 .seed = seed + rank,
                 .async_compute = seed % 2 == 0}};
  }
};

}  // namespace support
