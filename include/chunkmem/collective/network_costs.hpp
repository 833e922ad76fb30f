// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/message_work.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/workload/machine.hpp>

#include <cstdint>
#include <limits>

namespace chunkmem::inline v0 {

namespace collective {

/// The costs of operations of ranks: W = `of_node` d times `nodes` N ranks, with the ranks of a node next to each
/// other.
///
/// With a share of s bytes, a and b the time of a start and of a byte on a link, i inside a node, n between nodes, o
/// the slower of both:
///
/// | operation | time |
/// |---|---|
/// | all_gather, one ring | (W-N) a_i + (N-1) a_n + (W-1) s b_o |
/// | all_gather, by node | (N-1) (a_n + s b_n) + (d-1) (a_i + N s b_i) |
/// | all_gather, direct | a_o + (N-1) d s b_n + (d-1) s b_i |
/// | reduce_scatter | as all_gather; adding is not counted |
/// | all_reduce | both |
/// | broadcast of z bytes | a chain of h hops: h_i a_i + (N-1) a_n + (z + (h-1) min(z, segment)) b_o |
/// | | with h_i = W-N of one ring, d-1 else; h = h_i + N-1 |
/// | send, receive | a + z b |
/// | barrier | ceil(log2 d) a_i + ceil(log2 N) a_n |
///
/// and once `start` for each.
///
/// - In one node the first is the ring of Thakur, Rabenseifner, Gropp 2005 (IJHPCA 19:1), (W-1) (a + z/W b). So z
///   (W-1)/W bytes over its time, without starts, are the link's rate: NCCL's "bus bandwidth".
/// - Starts of gathers in rings over several nodes are counted as in NCCL's own model (src/graph/tuning.cc), without
///   its additions for network interfaces. all_reduce is two gathers; NCCL has two more starts between nodes.
/// - Barriers disseminate (Hensgen, Finkel, Manber 1988).
/// - Unequal shares cost as much as equal shares of the largest size. One rank, or no bytes, cost nothing.
///
/// Good for comparing plans on machines that you do not have. Not modelled: trees, sums in switches, links that
/// several ranks of a node share (a rate is that of a device while all devices of its node copy), and other users.
///
/// Use:
///
///     const network_costs costs = network_costs::of(machine);
///     ... costs.all_gather(shares::of(chunk_bytes, costs.ranks()))   // [ns]
struct network_costs {
  enum class route : std::uint8_t {
    ring,     ///< one ring over all ranks: between nodes one device's rate is all
    by_node,  ///< across nodes each device by its own rate, then inside of each node: never slower than a ring
    direct,   ///< each device sends to every other one at once, as `collective::mpi` does; broadcasts as by_node
  };

  std::uint32_t of_node = 1;
  std::uint32_t nodes = 1;
  double peer_bytes_per_second = 0;     ///< one device to others of its node, one direction
  double network_bytes_per_second = 0;  ///< one device to another node, one direction
  // Defaults: NCCL 2.2x for rings of its protocol for large messages, over NVLink and InfiniBand (src/graph/tuning.cc).
  std::uint64_t start_nanoseconds = 8'400;     ///< of an operation
  std::uint64_t peer_nanoseconds = 3'400;      ///< of a step inside a node
  std::uint64_t network_nanoseconds = 14'000;  ///< of a step between nodes
  /// bytes that a broadcast passes on at once: NCCL's buffer of 4 MiB in 8 steps
  bytes segment{std::uint64_t{512} << 10};
  route way = route::by_node;
  message_work work{};  ///< of the ranks' own processors; the times below have none of it

  [[nodiscard]] constexpr bool operator==(const network_costs&) const noexcept = default;

  /// All ranks of a machine, with the defaults above. @throws config_error   the machine is invalid
  [[nodiscard]] static constexpr network_costs of(const workload::machine& whole)
  {
    whole.check();
    network_costs costs;
    costs.of_node = whole.devices;
    costs.nodes = whole.nodes;
    costs.peer_bytes_per_second = whole.rates.peer_bytes_per_second;
    costs.network_bytes_per_second = whole.rates.network_bytes_per_second;
    return costs;
  }
  /// The costs of the ranks of one node, and of the ranks in one place of every node.
  [[nodiscard]] constexpr network_costs inside_node() const noexcept
  {
    network_costs part = *this;
    part.nodes = 1;
    return part;
  }
  [[nodiscard]] constexpr network_costs across_nodes() const noexcept
  {
    network_costs part = *this;
    part.of_node = 1;
    return part;
  }

  /// @throws config_error   no ranks or more than 2^20, or a link that is needed has no rate
  constexpr void check() const
  {
    const auto is_rate = [](double it) { return it > 0 && it <= std::numeric_limits<double>::max(); };
    if (of_node == 0 || nodes == 0) throw config_error{"network costs of no ranks (give of_node and nodes 1 or more)"};
    if (std::uint64_t{of_node} * nodes > workload::machine::most_ranks)
      throw config_error{"network costs of more than 2^20 ranks (ask for fewer)"};
    if (of_node > 1 && !is_rate(peer_bytes_per_second))
      throw config_error{"peer_bytes_per_second is not above 0, and a node has several ranks (give the rate)"};
    if (nodes > 1 && !is_rate(network_bytes_per_second))
      throw config_error{"network_bytes_per_second is not above 0, and there are several nodes (give the rate)"};
  }
  [[nodiscard]] constexpr std::uint32_t ranks() const noexcept { return of_node * nodes; }

  /// Times of one operation from start to end on every rank [ns], rounded up; they saturate.
  /// @pre   check() does not throw
  [[nodiscard]] constexpr std::uint64_t all_gather(const shares& parts) const noexcept
  {
    return parts.whole == 0 ? 0 : once(gathering(static_cast<double>(parts.each)));
  }
  [[nodiscard]] constexpr std::uint64_t reduce_scatter(const shares& parts) const noexcept { return all_gather(parts); }
  [[nodiscard]] constexpr std::uint64_t all_reduce(const shares& parts) const noexcept
  {
    return parts.whole == 0 ? 0 : once(2 * gathering(static_cast<double>(parts.each)));
  }
  [[nodiscard]] constexpr std::uint64_t broadcast(bytes size) const noexcept
  {
    if (size == bytes{} || ranks() == 1) return 0;
    const double inside = way == route::ring ? ranks() - nodes : of_node - 1;
    const double between = nodes - 1;
    const double filled = (inside + between - 1) * static_cast<double>(size < segment ? size.count() : segment.count());
    return once(starts(inside, between) + (static_cast<double>(size.count()) + filled) * slower());
  }
  /// The time of a send, and of its receive. @param inside   both ranks share a node
  [[nodiscard]] constexpr std::uint64_t send(bytes size, bool inside) const noexcept
  {
    if (size == bytes{}) return 0;
    return once(inside ? starts(1, 0) + static_cast<double>(size.count()) * of_byte(peer_bytes_per_second)
                       : starts(0, 1) + static_cast<double>(size.count()) * of_byte(network_bytes_per_second));
  }
  [[nodiscard]] constexpr std::uint64_t barrier() const noexcept
  {
    return once(starts(rounds(of_node), rounds(nodes)));
  }

 private:
  [[nodiscard]] static constexpr double of_byte(double rate) noexcept { return 1e9 / rate; }
  [[nodiscard]] constexpr double slower() const noexcept
  {
    if (nodes == 1) return of_byte(peer_bytes_per_second);
    if (of_node == 1 || network_bytes_per_second < peer_bytes_per_second) return of_byte(network_bytes_per_second);
    return of_byte(peer_bytes_per_second);
  }
  [[nodiscard]] constexpr double starts(double inside, double between) const noexcept
  {
    return inside * static_cast<double>(peer_nanoseconds) + between * static_cast<double>(network_nanoseconds);
  }
  /// @pre   several ranks, or missing rates are not used
  [[nodiscard]] constexpr double gathering(double share) const noexcept
  {
    if (ranks() == 1) return 0;
    const double between = nodes - 1;
    const double inside = of_node - 1;
    if (way == route::ring) return starts(inside * nodes, between) + (inside * nodes + between) * share * slower();
    if (way == route::direct) return all_at_once(share);
    double time = starts(inside, between);
    if (nodes > 1) time += between * share * of_byte(network_bytes_per_second);
    if (of_node > 1) time += inside * nodes * share * of_byte(peer_bytes_per_second);
    return time;
  }
  /// Messages of a device share its link to other nodes, and its link inside its node.
  [[nodiscard]] constexpr double all_at_once(double share) const noexcept
  {
    const double start_inside = of_node > 1 ? static_cast<double>(peer_nanoseconds) : 0;
    const double start_between = nodes > 1 ? static_cast<double>(network_nanoseconds) : 0;
    double time = start_inside < start_between ? start_between : start_inside;
    if (nodes > 1) time += static_cast<double>(nodes - 1) * of_node * share * of_byte(network_bytes_per_second);
    if (of_node > 1) time += static_cast<double>(of_node - 1) * share * of_byte(peer_bytes_per_second);
    return time;
  }
  [[nodiscard]] static constexpr std::uint32_t rounds(std::uint32_t ranks) noexcept
  {
    std::uint32_t count = 0;
    while ((std::uint64_t{1} << count) < ranks) ++count;
    return count;
  }
  [[nodiscard]] constexpr std::uint64_t once(double nanoseconds) const noexcept
  {
    if (ranks() == 1) return 0;
    const double time = nanoseconds + static_cast<double>(start_nanoseconds);
    if (!(time < 9e18)) return UINT64_MAX;
    const auto whole = static_cast<std::uint64_t>(time);
    return whole + (static_cast<double>(whole) < time ? 1 : 0);
  }
};

}  // namespace collective

}  // namespace chunkmem::inline v0
