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
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace support {

/// The meaning of time on a throttled_arena.
enum class pace : std::uint8_t {
  wall_clock,  ///< agents sleep until their deadlines
  /// The processor time of the calling thread, and its waits for deadlines. No thread sleeps: a wait for a deadline
  /// moves the clock. Other programs that take the processor, and threads that wake up late, change nothing.
  caller,
  /// Each agent has a clock, which its thread keeps: an operation begins at the latest of the clocks of its agent, of
  /// all that the agent waits for, and of the caller at the time of the request. Threads sleep until the time of their
  /// clocks, so that they meet in this order. The caller's clock is its processor time and its waits. Ranks that pass
  /// on clocks with their bytes share one time (throttled_ranks), whichever thread wakes up late.
  agents,
};

/// A wait of an agent and its cause, in the time of its clock.
struct agent_wait {
  std::uint32_t place = 0;  ///< the caller's work at the request, see throttled_arena::note_place
  chunkmem::agent source{};
  std::uint64_t nanoseconds = 0;
};

/// The costs of a machine on which only copies between device and host take time.
[[nodiscard]] inline chunkmem::backend::cost_table links_alone(double to_device_bytes_per_second,
                                                               double to_host_bytes_per_second)
{
  constexpr double at_once = 1e15;
  return {.to_device = {0, to_device_bytes_per_second},
          .to_host = {0, to_host_bytes_per_second},
          .within_device = {0, at_once},
          .within_host = {0, at_once},
          .launch_nanoseconds = 0};
}

/// A line that one transfer at a time crosses, in the order of clocks. A transfer that is requested later in real time,
/// and is earlier by its clock, takes time in which the line was idle.
/// @threads   any
class line_by_clocks {
 public:
  using moment = std::chrono::nanoseconds;

  /// @return   the time at which it has crossed the line, if it may begin from `now` on
  [[nodiscard]] moment serve(moment now, moment lasts)
  {
    const std::lock_guard lock{mutex_};
    busy_ += lasts;
    if (lasts == moment{}) return now;
    auto next = uses_.upper_bound(now);  // the first use that begins later
    if (next != uses_.begin()) now = std::max(now, std::prev(next)->second);
    for (; next != uses_.end() && next->first < now + lasts; ++next) now = std::max(now, next->second);
    uses_.emplace(now, now + lasts);
    return now + lasts;
  }
  /// Busy time so far.
  [[nodiscard]] moment busy()
  {
    const std::lock_guard lock{mutex_};
    return busy_;
  }

 private:
  std::mutex mutex_;
  std::map<moment, moment> uses_;  // begin and end; they do not overlap
  moment busy_{};
};

/// A host_arena whose copies and kernels take the time of a cost table: real threads, real waits, real bytes, slowed
/// down.
///
/// An operation does its work and is over at its deadline: its planned time after the latest of the deadline of the
/// same agent's last operation, those of the events that it waits for, and the time of the request. Deadlines follow
/// from deadlines, so late wake-ups do not accumulate. By the wall clock, an operation that takes longer than planned
/// is late, and nothing hides it. By the caller's time it is not noticed. By the agents' clocks, all agents that copy
/// between the tiers in one direction share the link.
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
    if (pace_ == pace::agents) clocks_.fill(steady_time());
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
    if (pace_ == pace::agents && tier_of(from) != tier_of(to)) return cross_link(tier_of(to), stream, begin, lasts);
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

  using moment = std::chrono::nanoseconds;  ///< since construction; by the agents' clocks since the boot of the machine

  /// By the agents' clocks: the agent's clock becomes `end_of(now)`, on the agent. @tparam EndOf   at most 64 bytes
  template <class EndOf>
  void move_clock(chunkmem::agent stream, EndOf end_of)
  {
    const moment asked = start_of(chunkmem::agent::host);
    std::atomic<moment::rep>& mark = marks_.emplace_back(0);
    arena_.launch(stream, [this, stream, asked, &mark, end_of, place = place_]() noexcept {
      moment& clock = clocks_[index_of(stream)];
      if (stream == chunkmem::agent::compute && asked > clock)
        note_wait(waits_[index_of(stream)], place, chunkmem::agent::host, asked - clock);
      clock = end_of(std::max(clock, asked));
      sleep_until(clock);
      mark = clock.count();
    });
    remember(stream, mark);
  }
  /// By the agents' clocks: that of the caller. @pre of `advance_caller`: not before it
  [[nodiscard]] moment caller_clock() { return start_of(chunkmem::agent::host); }
  void advance_caller(moment end)
  {
    clocks_[index_of(chunkmem::agent::host)] = std::max(caller_clock(), end);
    sleep_until(end);
  }
  /// By the agents' clocks: records waits of compute and of the caller for this place from now on.
  void note_place(std::uint32_t place) noexcept { place_ = place; }
  /// The waits of an agent so far. @pre the agent is idle
  [[nodiscard]] std::vector<agent_wait>& waits_of(chunkmem::agent stream) { return waits_[index_of(stream)]; }

  /// Later requests take the time of another table.
  void take_costs(const chunkmem::backend::cost_table& costs) noexcept { costs_ = costs; }

  /// By the wall clock: the caller was busy elsewhere until now, and this time is not made up for.
  void begin_afresh()
  {
    if (pace_ == pace::agents) return advance_caller(steady_time());
    note(chunkmem::agent::host, std::max(ends_[index_of(chunkmem::agent::host)].back(), time()));
  }
  /// By the caller's time: the caller is busy elsewhere, and time stands still for all agents.
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
    if (pace_ == pace::agents) return wait_by_clocks(stream, point);
    arena_.wait(stream, point);
    const auto& source = ends_[index_of(point.source)];
    const moment reached = source[std::min<std::uint64_t>(point.value, source.size() - 1)];
    if (is_caller(stream) && pace_ == pace::caller) pass_until(reached);
    note(stream, std::max(ends_[index_of(stream)].back(), reached));
  }
  chunkmem::agent adopt() { return arena_.adopt(); }
  [[nodiscard]] std::size_t agents() const noexcept { return arena_.agents(); }
  /// Time since construction, without the time for which the clock was stopped [ns].
  [[nodiscard]] std::uint64_t now() const noexcept { return static_cast<std::uint64_t>(time().count()); }
  /// By the caller's time: the part that is not processor time, but waits for deadlines and work of `advance` [ns].
  [[nodiscard]] std::uint64_t waited() const noexcept { return static_cast<std::uint64_t>(waited_.count()); }
  [[nodiscard]] std::uint64_t throttled() const noexcept { return arena_.throttled(); }

 private:
  struct allocation {
    chunkmem::tier where{};
    chunkmem::bytes size;
  };

  [[nodiscard]] moment reading() const noexcept
  {
    timespec now{};
    ::clock_gettime(pace_ == pace::wall_clock ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds{now.tv_sec} + std::chrono::nanoseconds{now.tv_nsec};
  }
  [[nodiscard]] moment time() const noexcept
  {
    if (pace_ == pace::agents) return clocks_[index_of(chunkmem::agent::host)] + (reading() - began_);
    return is_stopped_ ? passed_ : passed_ + (reading() - began_);
  }
  void pass_until(moment end) noexcept
  {
    const moment now = time();
    if (end <= now) return;
    passed_ += end - now;
    waited_ += end - now;
  }

  // Memory that was not allocated here is the caller's own, and that is on the host.
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

  // By the wall clock the host's own time runs from deadline to deadline too, else it would be late by each of its
  // wake-ups.
  [[nodiscard]] moment start_of(chunkmem::agent stream)
  {
    if (pace_ == pace::agents) {  // an agent knows when it is free
      const moment now = reading();
      return clocks_[index_of(chunkmem::agent::host)] += now - std::exchange(began_, now);
    }
    const moment free = ends_[index_of(stream)].back();
    return stream == chunkmem::agent::host && pace_ == pace::wall_clock ? free : std::max(free, time());
  }

  void cross_link(chunkmem::tier to, chunkmem::agent stream, moment begin, std::uint64_t nanoseconds)
  {
    const moment lasts{static_cast<moment::rep>(nanoseconds)};
    line_by_clocks& link = links_[to];
    if (!is_caller(stream)) return move_clock(stream, [&link, lasts](moment now) { return link.serve(now, lasts); });
    end_at(stream, link.serve(begin, lasts), 0);
  }

  void end_at(chunkmem::agent stream, moment begin, std::uint64_t nanoseconds)
  {
    const moment until = begin + std::chrono::nanoseconds{nanoseconds};
    if (pace_ == pace::agents && !is_caller(stream))
      return move_clock(stream, [nanoseconds](moment now) { return now + std::chrono::nanoseconds{nanoseconds}; });
    if (pace_ == pace::agents) {
      advance_caller(until);
      std::atomic<moment::rep>& mark = marks_.emplace_back(clocks_[index_of(chunkmem::agent::host)].count());
      return remember(stream, mark);
    }
    if (pace_ == pace::wall_clock) {
      const std::chrono::steady_clock::time_point wakes{began_ - passed_ + until};
      arena_.launch(stream, [wakes] { std::this_thread::sleep_until(wakes); });
    } else if (is_caller(stream)) {
      pass_until(until);
    }
    note(stream, until);
  }

  // Records the deadline of all work of the agent so far, for each value that an event of it may have.
  void note(chunkmem::agent stream, moment end)
  {
    auto& ends = ends_[index_of(stream)];
    ends.resize(std::max<std::size_t>(ends.size(), arena_.record(stream).value + 1), end);
    ends.back() = end;
  }

  [[nodiscard]] static moment steady_time() noexcept { return std::chrono::steady_clock::now().time_since_epoch(); }
  static void sleep_until(moment when) noexcept
  {
    std::this_thread::sleep_until(std::chrono::steady_clock::time_point{when});
  }
  // Records the clock of the agent after all its work so far, for each value that an event of it may have.
  void remember(chunkmem::agent stream, std::atomic<moment::rep>& mark)
  {
    auto& all = mark_of_[index_of(stream)];
    all.resize(std::max<std::size_t>(all.size(), arena_.record(stream).value + 1), &mark);
    all.back() = &mark;
  }
  void wait_by_clocks(chunkmem::agent stream, chunkmem::event point)
  {
    const auto& source = mark_of_[index_of(point.source)];
    std::atomic<moment::rep>* const reached =
        point.value < source.size() ? source[point.value] : (source.empty() ? nullptr : source.back());
    arena_.wait(stream, point);
    if (reached == nullptr || point.source == stream) return;
    if (is_caller(stream)) {
      const moment now = caller_clock();
      const moment end{reached->load()};
      if (end > now) note_wait(waits_[index_of(chunkmem::agent::host)], place_, point.source, end - now);
      return advance_caller(end);
    }
    move_clock(stream, [this, reached, stream, source_agent = point.source, place = place_](moment now) {
      const moment end{reached->load()};
      if (end > now && stream == chunkmem::agent::compute)
        note_wait(waits_[index_of(stream)], place, source_agent, end - now);
      return std::max(now, end);
    });
  }
  static void note_wait(std::vector<agent_wait>& all, std::uint32_t place, chunkmem::agent source, moment waited)
  {
    all.push_back({place, source, static_cast<std::uint64_t>(waited.count())});
  }

  // By the agents' clocks. Before the arena, whose threads use them to their end.
  std::uint32_t place_ = 0;
  std::array<moment, chunkmem::max_agents> clocks_{};  // each is its agent's
  std::array<std::vector<agent_wait>, chunkmem::max_agents> waits_;
  std::deque<std::atomic<moment::rep>> marks_;
  chunkmem::per_tier<line_by_clocks> links_;  // to this tier
  std::array<std::vector<std::atomic<moment::rep>*>, chunkmem::max_agents> mark_of_;

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
