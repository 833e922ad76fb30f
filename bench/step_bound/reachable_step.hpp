// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "critical_path.hpp"
#include "step_work.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace step_bound {

/// The least mean time of an iteration that repeats with given decisions.
struct reachable_step {
  double nanoseconds = 0;  ///< the largest of the busy times and of the chain
  double compute = 0;      ///< busy times of one iteration [ns]
  double to_device = 0;
  double to_host = 0;
  double host = 0;
  double collective = 0;
  std::vector<chain_link> chain;  ///< longer than all busy times, or empty; ends where it began, iterations later

  [[nodiscard]] double busiest() const noexcept { return std::max({compute, to_device, to_host, host, collective}); }
};

/// The most accesses that are not merged.
inline constexpr std::size_t most_chained_accesses = 1'500;

namespace detail {

[[nodiscard]] inline double sum_of(std::span<const work_piece> pieces)
{
  return std::accumulate(pieces.begin(), pieces.end(), 0.0,
                         [](double sum, const work_piece& it) { return sum + it.nanoseconds; });
}

/// The accesses at which a piece begins, ends or leaves. If there are too many, every so many of them.
[[nodiscard]] inline std::vector<std::uint32_t> accesses_with_work(const step_work& work)
{
  const std::int64_t all = work.clock().access_count();
  std::vector<bool> has_work(static_cast<std::size_t>(all));
  has_work[0] = true;
  for (const auto& pieces : {work.loads(), work.write_backs(), work.updates()})
    for (const work_piece& it : pieces)
      for (const std::int64_t access_index : {it.from, it.to, it.leaves})
        if (access_index != work_piece::never)
          has_work[static_cast<std::size_t>((access_index % all + all) % all)] = true;
  std::vector<std::uint32_t> access_indices;
  for (std::uint32_t index = 0; index < has_work.size(); ++index)
    if (has_work[index]) access_indices.push_back(index);
  if (access_indices.size() <= most_chained_accesses) return access_indices;
  for (std::size_t index = 0; index < most_chained_accesses; ++index)
    access_indices[index] = access_indices[index * access_indices.size() / most_chained_accesses];
  access_indices.resize(most_chained_accesses);
  return access_indices;
}

/// Room in units of copy time: the whole chunks that fit, at the rate of the slowest chunk.
[[nodiscard]] inline std::vector<double> room_as_time(const step_work& work, const step_input& input,
                                                      const cm::backend::link_cost& link,
                                                      std::span<const std::uint32_t> access_indices)
{
  std::uint64_t unit = 0;
  double slowest = 0;
  for (const std::uint64_t size : input.chunk_bytes) {
    unit = std::gcd(unit, size);
    slowest = std::max(slowest, static_cast<double>(link.nanoseconds_for(cm::bytes{size})) / static_cast<double>(size));
  }
  std::vector<double> room;
  for (const std::uint32_t index : access_indices) {
    const std::uint64_t whole = unit == 0 ? 0 : work.room()[index] / unit * unit;
    room.push_back(static_cast<double>(whole) * slowest);
  }
  return room;
}

}  // namespace detail

/// A lower bound of the time of an iteration, for every order of its copies and of its updates on the host.
///
/// The bound is the largest of the busy times and of all chains of these constraints between accesses:
/// - compute takes the accesses in order;
/// - a link makes one copy at a time, and the host one update at a time;
/// - a load waits for the last use, the write-back and the updates of its chunk;
/// - an update waits for its write-backs, and for the access that it has to follow;
/// - at each access, loaded bytes fit next to the chunks that are used and that stay.
///
/// No schedule is faster. Some schedules come within a few per cent (the first and the last chunk of a chain). If more
/// than `most_chained_accesses` accesses have work, the accesses between are merged. A piece that begins or ends at a
/// merged access then counts from the access before, or to the access after, which makes the bound weaker. Cost:
/// O(accesses^2) after merging, some 0.1 s for 1,500.
///
/// @throws usage_error   as step_work
[[nodiscard]] inline reachable_step find_reachable_step(const step_input& input)
{
  const step_work work{input};
  reachable_step found;
  found.compute = work.clock().whole();
  found.to_device = detail::sum_of(work.loads());
  found.to_host = detail::sum_of(work.write_backs());
  found.host = detail::sum_of(work.updates());
  found.collective = static_cast<double>(input.collective_nanoseconds);
  const std::vector<std::uint32_t> access_indices = detail::accesses_with_work(work);
  critical_path chains{work.clock(), access_indices};
  chains.add_queue(work.loads(), chain_kind::loads);
  chains.add_queue(work.updates(), chain_kind::updates);
  chains.add_queue(work.write_backs(), chain_kind::write_backs);
  chains.add_room(work.loads(), detail::room_as_time(work, input, input.to_device, access_indices));
  chains.add_leaving(work.write_backs(), detail::room_as_time(work, input, input.to_host, access_indices));
  found.nanoseconds = chains.longest(found.busiest(), found.chain);
  return found;
}

}  // namespace step_bound
