#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/ownership/ownership_policy.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace conformance {

namespace detail {

using namespace chunkmem;
using ownership::circle;
using ownership::collective_step;
using ownership::collective_steps;
using ownership::owned_chunk;
using ownership::owned_range;
using ownership::rank_world;

/// What every rank has of a run, one number for each byte; steps are carried out to the letter.
class step_room {
 public:
  static constexpr std::uint32_t junk = 0xdeadbeef;

  step_room(const rank_world& world, std::uint64_t size)
      : world_{world}, places_(world.ranks, std::vector<std::uint32_t>(size, junk))
  {
  }
  std::vector<std::uint32_t>& of(std::uint32_t rank) { return places_[rank]; }

  /// @param steps   of every rank
  void carry_out(const std::vector<collective_steps>& steps)
  {
    for (const collective_steps& each : steps) REQUIRE(each.count == steps[0].count);
    for (std::uint32_t at = 0; at < steps[0].count; ++at) {
      std::map<std::uint32_t, std::vector<std::uint32_t>> circles;
      for (std::uint32_t rank = 0; rank < world_.ranks; ++rank) {
        const circle who = steps[rank].items[at].among;
        REQUIRE(who == steps[0].items[at].among);
        const std::uint32_t key = who == circle::all ? 0 : who == circle::node ? rank / world_.of_node : rank % world_.of_node;
        circles[key].push_back(rank);
      }
      for (const auto& [key, members] : circles) {
        std::vector<collective_step> named;
        for (const std::uint32_t rank : members) named.push_back(steps[rank].items[at]);
        together(members, named);
      }
    }
  }

 private:
  void together(const std::vector<std::uint32_t>& members, const std::vector<collective_step>& named)
  {
    using collective::operation;
    const collective_step& step = named[0];
    REQUIRE(step.parts.ranks == members.size());
    REQUIRE(step.root < members.size());
    REQUIRE(step.begin + step.parts.whole <= places_[0].size());
    for (std::uint32_t at = 0; at < named.size(); ++at) {
      collective_step same = named[at];
      if (same.what == operation::send || same.what == operation::receive) {
        INFO("the root receives, and the others send");
        REQUIRE(same.what == (at == same.root ? operation::receive : operation::send));
        same.what = step.what;
      }
      INFO("ranks of one circle name different steps");
      REQUIRE(same == step);
    }
    std::vector<std::vector<std::uint32_t>> before;
    for (const std::uint32_t rank : members) before.push_back(places_[rank]);
    for (std::uint32_t share = 0; share < members.size(); ++share)
      for (std::uint64_t byte = step.begin + step.parts.begin(share); byte < step.begin + step.parts.end(share); ++byte) {
        std::uint32_t sum = 0;
        for (const auto& each : before) sum += each[byte];
        for (std::uint32_t at = 0; at < members.size(); ++at) {
          std::uint32_t& here = places_[members[at]][byte];
          switch (step.what) {
            case operation::all_gather: here = before[share][byte]; break;
            case operation::reduce_scatter: here = at == share ? sum : junk; break;
            case operation::all_reduce: here = sum; break;
            case operation::broadcast: here = before[step.root][byte]; break;
            case operation::send:
            case operation::receive: here = at == step.root ? before[share][byte] : here; break;
            default: FAIL("a step of an ownership is a " << name_of(step.what));
          }
        }
      }
  }

  rank_world world_;
  std::vector<std::vector<std::uint32_t>> places_;
};

/// What is wrong with the owned ranges of a chunk; empty: nothing. One answer for all ranks, since checks are slow.
template <class Policy>
std::string fault_of_ranges(const Policy& policy, const owned_chunk& chunk, const rank_world& world)
{
  struct owners {
    std::uint64_t end = 0;
    std::uint32_t count = 0;
  };
  std::map<std::uint64_t, owners> ranges;  // by where they begin
  const Policy copy = policy;
  for (std::uint32_t rank = 0; rank < world.ranks; ++rank) {
    const owned_range own = policy.owned(chunk, rank_id{rank}, world);
    if (copy.owned(chunk, rank_id{rank}, world) != own) return "a copy of the ownership gives another range";
    if (own.begin > own.end || own.end > chunk.size.count()) return "an owned range is none of the chunk";
    if (own.begin == own.end) continue;
    if (own.begin % tensor_alignment.count() != 0) return "an owned range begins at no multiple of 256 B";
    owners& known = ranges[own.begin];
    if (known.count++ != 0 && known.end != own.end) return "owned ranges overlap without being equal";
    known.end = own.end;
  }
  std::uint64_t reached = 0;
  for (const auto& [begin, known] : ranges) {
    if (begin != reached) return "owned ranges of a chunk leave a hole or overlap";
    if (known.count != ranges.begin()->second.count) return "some bytes have more owners than others";
    reached = known.end;
  }
  return reached == chunk.size.count() ? "" : "nobody owns the end of a chunk";
}

/// One run of one ownership on bytes: what ranks have before, the steps, and what they should have behind them.
template <class Policy>
class run_on_bytes {
 public:
  run_on_bytes(const Policy& policy, const owned_chunk& chunk, const rank_world& world, bool sums)
      : policy_{policy}, chunk_{chunk}, world_{world}, sums_{sums}, room_{world, policy.room(chunk, world).count()}
  {
    const collective_steps steps = steps_of(chunk, 0);
    if (steps.count != 0) first_ = index_of(steps.items[0].first), count_ = steps.items[0].chunks;
  }
  void check()
  {
    REQUIRE(first_ <= index_of(chunk_.id));
    REQUIRE(index_of(chunk_.id) - first_ < count_);
    REQUIRE(first_ + count_ <= chunk_.chunks);
    INFO("the room of a chunk is too small for its run");
    REQUIRE(room_.of(0).size() >= (count_ - 1) * stride() + chunk_.size.count());
    std::vector<std::uint32_t> total(room_.of(0).size());
    each_byte([&](std::uint32_t rank, std::uint64_t byte, bool is_owned) {
      if (!sums_ && !is_owned) return;
      room_.of(rank)[byte] = truth(rank, byte);
      total[byte] += truth(rank, byte);
    });
    std::vector<collective_steps> steps;
    for (std::uint32_t rank = 0; rank < world_.ranks; ++rank) steps.push_back(steps_of(chunk_, rank));
    room_.carry_out(steps);
    std::uint64_t wrong = 0;
    each_byte([&](std::uint32_t rank, std::uint64_t byte, bool is_owned) {
      if (!sums_ || is_owned) wrong += room_.of(rank)[byte] != (sums_ ? total[byte] : truth(rank, byte)) ? 1U : 0U;
    });
    INFO("bytes are not what they should be behind the steps");
    REQUIRE(wrong == 0);
  }
  void check_other_chunks()
  {
    for (std::uint32_t member = 0; member < count_; ++member)
      for (std::uint32_t rank = 0; rank < world_.ranks; ++rank) {
        const collective_steps same = steps_of(chunk_at(member), rank);
        INFO("a run is another one for another of its chunks");
        REQUIRE(same == steps_of(chunk_, rank));
      }
  }

 private:
  collective_steps steps_of(const owned_chunk& chunk, std::uint32_t rank) const
  {
    return sums_ ? policy_.reduction(chunk, rank_id{rank}, world_) : policy_.fetch(chunk, rank_id{rank}, world_);
  }
  owned_chunk chunk_at(std::uint32_t member) const { return {chunk_id{first_ + member}, chunk_.size, chunk_.chunks}; }
  std::uint64_t stride() const { return align_up(chunk_.size, tensor_alignment).count(); }
  std::uint32_t truth(std::uint32_t rank, std::uint64_t byte) const
  {
    return static_cast<std::uint32_t>((sums_ ? (rank + 1) * 2'654'435'761U : 1U) * (byte + 7));
  }
  template <class See>
  void each_byte(See&& see)
  {
    for (std::uint32_t rank = 0; rank < world_.ranks; ++rank)
      for (std::uint32_t member = 0; member < count_; ++member) {
        const owned_range own = policy_.owned(chunk_at(member), rank_id{rank}, world_);
        for (std::uint64_t byte = 0; byte < chunk_.size.count(); ++byte)
          see(rank, member * stride() + byte, byte >= own.begin && byte < own.end);
      }
  }

  const Policy& policy_;
  owned_chunk chunk_;
  rank_world world_;
  bool sums_;
  step_room room_;
  std::uint32_t first_ = index_of(chunk_.id);
  std::uint32_t count_ = 1;
};

template <class Policy>
void steps_do_what_they_say(const Policy& policy, const owned_chunk& chunk, const rank_world& world)
{
  for (const bool sums : {false, true}) {
    CAPTURE(sums);
    run_on_bytes run{policy, chunk, world, sums};
    run.check();
    run.check_other_chunks();
  }
}

/// What all ranks send is what all receive.
template <class Policy>
void bytes_balance(const Policy& policy, const owned_chunk& chunk, const rank_world& world)
{
  for (const bool sums : {false, true}) {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (std::uint32_t rank = 0; rank < world.ranks; ++rank) {
      const collective_steps steps =
          sums ? policy.reduction(chunk, rank_id{rank}, world) : policy.fetch(chunk, rank_id{rank}, world);
      sent += steps.traffic(rank_id{rank}, world).sent;
      received += steps.traffic(rank_id{rank}, world).received;
    }
    INFO("what ranks send is not what they receive");
    REQUIRE(sent == received);
    if (world.ranks == 1) REQUIRE(received == 0);
  }
}

}  // namespace detail

/// The laws of ownership_policy: on numbers for 1 to 64 ranks, on bytes for up to 9 and nodes of every size.
template <chunkmem::ownership_policy Policy>
void ownership_policy_laws(const Policy& policy = {})
{
  using namespace detail;
  for (std::uint32_t ranks = 1; ranks <= 64; ++ranks)
    for (std::uint32_t of_node = 1; of_node <= ranks; ++of_node) {
      if (ranks % of_node != 0) continue;
      const rank_world world{ranks, of_node};
      for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{256}, std::uint64_t{257},
                                       std::uint64_t{65'537}, std::uint64_t{1'000'003}, std::uint64_t{1} << 50})
        for (const std::uint32_t index : {1U, 2 * ranks}) {
          CAPTURE(ranks, of_node, size, index);
          const owned_chunk chunk{chunk_id{index}, bytes{size}, 2 * ranks + 1};
          REQUIRE(fault_of_ranges(policy, chunk, world) == "");
          bytes_balance(policy, chunk, world);
          if (ranks <= 9 && size <= 257) steps_do_what_they_say(policy, chunk, world);
        }
      if (ranks <= 9) steps_do_what_they_say(policy, {chunk_id{ranks / 2}, bytes{2'053}, ranks}, world);
    }
}

}  // namespace conformance
