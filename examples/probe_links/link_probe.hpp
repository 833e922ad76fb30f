// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "median.hpp"
#include "meetings.hpp"
#include "process_group.hpp"

#include <chunkmem/configurator/link_matrix.hpp>

#include <mpi.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace probe_links {

/// Times messages between this process and its partners by MPI alone.
///
/// Clocks of two computers differ, so the sender times both ways: its message, and an empty answer. A round trip of two
/// empty messages contains both latencies too. So the time of a large message is its round trip less the empty one, and
/// the rate of a direction is right also where the two directions differ. The two latencies cannot be told apart
/// without a common clock: each direction gets half of the round trip, and their sum is right.
class link_probe {
 public:
  /// @throws std::bad_alloc   no memory for a message
  link_probe(const process_group& all, std::uint64_t size, std::uint32_t rounds)
      : all_{&all}, rounds_{rounds}, message_(size, std::byte{1})
  {
  }

  /// Every rank measures the same phases, and waits for the others between them.
  void measure(const std::vector<std::optional<meeting>>& phases)
  {
    for (std::uint32_t phase = 0; phase < phases.size(); ++phase) measure(phases[phase], phase);
  }

  /// Of the meetings in which this process was the sender: numbers for `measured_links`.
  [[nodiscard]] const std::vector<double>& records() const noexcept { return records_; }

 private:
  static constexpr std::size_t round_trips = 25;
  using clock = std::chrono::steady_clock;

  void measure(const std::optional<meeting>& now, std::uint32_t phase)
  {
    all_->barrier();
    const double round_trip = now ? median_round_trip(*now) : 0;
    if (now && now->sends)
      records_.insert(records_.end(), {static_cast<double>(now->from_node), static_cast<double>(now->to_node),
                                       static_cast<double>(phase), round_trip});
    for (std::uint32_t round = 0; round <= rounds_; ++round) {
      all_->barrier();  // so that the devices of a node begin together
      const double taken = now ? exchange(*now, message_.size()) : 0;
      const bool warms_up = round == 0;
      // A message that is no slower than an empty one is noise, so at least half of its time counts for its bytes.
      if (now && now->sends && !warms_up) records_.push_back(std::max(taken - round_trip, taken / 2));
    }
  }

  double median_round_trip(const meeting& now)
  {
    std::vector<double> all;
    while (all.size() < round_trips) all.push_back(exchange(now, 0));
    return median(all);
  }

  /// A message and its empty answer. @return   for the sender [s]
  double exchange(const meeting& now, std::size_t size)
  {
    const int peer = static_cast<int>(now.peer);
    const int count = static_cast<int>(size);
    if (!now.sends) {
      wait_for_message(peer, 0);
      require_mpi("receiving", MPI_Recv(message_.data(), count, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      require_mpi("answering", MPI_Send(nullptr, 0, MPI_BYTE, peer, 1, MPI_COMM_WORLD));
      return 0;
    }
    const auto begin = clock::now();
    require_mpi("sending", MPI_Send(message_.data(), count, MPI_BYTE, peer, 0, MPI_COMM_WORLD));
    wait_for_message(peer, 1);
    require_mpi("receiving the answer", MPI_Recv(nullptr, 0, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    return std::chrono::duration<double>(clock::now() - begin).count();
  }

  /// Blocking waits of MPI use a whole processor. Where a process has a quota, the waits exhaust it, and the pauses are
  /// measured as latency. So after a short time the polls sleep in between. The time is that of several sleeps, since
  /// sleeps of one end make the other one wait.
  static void wait_for_message(int peer, int tag)
  {
    const auto begin = clock::now();
    for (int is_there = 0; is_there == 0;) {
      require_mpi("waiting for a message", MPI_Iprobe(peer, tag, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE));
      if (is_there == 0 && clock::now() - begin > std::chrono::microseconds{400})
        std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
  }

  const process_group* all_;
  std::uint32_t rounds_;
  std::vector<std::byte> message_;
  std::vector<double> records_;  // from, to, phase, round trip, then the seconds of each round
};

/// The links from node to node, and the spread of each link's rates.
struct measured_links {
  chunkmem::configurator::link_matrix links;
  std::vector<double> spread;  ///< element from * nodes + to
};

/// The links from the records of all ranks.
///
/// The devices of a node send together, and the slowest of them determines the time of a round. A link has the median
/// of its rounds. A node of one device has no link to itself: that entry stays unchanged.
[[nodiscard]] inline measured_links links_of(const std::vector<double>& records, std::uint32_t nodes,
                                             std::uint64_t size, std::uint32_t rounds)
{
  const std::size_t length = 4 + rounds;
  std::map<std::tuple<double, double, double>, std::vector<double>> slowest;  // of a phase: round trip, rounds
  for (std::size_t at = 0; at + length <= records.size(); at += length) {
    std::vector<double>& times = slowest[{records[at], records[at + 1], records[at + 2]}];
    times.resize(length - 3);
    for (std::size_t index = 0; index < times.size(); ++index)
      times[index] = std::max(times[index], records[at + 3 + index]);
  }
  struct samples {
    std::vector<double> round_trips, rates;
  };
  std::map<std::pair<double, double>, samples> of_link;
  for (const auto& [key, times] : slowest) {
    samples& all = of_link[{std::get<0>(key), std::get<1>(key)}];
    all.round_trips.push_back(times[0]);
    for (std::size_t round = 1; round < times.size(); ++round)
      all.rates.push_back(static_cast<double>(size) / times[round]);
  }
  measured_links found{chunkmem::configurator::link_matrix{nodes}, std::vector<double>(std::size_t{nodes} * nodes)};
  for (const auto& [ends, all] : of_link) {
    const auto from = static_cast<std::uint32_t>(ends.first);
    const auto to = static_cast<std::uint32_t>(ends.second);
    found.links(from, to) = {median(all.round_trips) / 2, median(all.rates)};
    found.spread[std::size_t{from} * nodes + to] = spread(all.rates);
  }
  return found;
}

}  // namespace probe_links
