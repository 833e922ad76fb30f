// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/cost_table.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/tier.hpp>

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

namespace simulator_bench {

/// A host_arena whose copies and kernels take the time of a cost table: real threads, real waits, real bytes, slowed
/// down.
///
/// An operation does its work and then sleeps until its deadline: its planned time after the latest of the deadline of
/// the same agent's last one, those of the events that it waits for, and the moment when it was asked for. Deadlines
/// follow from deadlines, so what a thread wakes up late does not add up. What takes longer than planned is late, and
/// nothing hides it.
///
/// @threads   one caller at a time, from any thread
class throttled_arena {
 public:
  static constexpr bool host_addressable = true;

  throttled_arena(const chunkmem::backend::host_arena_options& options, const chunkmem::backend::cost_table& costs)
      : arena_{options}, costs_{costs}
  {
    ends_.fill({clock::now()});
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
    const auto begin = start_of(stream);
    arena_.copy(to, from, size, stream);
    sleep(stream, begin, lasts);
  }
  void fill(std::byte* to, std::byte value, chunkmem::bytes size, chunkmem::agent stream)
  {
    const std::uint64_t lasts = costs_.between(tier_of(to), tier_of(to)).nanoseconds_for(size);
    const auto begin = start_of(stream);
    arena_.fill(to, value, size, stream);
    sleep(stream, begin, lasts);
  }
  template <class Callable>
  void launch(chunkmem::agent stream, Callable&& work)
  {
    const auto begin = start_of(stream);
    arena_.launch(stream, std::forward<Callable>(work));
    sleep(stream, begin, costs_.launch_nanoseconds);
  }

  /// An agent works for a while, as on backend::simulated.
  void advance(chunkmem::agent stream, std::uint64_t nanoseconds) { sleep(stream, start_of(stream), nanoseconds); }

  /// The caller did something else until now, which is not to be made up for.
  void begin_afresh()
  {
    note(chunkmem::agent::host, std::max(ends_[index_of(chunkmem::agent::host)].back(), clock::now()));
  }

  [[nodiscard]] chunkmem::event record(chunkmem::agent stream) const { return arena_.record(stream); }
  void wait(chunkmem::agent stream, chunkmem::event point)
  {
    arena_.wait(stream, point);
    const auto& source = ends_[index_of(point.source)];
    const auto reached = source[std::min<std::uint64_t>(point.value, source.size() - 1)];
    note(stream, std::max(ends_[index_of(stream)].back(), reached));
  }
  chunkmem::agent adopt() { return arena_.adopt(); }
  [[nodiscard]] std::size_t agents() const noexcept { return arena_.agents(); }
  [[nodiscard]] std::uint64_t now() const noexcept { return arena_.now(); }
  [[nodiscard]] std::uint64_t throttled() const noexcept { return arena_.throttled(); }

 private:
  using clock = std::chrono::steady_clock;
  struct allocation {
    chunkmem::tier where{};
    chunkmem::bytes size;
  };

  // What was not allocated here is the caller's own memory, and that is on the host.
  [[nodiscard]] chunkmem::tier tier_of(const std::byte* place) const
  {
    const auto after = tiers_.upper_bound(place);
    if (after == tiers_.begin()) return chunkmem::tier::host;
    const auto& [begin, it] = *std::prev(after);
    return place < begin + it.size.count() ? it.where : chunkmem::tier::host;
  }

  // The host's own time runs from deadline to deadline too, or it would be late by each time that it woke up.
  [[nodiscard]] clock::time_point start_of(chunkmem::agent stream) const
  {
    const auto free = ends_[index_of(stream)].back();
    return stream == chunkmem::agent::host ? free : std::max(free, clock::now());
  }

  void sleep(chunkmem::agent stream, clock::time_point begin, std::uint64_t nanoseconds)
  {
    const auto until = begin + std::chrono::nanoseconds{nanoseconds};
    arena_.launch(stream, [until] { std::this_thread::sleep_until(until); });
    note(stream, until);
  }

  // The deadline of all that the agent was given so far, for each value that an event of it may have.
  void note(chunkmem::agent stream, clock::time_point end)
  {
    auto& ends = ends_[index_of(stream)];
    ends.resize(std::max<std::size_t>(ends.size(), arena_.record(stream).value + 1), end);
    ends.back() = end;
  }

  chunkmem::backend::host_arena arena_;
  chunkmem::backend::cost_table costs_;
  std::map<const std::byte*, allocation> tiers_;
  std::array<std::vector<clock::time_point>, chunkmem::max_agents> ends_;
};

static_assert(chunkmem::stream_backend<throttled_arena>);

}  // namespace simulator_bench
