// SPDX-License-Identifier: Apache-2.0
#include <conformance/ownership_policy.hpp>

#include "verdict.hpp"

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/ownership/ownership_policy.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace wrong_ownerships_test {

using namespace chunkmem;
using collective::operation;
using collective::shares;
using ownership::collective_step;
using ownership::collective_steps;
using ownership::owned_chunk;
using ownership::owned_range;
using ownership::process_group;
using ownership::rank_world;

namespace {

shares shares_of(const owned_chunk& chunk, std::uint32_t ranks)
{
  return shares::of(chunk.size, ranks);
}
collective_steps one(const collective_step& step)
{
  return {{step}, 1};
}

// Each ownership below changes one that is right by one mistake.

/// Divides a chunk by the ranks, and rounds down to whole units.
struct rounds_shares_down : ownership::sharded {
  owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    const std::uint64_t each = chunk.size.count() / world.ranks / 256 * 256;
    return {index_of(rank) * each, (index_of(rank) + 1) * each};
  }
};
/// Divides a chunk by the ranks to the byte.
struct forgets_alignment : ownership::sharded {
  owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    const std::uint64_t each = chunk.size.count() / world.ranks + 1;
    return {std::min(index_of(rank) * each, chunk.size.count()),
            std::min((index_of(rank) + 1) * each, chunk.size.count())};
  }
};
/// Gives the last ranks whole shares, too.
struct forgets_that_the_last_is_shorter : ownership::sharded {
  owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    const std::uint64_t each = shares_of(chunk, world.ranks).each;
    return {index_of(rank) * each, (index_of(rank) + 1) * each};
  }
};
/// Counts the last unit of a share in, and the next rank counts it, too.
struct owns_a_unit_too_many : ownership::sharded {
  owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    const owned_range own = sharded::owned(chunk, rank, world);
    return {own.begin, own.begin == own.end ? own.end : std::min(own.end + 256, chunk.size.count())};
  }
};
/// Numbers ranks from 1: nobody has the first share.
struct numbers_ranks_from_one : ownership::sharded {
  owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    return sharded::owned(chunk, rank_id{index_of(rank) + 1}, world);
  }
};
/// Ranks that own nothing keep a copy of the first share, and the other shares have none.
struct copies_the_first_share : ownership::sharded {
  owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    const owned_range own = sharded::owned(chunk, rank, world);
    return own.begin == own.end ? sharded::owned(chunk, rank_id{0}, world) : own;
  }
  collective_steps reduction(const owned_chunk& chunk, rank_id, const rank_world& world) const
  {
    return one({.what = operation::all_reduce, .first = chunk.id, .parts = shares_of(chunk, world.ranks)});
  }
};
/// Changes owners with each question, so that all ranks have the same work.
struct takes_turns : ownership::sharded {
  owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    return sharded::owned(chunk, rank_id{(index_of(rank) + asked_++ / world.ranks) % world.ranks}, world);
  }
  mutable std::uint32_t asked_ = 0;
};
/// Lists all shares to find its own.
struct lists_all_shares : ownership::sharded {
  owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    std::vector<owned_range> all;
    for (std::uint32_t each = 0; each < world.ranks; ++each) all.push_back(sharded::owned(chunk, rank_id{each}, world));
    return all[index_of(rank)];
  }
};
/// Plans room for its own share, and not for what comes.
struct has_room_for_its_share : ownership::sharded {
  bytes room(const owned_chunk& chunk, const rank_world& world) const
  {
    return bytes{shares_of(chunk, world.ranks).each};
  }
};
/// Expects that all have all.
struct fetches_nothing : ownership::sharded {
  collective_steps fetch(const owned_chunk&, rank_id, const rank_world&) const { return {}; }
};
/// Gathers inside a node shares that all ranks have.
struct gathers_in_the_node : ownership::sharded {
  collective_steps fetch(const owned_chunk& chunk, rank_id, const rank_world& world) const
  {
    return one({.what = operation::all_gather,
                .among = process_group::node,
                .first = chunk.id,
                .parts = shares_of(chunk, world.of_node)});
  }
};
/// Gathers inside a node, with the shares of all ranks.
struct mixes_process_groups : ownership::hierarchical {
  collective_steps fetch(const owned_chunk& chunk, rank_id, const rank_world& world) const
  {
    return one({.what = operation::all_gather,
                .among = process_group::node,
                .first = chunk.id,
                .parts = shares_of(chunk, world.ranks)});
  }
};
/// Adds inside a node, and forgets the other nodes.
struct adds_in_the_node : ownership::hierarchical {
  collective_steps reduction(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    collective_steps steps = hierarchical::reduction(chunk, rank, world);
    steps.count = 1;
    return steps;
  }
};
/// Adds across nodes what begins at the chunk's first byte, on every rank.
struct adds_the_first_share_across : ownership::hierarchical {
  collective_steps reduction(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    collective_steps steps = hierarchical::reduction(chunk, rank, world);
    steps.items[1].begin = 0;
    return steps;
  }
};
/// Lets every rank be the root of its own broadcast.
struct is_its_own_root : ownership::whole {
  collective_steps fetch(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    return one({.what = operation::broadcast,
                .first = chunk.id,
                .parts = shares_of(chunk, world.ranks),
                .root = index_of(rank)});
  }
};
/// Spreads every chunk from rank 0.
struct spreads_from_rank_zero : ownership::whole {
  spreads_from_rank_zero() : whole{run::alone} {}
  collective_steps fetch(const owned_chunk& chunk, rank_id, const rank_world& world) const
  {
    return one({.what = operation::broadcast, .first = chunk.id, .parts = shares_of(chunk, world.ranks)});
  }
};
/// Lets the owner send the sum, and the others receive it.
struct sends_from_the_root : ownership::whole {
  sends_from_the_root() : whole{run::alone} {}
  collective_steps reduction(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    collective_steps steps = whole::reduction(chunk, rank, world);
    operation& last = steps.items[1].what;
    last = last == operation::send ? operation::receive : operation::send;
    return steps;
  }
};
/// Begins a group with the chunk that was asked for.
struct begins_a_group_anywhere : ownership::whole {
  collective_steps fetch(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    collective_steps steps = whole::fetch(chunk, rank, world);
    steps.items[0].first = chunk.id;
    return steps;
  }
};
/// Has a group of as many chunks as ranks, also at the end of the list.
struct has_groups_beyond_the_list : ownership::whole {
  collective_steps fetch(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    owned_chunk in_a_long_list = chunk;
    in_a_long_list.chunks += world.ranks;
    return whole::fetch(in_a_long_list, rank, world);
  }
};

/// Any of them, chosen when the program runs, so that the laws are compiled once. A copy has a copy of it.
class any_ownership {
  struct asked {
    virtual ~asked() = default;
    virtual std::unique_ptr<asked> copy() const = 0;
    virtual owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const = 0;
    virtual collective_steps fetch(const owned_chunk& chunk, rank_id rank, const rank_world& world) const = 0;
    virtual collective_steps reduction(const owned_chunk& chunk, rank_id rank, const rank_world& world) const = 0;
    virtual bytes room(const owned_chunk& chunk, const rank_world& world) const = 0;
  };
  template <class Policy>
  struct kept final : asked {
    std::unique_ptr<asked> copy() const override { return std::make_unique<kept>(*this); }
    owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const override
    {
      return policy.owned(chunk, rank, world);
    }
    collective_steps fetch(const owned_chunk& chunk, rank_id rank, const rank_world& world) const override
    {
      return policy.fetch(chunk, rank, world);
    }
    collective_steps reduction(const owned_chunk& chunk, rank_id rank, const rank_world& world) const override
    {
      return policy.reduction(chunk, rank, world);
    }
    bytes room(const owned_chunk& chunk, const rank_world& world) const override { return policy.room(chunk, world); }

    Policy policy;
  };

 public:
  using policy_kind = ownership_kind;
  static constexpr std::string_view name = "any_ownership";

  template <class Policy>
  [[nodiscard]] static any_ownership of()
  {
    return any_ownership{std::make_unique<kept<Policy>>()};
  }
  any_ownership(const any_ownership& other) : it_{other.it_->copy()} {}

  owned_range owned(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    return it_->owned(chunk, rank, world);
  }
  collective_steps fetch(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    return it_->fetch(chunk, rank, world);
  }
  collective_steps reduction(const owned_chunk& chunk, rank_id rank, const rank_world& world) const
  {
    return it_->reduction(chunk, rank, world);
  }
  bytes room(const owned_chunk& chunk, const rank_world& world) const { return it_->room(chunk, world); }

 private:
  explicit any_ownership(std::unique_ptr<asked> it) : it_{std::move(it)} {}

  std::unique_ptr<asked> it_;
};

template <class Policy>
laws::verdict judge(std::string_view law)
{
  return {laws::name_of<Policy>(), law,
          conformance::mistake_in_ownership_policy(any_ownership::of<Policy>(), laws::allocations_so_far)};
}

}  // namespace

TEST_CASE("the laws of ownership hold for ours, and no answer of theirs allocates", "[laws][ownership]")
{
  CHECK(conformance::mistake_in_ownership_policy<ownership::sharded>({}, laws::allocations_so_far) == "");
  CHECK(conformance::mistake_in_ownership_policy<ownership::hierarchical>({}, laws::allocations_so_far) == "");
  CHECK(conformance::mistake_in_ownership_policy<ownership::whole>({}, laws::allocations_so_far) == "");
  CHECK(conformance::mistake_in_ownership_policy(ownership::whole{ownership::whole::run::alone},
                                                 laws::allocations_so_far) == "");
}

}  // namespace wrong_ownerships_test

const laws::verdicts& laws::wrong_ownerships()
{
  using namespace wrong_ownerships_test;
  static const verdicts all{
      judge<rounds_shares_down>("nobody owns the end of a chunk"),
      judge<forgets_alignment>("an owned range begins at no multiple of 256 B"),
      judge<forgets_that_the_last_is_shorter>("an owned range is none of the chunk"),
      judge<owns_a_unit_too_many>("owned ranges of a chunk leave a hole or overlap"),
      judge<numbers_ranks_from_one>("nobody owns the end of a chunk"),
      judge<copies_the_first_share>("some bytes have more owners than others"),
      judge<takes_turns>("a copy of the ownership gives another range"),
      judge<lists_all_shares>("an answer allocated"),
      judge<has_room_for_its_share>("the room of a chunk is too small for its run"),
      judge<fetches_nothing>("a rank has not the whole run after the fetch"),
      judge<gathers_in_the_node>("a rank has not the whole run after the fetch"),
      judge<mixes_process_groups>("a step has shares for another number of ranks than its process group"),
      judge<adds_in_the_node>("a rank that owns bytes has no sum over all ranks after the reduction"),
      judge<adds_the_first_share_across>("a rank that owns bytes has no sum over all ranks after the reduction"),
      judge<is_its_own_root>("ranks of one process group name different steps"),
      judge<spreads_from_rank_zero>("a rank has not the whole run after the fetch"),
      judge<sends_from_the_root>("the root does not receive, or others do not send"),
      judge<begins_a_group_anywhere>("a run is another one for another of its chunks"),
      judge<has_groups_beyond_the_list>("a run has chunks that the list has not"),
  };
  return all;
}
