// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "node_places.hpp"
#include "process_group.hpp"

#include <chunkmem/configurator/cluster.hpp>

#include <mpi.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace probe_links {

/// A flow from one rank to another, on different nodes.
struct port_flow {
  std::uint32_t from = 0;
  std::uint32_t to = 0;

  [[nodiscard]] bool operator==(const port_flow&) const = default;
};

/// The flows that load the port of a node: one of each of its devices, and at least four where there are as many other
/// nodes. They go to the following nodes in turn, or come from there. @pre there are two nodes or more
[[nodiscard]] inline std::vector<port_flow> flows_of_port(const node_places& places, std::uint32_t node, bool leave)
{
  constexpr std::uint32_t few = 4;
  const std::uint32_t others = places.nodes() - 1;
  const std::uint32_t count = std::max(places.devices[node], std::min(others, few));
  std::vector<port_flow> all;
  for (std::uint32_t number = 0; number < count; ++number) {
    const std::uint32_t other = (node + 1 + number % others) % places.nodes();
    const std::uint32_t here = places.first_of[node] + number % places.devices[node];
    const std::uint32_t there = places.first_of[other] + number / others % places.devices[other];
    all.push_back(leave ? port_flow{here, there} : port_flow{there, here});
  }
  return all;
}

/// Times flows that share the port of a node, node by node and in both directions.
///
/// Each flow sends the same number of pieces, two of them at a time. The node whose port is measured records the time
/// at which each piece was sent or received. So it knows the bytes of all flows until the first flow ends, while all of
/// them run.
class port_probe {
 public:
  port_probe(const process_group& all, const node_places& places, std::uint64_t size, std::uint32_t rounds)
      : all_{&all}, places_{&places}, piece_{piece_of(size)}, pieces_{pieces_of(rounds)}
  {
  }

  static constexpr std::uint64_t parts = 16;  // of a large message
  [[nodiscard]] static std::uint64_t piece_of(std::uint64_t size) noexcept { return size / parts; }
  [[nodiscard]] static std::uint32_t pieces_of(std::uint32_t rounds) noexcept
  {
    return rounds * static_cast<std::uint32_t>(parts);
  }

  /// Every rank makes this call. @return   numbers for port_rates_of, of the flows that this rank timed
  /// @throws std::bad_alloc   no memory for pieces
  [[nodiscard]] std::vector<double> measure()
  {
    std::vector<double> records;
    for (std::uint32_t node = 0; node < places_->nodes() && places_->nodes() > 1; ++node)
      for (const bool leave : {true, false}) {
        const std::vector<port_flow> flows = flows_of_port(*places_, node, leave);
        all_->barrier();
        run(flows);
        for (const flow_at_work& it : at_work_) {
          if (it.sends != leave) continue;  // only one end of a flow records times
          records.push_back(static_cast<double>(node));
          records.push_back(leave ? 1 : 0);
          records.insert(records.end(), it.times.begin(), it.times.end());
        }
      }
    return records;
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t at_once = 2;

  struct flow_at_work {
    int peer = 0;
    int tag = 0;
    bool sends = false;
    std::uint32_t begun = 0;
    std::vector<std::vector<std::byte>> pieces{};
    std::vector<MPI_Request> requests{};
    std::vector<double> times{};  // of completed pieces, since the begin [s]
  };

  void run(const std::vector<port_flow>& flows)
  {
    at_work_.clear();
    for (std::size_t number = 0; number < flows.size(); ++number) {
      const auto& [from, to] = flows[number];
      if (from != all_->rank() && to != all_->rank()) continue;
      const bool sends = from == all_->rank();
      at_work_.push_back(
          {.peer = static_cast<int>(sends ? to : from), .tag = static_cast<int>(number), .sends = sends});
      at_work_.back().pieces.assign(at_once, std::vector<std::byte>(piece_, std::byte{1}));
      at_work_.back().requests.assign(at_once, MPI_REQUEST_NULL);
    }
    all_->barrier();  // all have their pieces
    const auto begin = clock::now();
    for (flow_at_work& it : at_work_)
      for (std::size_t slot = 0; slot < at_once; ++slot) start(it, slot);
    auto last = begin;
    for (bool is_over = at_work_.empty(); !is_over;) {
      is_over = true;
      bool has_ended = false;
      for (flow_at_work& it : at_work_) {
        for (std::size_t slot = 0; slot < at_once; ++slot) {
          if (it.requests[slot] == MPI_REQUEST_NULL) continue;
          int is_done = 0;
          require_mpi("testing a piece", MPI_Test(&it.requests[slot], &is_done, MPI_STATUS_IGNORE));
          if (is_done == 0) continue;
          has_ended = true;
          last = clock::now();
          it.times.push_back(std::chrono::duration<double>(last - begin).count());
          start(it, slot);
        }
        is_over = is_over && it.times.size() == pieces_;
      }
      // As in link_probe: a wait without sleeps takes the processor that messages need.
      if (!has_ended && clock::now() - last > std::chrono::microseconds{400})
        std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
  }
  void start(flow_at_work& it, std::size_t slot)
  {
    it.requests[slot] = MPI_REQUEST_NULL;
    if (it.begun == pieces_) return;
    ++it.begun;
    std::byte* const place = it.pieces[slot].data();
    const int count = static_cast<int>(piece_);
    if (it.sends)
      require_mpi("sending a piece",
                  MPI_Issend(place, count, MPI_BYTE, it.peer, it.tag, MPI_COMM_WORLD, &it.requests[slot]));
    else
      require_mpi("receiving a piece",
                  MPI_Irecv(place, count, MPI_BYTE, it.peer, it.tag, MPI_COMM_WORLD, &it.requests[slot]));
  }

  const process_group* all_;
  const node_places* places_;
  std::uint64_t piece_;
  std::uint32_t pieces_;
  std::vector<flow_at_work> at_work_;
};

/// The rates of a node's port [B/s]; 0: there is no other node.
struct port_rates {
  double out = 0;
  double in = 0;
};

/// The rates from the records of all ranks: the bytes of all flows until the first one ends, by that time.
[[nodiscard]] inline std::vector<port_rates> port_rates_of(const std::vector<double>& records, std::uint32_t nodes,
                                                           std::uint64_t size, std::uint32_t rounds)
{
  const std::size_t pieces = port_probe::pieces_of(rounds);
  std::map<std::pair<double, double>, std::vector<const double*>> flows;  // by node and direction: times of pieces
  for (std::size_t at = 0; at + 2 + pieces <= records.size(); at += 2 + pieces)
    flows[{records[at], records[at + 1]}].push_back(&records[at + 2]);
  std::vector<port_rates> all(nodes);
  for (const auto& [port, times] : flows) {
    double first_end = times.front()[pieces - 1];
    for (const double* const it : times) first_end = std::min(first_end, it[pieces - 1]);
    std::size_t ended = 0;
    for (const double* const it : times)
      ended += static_cast<std::size_t>(std::upper_bound(it, it + pieces, first_end) - it);
    const double rate = static_cast<double>(ended * port_probe::piece_of(size)) / first_end;
    port_rates& node = all[static_cast<std::size_t>(port.first)];
    (port.second > 0 ? node.out : node.in) = rate;
  }
  return all;
}

/// Nodes with these ports. Nodes of one kind whose ports differ by less than a tenth get the ports of the first of
/// them, and others get a kind of their own.
[[nodiscard]] inline std::vector<chunkmem::configurator::cluster_node> with_ports(
    const std::vector<chunkmem::configurator::cluster_node>& nodes, const std::vector<port_rates>& ports)
{
  const auto near = [](double left, double right) { return std::abs(left - right) <= 0.1 * std::max(left, right); };
  std::vector<chunkmem::configurator::cluster_node> made;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    chunkmem::configurator::cluster_node mine = nodes[node];
    mine.port_out_bytes_per_second = ports[node].out;
    mine.port_in_bytes_per_second = ports[node].in;
    const auto is_like = [&](std::size_t other) {
      return nodes[other].kind == nodes[node].kind && near(made[other].port_out_bytes_per_second, ports[node].out) &&
             near(made[other].port_in_bytes_per_second, ports[node].in);
    };
    std::size_t like = 0;
    while (like < node && !is_like(like)) ++like;
    const bool has_name = std::ranges::find(made, mine.kind, &chunkmem::configurator::cluster_node::kind) != made.end();
    if (like == node && has_name) mine.kind += "-port-" + std::to_string(node);
    made.push_back(like < node ? made[like] : mine);
  }
  return made;
}

}  // namespace probe_links
