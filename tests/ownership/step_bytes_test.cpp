// SPDX-License-Identifier: Apache-2.0
// Walks training steps rank by rank and compares the bytes of their links with the formulas of
// docs/policies/ownership.md.
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <support/catch.hpp>

#include <cstdint>

namespace step_bytes_test {

using namespace chunkmem;
using backend::simulated;
using collective::network_costs;
using collective::operation;
using collective::simulated_ranks;
using ownership::collective_step;
using ownership::collective_steps;
using ownership::owned_chunk;
using ownership::process_group;
using ownership::rank_world;

namespace {

/// The divided data of a model: states; gradients too; parameters too.
enum class stage { one, two, three };
enum class reduce { each, last };

struct training {
  stage divided = stage::three;
  reduce when = reduce::each;
  std::uint32_t micro_batches = 1;
  std::uint32_t chunks = 1;
  std::uint64_t chunk_bytes = 256;  ///< 16-bit parameters
  std::uint32_t kept = 0;           ///< of the first chunks: gathered from forward to backward
};

/// One rank's step: which chunk is used when, and the operations that an ownership names for it.
template <class Policy>
class rank_walk {
 public:
  rank_walk(const Policy& policy, const network_costs& costs, rank_id rank)
      : policy_{policy},
        world_{costs.ranks(), costs.of_node},
        rank_{rank},
        all_{costs, rank},
        node_{costs.inside_node(), rank_id{world_.place_in(process_group::node, rank)}, all_},
        across_{costs.across_nodes(), rank_id{world_.place_in(process_group::across, rank)}, all_}
  {
  }
  simulated_ranks& in(process_group group)
  {
    return group == process_group::all ? all_ : group == process_group::node ? node_ : across_;
  }
  std::uint64_t received()
  {
    return all_.counts().total().received + node_.counts().total().received + across_.counts().total().received;
  }
  std::uint64_t busy()
  {
    return all_.counts().total().busy_nanoseconds + node_.counts().total().busy_nanoseconds +
           across_.counts().total().busy_nanoseconds;
  }

  void step(const training& how)
  {
    for (std::uint32_t micro_batch = 0; micro_batch < how.micro_batches; ++micro_batch) {
      gathered_ = nothing;
      if (how.divided == stage::three)
        for (std::uint32_t index = 0; index < how.chunks; ++index) use(chunk(how, index));
      gathered_ = nothing;
      for (std::uint32_t index = how.chunks; index-- > 0;) {
        if (how.divided == stage::three && index >= how.kept) use(chunk(how, index));
        if (how.when == reduce::each || micro_batch + 1 == how.micro_batches) reduce_behind(chunk(how, index));
      }
    }
    gathered_ = nothing;
    if (how.divided != stage::three)  // updated parameters, for everybody
      for (std::uint32_t index = 0; index < how.chunks; ++index) use(chunk(how, index));
  }

 private:
  static constexpr std::uint32_t nothing = UINT32_MAX;

  static owned_chunk chunk(const training& how, std::uint32_t index)
  {
    return {chunk_id{index}, bytes{how.chunk_bytes}, how.chunks};
  }

  void use(const owned_chunk& one)
  {
    const collective_steps steps = policy_.fetch(one, rank_, world_);
    if (gathered_ == index_of(steps.items[0].first)) return;  // it came with its group
    gathered_ = index_of(steps.items[0].first);
    carry_out(steps);
  }
  void reduce_behind(const owned_chunk& one)
  {
    const collective_steps steps = policy_.reduction(one, rank_, world_);
    if (steps.items[0].first == one.id) carry_out(steps);  // backwards, the first of a run is done last
  }
  void carry_out(const collective_steps& steps)
  {
    const collective::sum add{.type = dtype::bfloat16};
    for (const collective_step& it : steps) {
      simulated_ranks& ranks = in(it.among);
      const std::uint32_t place = index_of(ranks.rank());
      if (it.what == operation::all_gather) ranks.all_gather(mem_, agent::compute, nullptr, it.parts, 0);
      if (it.what == operation::reduce_scatter) ranks.reduce_scatter(mem_, agent::compute, nullptr, it.parts, add, 0);
      if (it.what == operation::all_reduce) ranks.all_reduce(mem_, agent::compute, nullptr, it.parts, add, 0);
      if (it.what == operation::broadcast)
        ranks.broadcast(mem_, agent::compute, nullptr, bytes{it.parts.whole}, rank_id{it.root}, 0);
      if (it.what == operation::send)
        ranks.send(mem_, agent::compute, nullptr, bytes{it.parts.size(place)}, rank_id{it.root}, 0);
      if (it.what == operation::receive)
        for (std::uint32_t from = 0; from < ranks.ranks(); ++from)
          if (from != place) ranks.receive(mem_, agent::compute, nullptr, bytes{it.parts.size(from)}, rank_id{from}, 0);
    }
  }

  Policy policy_;
  rank_world world_;
  rank_id rank_;
  simulated mem_{{.host_runs_ahead = true}};
  simulated_ranks all_;
  simulated_ranks node_;
  simulated_ranks across_;
  std::uint32_t gathered_ = nothing;
};

network_costs nodes_of(std::uint32_t of_node, std::uint32_t nodes)
{
  return {.of_node = of_node, .nodes = nodes, .peer_bytes_per_second = 300e9, .network_bytes_per_second = 25e9};
}

/// The bytes that all ranks receive; `each` gets every rank's walk.
template <class Policy, class See>
std::uint64_t all_receive(const Policy& policy, const network_costs& costs, const training& how, See&& each)
{
  std::uint64_t received = 0;
  for (std::uint32_t rank = 0; rank < costs.ranks(); ++rank) {
    rank_walk<Policy> walk{policy, costs, rank_id{rank}};
    walk.step(how);
    each(walk);
    received += walk.received();
  }
  return received;
}
template <class Policy>
std::uint64_t all_receive(const Policy& policy, const network_costs& costs, const training& how)
{
  return all_receive(policy, costs, how, [](auto&) {});
}

}  // namespace

TEST_CASE("stage 3 moves (4k + 2k) M (W-1)/W bytes to each rank with reduce_each, and 2 M less for what is kept",
          "[ownership]")
{
  const std::uint32_t chunks = 5;
  for (const std::uint32_t ranks : {1U, 2U, 3U, 7U, 8U, 64U})
    for (const std::uint32_t k : {1U, 2U, 4U})
      for (const std::uint64_t size : {std::uint64_t{256} * ranks * 3, std::uint64_t{1'000'004}, std::uint64_t{2}}) {
        CAPTURE(ranks, k, size);
        const std::uint64_t m = chunks * size / 2;  // parameters
        training how{.micro_batches = k, .chunks = chunks, .chunk_bytes = size};
        const bool even = size % (256 * ranks) == 0;
        const auto each_once = [&](auto& walk) {
          CHECK(walk.in(process_group::all).counts()[operation::all_gather].calls == 2 * k * chunks);
          CHECK(walk.in(process_group::all).counts()[operation::reduce_scatter].calls == k * chunks);
          if (even) CHECK(walk.received() * ranks == (4 * k + 2 * k) * m * (ranks - 1));
        };
        CHECK(all_receive(ownership::sharded{}, nodes_of(ranks, 1), how, each_once) ==
              (4 * k + 2 * k) * m * (ranks - 1));
        how.when = reduce::last;
        CHECK(all_receive(ownership::sharded{}, nodes_of(ranks, 1), how) == (4 * k + 2) * m * (ranks - 1));
        how.when = reduce::each;
        how.kept = 2;
        const std::uint64_t kept = 2 * size / 2;  // parameters
        CHECK(all_receive(ownership::sharded{}, nodes_of(ranks, 1), how) == (6 * k * m - 2 * k * kept) * (ranks - 1));
      }
}

TEST_CASE("stage 2 moves (2k + 2) M (W-1)/W bytes to each rank, and stage 1 moves 4 M (W-1)/W", "[ownership]")
{
  for (const std::uint32_t ranks : {1U, 2U, 3U, 8U})
    for (const std::uint32_t k : {1U, 2U, 4U})
      for (const std::uint64_t size : {std::uint64_t{256} * ranks * 3, std::uint64_t{1'000'004}}) {
        CAPTURE(ranks, k, size);
        const std::uint64_t m = 5 * size / 2;
        training how{.divided = stage::two, .micro_batches = k, .chunks = 5, .chunk_bytes = size};
        const bool even = size % (256 * ranks) == 0;
        CHECK(all_receive(ownership::sharded{}, nodes_of(ranks, 1), how, [&](auto& walk) {
                if (even) CHECK(walk.received() * ranks == (2 * k + 2) * m * (ranks - 1));
              }) == (2 * k + 2) * m * (ranks - 1));
        how.divided = stage::one;
        how.when = reduce::last;
        CHECK(all_receive(ownership::sharded{}, nodes_of(ranks, 1), how, [&](auto& walk) {
                if (even) CHECK(walk.received() * ranks == 4 * m * (ranks - 1));
              }) == 4 * m * (ranks - 1));
      }
}

TEST_CASE("PatrickStar's groups move 6 M (W-1)/W bytes to each rank and nothing for dummies", "[ownership]")
{
  for (const std::uint32_t ranks : {1U, 2U, 3U, 8U})
    for (const std::uint32_t chunks : {1U, 7U, 8U, 24U}) {
      CAPTURE(ranks, chunks);
      const std::uint64_t size = 256 * 11;
      const std::uint64_t m = chunks * size / 2;
      const training how{.chunks = chunks, .chunk_bytes = size};
      const std::uint32_t groups = (chunks + ranks - 1) / ranks;
      CHECK(all_receive(ownership::whole{}, nodes_of(ranks, 1), how, [&](auto& walk) {
              CHECK(walk.in(process_group::all).counts()[operation::all_gather].calls == 2 * groups);
              CHECK(walk.in(process_group::all).counts()[operation::reduce_scatter].calls == groups);
              if (chunks % ranks == 0) CHECK(walk.received() * ranks == 6 * m * (ranks - 1));
            }) == 6 * m * (ranks - 1));
    }
}

TEST_CASE("broadcasts move the same, and sums that come together 2 M (W-1)/W^2 bytes more", "[ownership]")
{
  const ownership::whole alone{.fetched = ownership::whole::run::alone};
  for (const std::uint32_t ranks : {1U, 2U, 3U, 8U}) {
    CAPTURE(ranks);
    const std::uint64_t size = std::uint64_t{256} * ranks * 3;
    const std::uint64_t m = 10 * size / 2;
    const std::uint64_t received =
        all_receive(alone, nodes_of(ranks, 1), {.chunks = 10, .chunk_bytes = size},
                    [&](auto& walk) { CHECK(walk.in(process_group::all).counts()[operation::broadcast].calls == 20); });
    CHECK(received * ranks == 6 * m * (ranks - 1) * ranks + 2 * m * (ranks - 1));
  }
}

TEST_CASE("hierarchical moves 6 k M (d-1)/d bytes inside nodes and 4 k (M/d) (N-1)/N between them", "[ownership]")
{
  for (const std::uint32_t of_node : {1U, 2U, 8U})
    for (const std::uint32_t nodes : {1U, 2U, 3U})
      for (const std::uint32_t k : {1U, 3U}) {
        CAPTURE(of_node, nodes, k);
        const std::uint64_t size = std::uint64_t{256} * of_node * nodes * 3;
        const std::uint64_t m = 5 * size / 2;
        const training how{.micro_batches = k, .chunks = 5, .chunk_bytes = size};
        all_receive(ownership::hierarchical{}, nodes_of(of_node, nodes), how, [&](auto& walk) {
          CHECK(walk.in(process_group::node).counts().total().received == 6 * k * m / of_node * (of_node - 1));
          CHECK(walk.in(process_group::across).counts().total().received == 4 * k * m / of_node / nodes * (nodes - 1));
          CHECK(walk.in(process_group::all).counts().total().calls == 0);
        });
        const training uneven{.micro_batches = k, .chunks = 5, .chunk_bytes = 1'000'004};
        const std::uint64_t parameters = 5 * 1'000'004 / 2;
        CHECK(all_receive(ownership::hierarchical{}, nodes_of(of_node, nodes), uneven) ==
              6 * k * parameters * (of_node - 1) * nodes + 4 * k * parameters * (nodes - 1));
      }
}

TEST_CASE("links are busy longer for one owner's chunks than for shares, and longer for small ones", "[ownership]")
{
  const auto busy = [](const auto& policy, const training& how) {
    rank_walk walk{policy, nodes_of(8, 1), rank_id{0}};
    walk.step(how);
    return walk.busy();
  };
  const ownership::whole alone{.fetched = ownership::whole::run::alone};
  const training large{.chunks = 16, .chunk_bytes = 64 << 20};
  const training small{.chunks = 16 * 64, .chunk_bytes = 1 << 20};  // as one operation for each tensor
  CHECK(busy(ownership::sharded{}, large) < busy(alone, large));
  CHECK(busy(ownership::sharded{}, large) < busy(ownership::sharded{}, small));
  CHECK(busy(ownership::sharded{}, small) < busy(alone, small));
  CHECK(busy(ownership::whole{}, large) < busy(ownership::sharded{}, large));  // the same bytes in fewer starts
}

}  // namespace step_bytes_test
