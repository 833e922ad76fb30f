// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>

#include <time.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <thread>
#include <utility>
#include <vector>

namespace support {

/// What time is on a throttled_arena.
enum class pace : std::uint8_t {
  wall_clock,  ///< agents sleep until their deadlines
  /// The processor time of the calling thread, and what it waited for deadlines. Nobody sleeps: a wait for a deadline
  /// moves the clock. Other programs that take the processor, and threads that wake up late, change nothing.
  caller,
};

/// A host_arena whose copies and kernels take the time of a cost table: real threads, real waits, real bytes, slowed
/// down.
///
/// An operation does its work and is over at its deadline: its planned time after the latest of the deadline of the
/// same agent's last one, those of the events that it waits for, and the moment when it was asked for. Deadlines
/// follow from deadlines, so what a thread wakes up late does not add up. By the wall clock, what takes longer than
/// planned is late, and nothing hides it. By the caller's time it is not seen.
///
/// @threads   one caller at a time, from any thread; by the caller's time always the same thread
class throttled_arena {
 public:
  static constexpr bool host_addressable = true;

  throttled_arena(const chunkmem::backend::host_arena_options& options, const chunkmem::backend::cost_table& costs,
                  pace time = pace::wall_clock)
      : arena_{options}, costs_{costs}, pace_{time}, has_compute_thread_{options.async_compute}, began_{reading()}
  {
    ends_.fill({moment{}});
  }

  [[nodiscard]] chunkmem::bytes capacity(chunkmem::tier where) const noexcept { return arena_.capacity(where); }
  [[nodiscard]] std::byte* allocate(chunkmem::tier where, chunkmem::bytes size)
  {
    std::byte* const place = arena_.allocate(where, size);
    tiers_[place] = {where, size};
    return place;
  }
  void release(chunkmem::tier where, std::byte* place) noexcept
  {
    tiers_.erase(place);
    arena_.release(where, place);
  }

  void copy(std::byte* to, const std::byte* from, chunkmem::bytes size) { copy(to, from, size, chunkmem::agent::host); }
  void fill(std::byte* to, std::byte value, chunkmem::bytes size) { fill(to, value, size, chunkmem::agent::host); }
  void copy(std::byte* to, const std::byte* from, chunkmem::bytes size, chunkmem::agent stream)
  {
    const std::uint64_t lasts = costs_.between(tier_of(from), tier_of(to)).nanoseconds_for(size);
    const moment begin = start_of(stream);
    arena_.copy(to, from, size, stream);
    end_at(stream, begin, lasts);
  }
  void fill(std::byte* to, std::byte value, chunkmem::bytes size, chunkmem::agent stream)
  {
    const std::uint64_t lasts = costs_.between(tier_of(to), tier_of(to)).nanoseconds_for(size);
    const moment begin = start_of(stream);
    arena_.fill(to, value, size, stream);
    end_at(stream, begin, lasts);
  }
  template <class Callable>
  void launch(chunkmem::agent stream, Callable&& work)
  {
    const moment begin = start_of(stream);
    arena_.launch(stream, std::forward<Callable>(work));
    end_at(stream, begin, costs_.launch_nanoseconds);
  }

  /// An agent works for a while, as on backend::simulated.
  void advance(chunkmem::agent stream, std::uint64_t nanoseconds) { end_at(stream, start_of(stream), nanoseconds); }

  /// What is asked for from now on takes the time of another table.
  void take_costs(const chunkmem::backend::cost_table& costs) noexcept { costs_ = costs; }

  /// By the wall clock: the caller did something else until now, which is not to be made up for.
  void begin_afresh() { note(chunkmem::agent::host, std::max(ends_[index_of(chunkmem::agent::host)].back(), time())); }
  /// By the caller's time: the caller does something else, and time stands still for all agents.
  void stop_clock() noexcept
  {
    passed_ = time();
    is_stopped_ = true;
  }
  void start_clock() noexcept
  {
    began_ = reading();
    is_stopped_ = false;
  }

  [[nodiscard]] chunkmem::event record(chunkmem::agent stream) const { return arena_.record(stream); }
  void wait(chunkmem::agent stream, chunkmem::event point)
  {
    arena_.wait(stream, point);
    const auto& source = ends_[index_of(point.source)];
    const moment reached = source[std::min<std::uint64_t>(point.value, source.size() - 1)];
    if (is_caller(stream) && pace_ == pace::caller) pass_until(reached);
    note(stream, std::max(ends_[index_of(stream)].back(), reached));
  }
  chunkmem::agent adopt() { return arena_.adopt(); }
  [[nodiscard]] std::size_t agents() const noexcept { return arena_.agents(); }
  /// Time since construction, without what passed while the clock was stopped [ns].
  [[nodiscard]] std::uint64_t now() const noexcept { return static_cast<std::uint64_t>(time().count()); }
  /// By the caller's time: how much of it is no processor time, but waits for deadlines and work of `advance` [ns].
  [[nodiscard]] std::uint64_t waited() const noexcept { return static_cast<std::uint64_t>(waited_.count()); }
  [[nodiscard]] std::uint64_t throttled() const noexcept { return arena_.throttled(); }

 private:
  using moment = std::chrono::nanoseconds;  // since construction
  struct allocation {
    chunkmem::tier where{};
    chunkmem::bytes size;
  };

  [[nodiscard]] moment reading() const noexcept
  {
    timespec now{};
    ::clock_gettime(pace_ == pace::caller ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return std::chrono::seconds{now.tv_sec} + std::chrono::nanoseconds{now.tv_nsec};
  }
  [[nodiscard]] moment time() const noexcept { return is_stopped_ ? passed_ : passed_ + (reading() - began_); }
  void pass_until(moment end) noexcept
  {
    const moment now = time();
    if (end <= now) return;
    passed_ += end - now;
    waited_ += end - now;
  }

  // What was not allocated here is the caller's own memory, and that is on the host.
  [[nodiscard]] chunkmem::tier tier_of(const std::byte* place) const
  {
    const auto after = tiers_.upper_bound(place);
    if (after == tiers_.begin()) return chunkmem::tier::host;
    const auto& [begin, it] = *std::prev(after);
    return place < begin + it.size.count() ? it.where : chunkmem::tier::host;
  }

  [[nodiscard]] bool is_caller(chunkmem::agent stream) const noexcept
  {
    return stream == chunkmem::agent::host || (stream == chunkmem::agent::compute && !has_compute_thread_);
  }

  // By the wall clock the host's own time runs from deadline to deadline too, or it would be late by each time that it
  // woke up.
  [[nodiscard]] moment start_of(chunkmem::agent stream) const
  {
    const moment free = ends_[index_of(stream)].back();
    return stream == chunkmem::agent::host && pace_ == pace::wall_clock ? free : std::max(free, time());
  }

  void end_at(chunkmem::agent stream, moment begin, std::uint64_t nanoseconds)
  {
    const moment until = begin + std::chrono::nanoseconds{nanoseconds};
    if (pace_ == pace::wall_clock) {
      const std::chrono::steady_clock::time_point wakes{began_ - passed_ + until};
      arena_.launch(stream, [wakes] { std::this_thread::sleep_until(wakes); });
    } else if (is_caller(stream)) {
      pass_until(until);
    }
    note(stream, until);
  }

  // The deadline of all that the agent was given so far, for each value that an event of it may have.
  void note(chunkmem::agent stream, moment end)
  {
    auto& ends = ends_[index_of(stream)];
    ends.resize(std::max<std::size_t>(ends.size(), arena_.record(stream).value + 1), end);
    ends.back() = end;
  }

  chunkmem::backend::host_arena arena_;
  chunkmem::backend::cost_table costs_;
  pace pace_;
  bool has_compute_thread_;
  bool is_stopped_ = false;
  moment began_;     // when the clock was started, as it reads
  moment passed_{};  // before that
  moment waited_{};  // of that, without the processor
  std::map<const std::byte*, allocation> tiers_;
  std::array<std::vector<moment>, chunkmem::max_agents> ends_;
};

static_assert(chunkmem::stream_backend<throttled_arena>);

}  // namespace support
