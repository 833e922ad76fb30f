// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/network_costs.hpp>
#include <chunkmem/collective/ordered_sum.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace collective {

/// Counts of one rank's end of a group, by operation. Tests compare them with the formulas of bytes for each step.
///
///     const collective_counts seen = ranks.counts();
///     std::cout << seen[operation::all_gather].sent << " B sent\n";
struct collective_counts {
  struct entry {
    std::uint64_t calls = 0;
    std::uint64_t sent = 0;              ///< [bytes]
    std::uint64_t received = 0;          ///< [bytes]
    std::uint64_t busy_nanoseconds = 0;  ///< on the links, without waits for them

    [[nodiscard]] constexpr bool operator==(const entry&) const noexcept = default;
    constexpr entry& operator+=(const entry& other) noexcept
    {
      calls += other.calls;
      sent += other.sent;
      received += other.received;
      busy_nanoseconds += other.busy_nanoseconds;
      return *this;
    }
  };
  static constexpr std::size_t operations = static_cast<std::size_t>(operation::exchange) + 1;

  std::array<entry, operations> entries{};

  [[nodiscard]] constexpr const entry& operator[](operation what) const noexcept
  {
    return entries[static_cast<std::size_t>(what)];
  }
  [[nodiscard]] constexpr entry& operator[](operation what) noexcept { return entries[static_cast<std::size_t>(what)]; }
  [[nodiscard]] constexpr entry total() const noexcept
  {
    entry all;
    for (const entry& each : entries) all += each;
    return all;
  }
  [[nodiscard]] constexpr bool operator==(const collective_counts&) const noexcept = default;
};

/// One rank that stands for all ranks of a simulated machine. An operation with other ranks only moves the clock of its
/// agent on.
///
/// - All ranks do the same at the same time. So each operation lasts as long as network_costs says, and no rank waits
///   for a late one.
/// - A rank has one link to its node and one to the network, each both ways at once. An operation keeps the links that
///   it uses from its start to its end.
/// - Operations of all agents queue for the links, in the order in which they were enqueued. A later operation waits,
///   also where an earlier one still waits for an event. Rings behave like this: they send as much as they receive. The
///   model is pessimistic for a send next to a receive, and for routes by node, whose two parts could follow each
///   other.
/// - Copies to and from the host have links of their own in backend::simulated.
/// - `network_costs::work` passes on the clock of the caller, who computes, once an operation is enqueued.
///
/// No operation fails and none has a deadline: `check` never throws, `revoke` does nothing, and no calls are compared.
/// `exchange` returns this rank's words for every rank, and takes no time.
///
/// Cost: O(1) for each call, without allocation; `exchange` O(ranks).
///
/// Use:
///
///     collective::simulated_ranks ranks{costs};          // of network_costs
///     cm::sharded_model<backend::simulated, collective::simulated_ranks> m{clocks, ranks, options};
///
/// @threads   one caller at a time
class simulated_ranks {
 public:
  using policy_kind = communicator_kind;
  static constexpr std::string_view name = "simulated_ranks";

  /// @param rank   the rank whose bytes are counted: of unequal shares, the first ones are the largest
  /// @throws config_error   the costs are invalid; usage_error   no such rank
  explicit simulated_ranks(const network_costs& costs, rank_id rank = rank_id{0}) : costs_{costs}, rank_{rank}
  {
    costs_.check();
    require_rank(rank);
  }
  /// A second group of the same rank, such as the ranks of its node. It shares the links of `beside`, which outlives
  /// it.
  simulated_ranks(const network_costs& costs, rank_id rank, simulated_ranks& beside) : simulated_ranks{costs, rank}
  {
    links_ = beside.links_;
  }
  simulated_ranks(const simulated_ranks&) = delete;
  simulated_ranks& operator=(const simulated_ranks&) = delete;

  [[nodiscard]] rank_id rank() const noexcept { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return costs_.ranks(); }
  [[nodiscard]] const network_costs& costs() const noexcept { return costs_; }
  [[nodiscard]] const collective_counts& counts() const noexcept { return counts_; }
  void clear_counts() noexcept { counts_ = {}; }

  /// @throws usage_error   the shards are for another number of ranks, or no such agent: no time passed, nothing was
  ///                       counted; the same for all calls below
  void all_gather(backend::simulated& backend, agent stream, std::byte*, const shares& parts, std::uint32_t)
  {
    require(parts);
    run(backend, stream, operation::all_gather, costs_.all_gather(parts),
        ring_traffic::of_all_gather(parts, index_of(rank_)));
  }
  /// @throws usage_error   also where such elements cannot be summed
  void reduce_scatter(backend::simulated& backend, agent stream, std::byte*, const shares& parts, sum how,
                      std::uint32_t)
  {
    require(parts);
    require_summable(how, parts.whole);
    run(backend, stream, operation::reduce_scatter, costs_.reduce_scatter(parts),
        ring_traffic::of_reduce_scatter(parts, index_of(rank_)));
  }
  /// @throws usage_error   also where such elements are not added; size_overflow   twice the bytes need more than 64
  ///   bits
  void all_reduce(backend::simulated& backend, agent stream, std::byte*, const shares& parts, sum how, std::uint32_t)
  {
    require(parts);
    require_summable(how, parts.whole);
    run(backend, stream, operation::all_reduce, costs_.all_reduce(parts),
        ring_traffic::of_all_reduce(parts, index_of(rank_)));
  }
  /// @throws usage_error   also where there is no such rank
  void broadcast(backend::simulated& backend, agent stream, std::byte*, bytes size, rank_id root, std::uint32_t)
  {
    require_rank(root);
    run(backend, stream, operation::broadcast, costs_.broadcast(size),
        ring_traffic::of_broadcast(size, index_of(rank_), index_of(root), ranks()));
  }
  /// @throws usage_error   also where there is no such rank, or it is this one
  void send(backend::simulated& backend, agent stream, std::byte*, bytes size, rank_id to, std::uint32_t)
  {
    meet(backend, stream, operation::send, size, to, {size.count(), 0});
  }
  void receive(backend::simulated& backend, agent stream, std::byte*, bytes size, rank_id from, std::uint32_t)
  {
    meet(backend, stream, operation::receive, size, from, {0, size.count()});
  }
  void barrier(backend::simulated& backend, agent stream, std::uint32_t)
  {
    run(backend, stream, operation::barrier, costs_.barrier(), {});
  }

  /// @throws usage_error   `all` is not as long as all ranks' words
  void exchange(std::span<const std::uint64_t> mine, std::span<std::uint64_t> all)
  {
    if (all.size() != mine.size() * ranks())
      throw usage_error{error_text{} << "chunkmem: an exchange of " << mine.size() << " words between " << ranks()
                                     << " ranks needs room for " << mine.size() * ranks() << ", not " << all.size()
                                     << " (give room for all ranks' words)"};
    for (std::size_t index = 0; index < all.size(); ++index) all[index] = mine[index % mine.size()];
    ++counts_[operation::exchange].calls;
  }
  void check() const noexcept {}
  void revoke() noexcept {}

 private:
  /// When each link is free [ns].
  struct links {
    std::uint64_t peers = 0;
    std::uint64_t network = 0;
  };

  void require(const shares& parts) const
  {
    if (parts.ranks != ranks())
      throw usage_error{error_text{} << "chunkmem: shares for " << parts.ranks << " ranks were given to a group of "
                                     << ranks() << " (make them for it)"};
  }
  void require_rank(rank_id other) const
  {
    if (index_of(other) >= ranks())
      throw usage_error{error_text{} << "chunkmem: no such rank: " << index_of(other) << ", the group has " << ranks()
                                     << " (count from 0)"};
  }
  void meet(backend::simulated& backend, agent stream, operation what, bytes size, rank_id other, ring_traffic moved)
  {
    require_rank(other);
    if (other == rank_) throw usage_error{"a rank sends to itself, or receives from itself (name another rank)"};
    const bool inside = index_of(other) / costs_.of_node == index_of(rank_) / costs_.of_node;
    run(backend, stream, what, costs_.send(size, inside), moved, inside, !inside);
  }
  void run(backend::simulated& backend, agent stream, operation what, std::uint64_t cost, ring_traffic moved)
  {
    run(backend, stream, what, cost, moved, costs_.of_node > 1, costs_.nodes > 1);
  }
  void run(backend::simulated& backend, agent stream, operation what, std::uint64_t cost, ring_traffic moved,
           bool peers, bool network)
  {
    const std::uint64_t ready = later_of(backend.clock(stream), backend.now());
    if (cost != 0) {
      std::uint64_t begin = ready;
      if (peers) begin = later_of(begin, links_->peers);
      if (network) begin = later_of(begin, links_->network);
      const std::uint64_t waited = begin - ready;
      backend.advance(stream, cost > UINT64_MAX - waited ? UINT64_MAX : waited + cost);
      if (peers) links_->peers = backend.clock(stream);
      if (network) links_->network = backend.clock(stream);
    }
    if (const double lost = work_of(what, moved); lost > 0)
      backend.advance(agent::host, static_cast<std::uint64_t>(lost * 1e9));
    counts_[what] += {1, moved.sent, moved.received, cost};
  }
  /// The time that the caller loses to an operation [s].
  [[nodiscard]] double work_of(operation what, const ring_traffic& moved) const noexcept
  {
    const double both_ways = static_cast<double>(moved.sent) + static_cast<double>(moved.received);
    const bool is_pair = what == operation::send || what == operation::receive;
    return is_pair ? costs_.work.of_send(both_ways) : costs_.work.of_group(ranks(), both_ways / 2);
  }
  [[nodiscard]] static constexpr std::uint64_t later_of(std::uint64_t one, std::uint64_t other) noexcept
  {
    return one < other ? other : one;
  }

  network_costs costs_;
  rank_id rank_;
  links own_;
  links* links_ = &own_;  // or another group's
  collective_counts counts_;
};

static_assert(communicator<simulated_ranks, backend::simulated>);

}  // namespace collective

}  // namespace chunkmem::inline v0
