// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/ownership/ownership_policy.hpp>
#include <conformance/trials.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace conformance {

namespace detail {

using namespace chunkmem;
using ownership::collective_step;
using ownership::collective_steps;
using ownership::owned_chunk;
using ownership::owned_range;
using ownership::process_group;
using ownership::rank_world;

/// The bytes of every rank in a run, one number for each byte; steps are executed exactly.
class step_room {
 public:
  static constexpr std::uint32_t junk = 0xdeadbeef;

  step_room(const rank_world& world, std::uint64_t size)
      : world_{world}, places_(world.ranks, std::vector<std::uint32_t>(size, junk))
  {
  }
  std::vector<std::uint32_t>& of(std::uint32_t rank) { return places_[rank]; }

  /// @param steps   of every rank
  /// @return        the mistake; empty: none, and the steps were executed
  [[nodiscard]] std::string carry_out(const std::vector<collective_steps>& steps)
  {
    for (const collective_steps& each : steps)
      if (each.count != steps[0].count) return "ranks name different numbers of steps";
    for (std::uint32_t index = 0; index < steps[0].count; ++index) {
      std::map<std::uint32_t, std::vector<std::uint32_t>> process_groups;
      for (std::uint32_t rank = 0; rank < world_.ranks; ++rank) {
        const process_group group = steps[rank].items[index].among;
        if (group != steps[0].items[index].among) return "ranks name different process groups";
        const std::uint32_t key = group == process_group::all    ? 0
                                  : group == process_group::node ? rank / world_.of_node
                                                                 : rank % world_.of_node;
        process_groups[key].push_back(rank);
      }
      for (const auto& [key, members] : process_groups) {
        std::vector<collective_step> named;
        for (const std::uint32_t rank : members) named.push_back(steps[rank].items[index]);
        if (std::string wrong = mistake_in(members, named); !wrong.empty()) return wrong;
        together(members, named[0]);
      }
    }
    return {};
  }

 private:
  [[nodiscard]] std::string mistake_in(const std::vector<std::uint32_t>& members,
                                       const std::vector<collective_step>& named) const
  {
    using collective::operation;
    const collective_step& step = named[0];
    for (std::uint32_t index = 0; index < named.size(); ++index) {
      collective_step same = named[index];
      if (same.what == operation::send || same.what == operation::receive) {
        if (same.what != (index == same.root ? operation::receive : operation::send))
          return "the root does not receive, or others do not send";
        same.what = step.what;
      }
      if (same != step) return "ranks of one process group name different steps";
    }
    if (step.parts.ranks != members.size())
      return "a step has shares for another number of ranks than its process group";
    if (step.root >= members.size()) return "the root of a step is no rank of its process group";
    if (step.begin + step.parts.whole > places_[0].size()) return "a step reaches beyond the room";
    switch (step.what) {
      case operation::all_gather:
      case operation::reduce_scatter:
      case operation::all_reduce:
      case operation::broadcast:
      case operation::send:
      case operation::receive: return {};
      default: return "a step of an ownership is a " + std::string{name_of(step.what)};
    }
  }
  void together(const std::vector<std::uint32_t>& members, const collective_step& step)
  {
    using collective::operation;
    std::vector<std::vector<std::uint32_t>> before;
    for (const std::uint32_t rank : members) before.push_back(places_[rank]);
    for (std::uint32_t share = 0; share < members.size(); ++share)
      for (std::uint64_t byte = step.begin + step.parts.begin(share); byte < step.begin + step.parts.end(share);
           ++byte) {
        std::uint32_t sum = 0;
        for (const auto& each : before) sum += each[byte];
        for (std::uint32_t index = 0; index < members.size(); ++index) {
          std::uint32_t& here = places_[members[index]][byte];
          if (step.what == operation::all_gather)
            here = before[share][byte];
          else if (step.what == operation::reduce_scatter)
            here = index == share ? sum : junk;
          else if (step.what == operation::all_reduce)
            here = sum;
          else if (step.what == operation::broadcast)
            here = before[step.root][byte];
          else if (index == step.root)
            here = before[share][byte];  // the others send
        }
      }
  }

  rank_world world_;
  std::vector<std::vector<std::uint32_t>> places_;
};

/// The mistake in the owned ranges of a chunk; empty: none. One answer for all ranks, since checks are slow.
template <class Policy>
std::string fault_of_ranges(const Policy& policy, const owned_chunk& chunk, const rank_world& world)
{
  struct owners {
    std::uint64_t end = 0;
    std::uint32_t count = 0;
  };
  std::map<std::uint64_t, owners> ranges;  // by where they begin
  const Policy copy = policy;
  std::vector<owned_range> all;
  for (std::uint32_t rank = 0; rank < world.ranks; ++rank) all.push_back(policy.owned(chunk, rank_id{rank}, world));
  for (std::uint32_t rank = world.ranks; rank-- > 0;) {
    if (policy.owned(chunk, rank_id{rank}, world) != all[rank]) return "the same arguments gave two ranges";
    if (copy.owned(chunk, rank_id{rank}, world) != all[rank]) return "a copy of the ownership gives another range";
  }
  for (const owned_range& own : all) {
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

/// One run of one ownership on bytes: the bytes of ranks before, the steps, and the expected bytes after.
template <class Policy>
class run_on_bytes {
 public:
  run_on_bytes(const Policy& policy, const owned_chunk& chunk, const rank_world& world, bool sums)
      : policy_{policy}, chunk_{chunk}, world_{world}, sums_{sums}, room_{world, policy.room(chunk, world).count()}
  {
    const collective_steps steps = steps_of(chunk, 0);
    if (steps.count != 0) first_ = index_of(steps.items[0].first), count_ = steps.items[0].chunks;
  }
  [[nodiscard]] std::string mistake()
  {
    if (first_ > index_of(chunk_.id) || index_of(chunk_.id) - first_ >= count_)
      return "a run lacks the chunk that was asked for";
    if (first_ + count_ > chunk_.chunks) return "a run has chunks that the list has not";
    if (room_.of(0).size() < (count_ - 1) * stride() + chunk_.size.count())
      return "the room of a chunk is too small for its run";
    std::vector<std::uint32_t> total(room_.of(0).size());
    each_byte([&](std::uint32_t rank, std::uint64_t byte, bool is_owned) {
      if (!sums_ && !is_owned) return;
      room_.of(rank)[byte] = truth(rank, byte);
      total[byte] += truth(rank, byte);
    });
    std::vector<collective_steps> steps;
    for (std::uint32_t rank = 0; rank < world_.ranks; ++rank) steps.push_back(steps_of(chunk_, rank));
    if (std::string wrong = room_.carry_out(steps); !wrong.empty()) return wrong;
    std::uint64_t wrong = 0;
    each_byte([&](std::uint32_t rank, std::uint64_t byte, bool is_owned) {
      if (!sums_ || is_owned) wrong += room_.of(rank)[byte] != (sums_ ? total[byte] : truth(rank, byte)) ? 1U : 0U;
    });
    if (wrong == 0) return {};
    return sums_ ? "a rank that owns bytes has no sum over all ranks after the reduction"
                 : "a rank has not the whole run after the fetch";
  }
  [[nodiscard]] std::string mistake_in_other_chunks()
  {
    for (std::uint32_t member = 0; member < count_; ++member)
      for (std::uint32_t rank = 0; rank < world_.ranks; ++rank) {
        const collective_steps same = steps_of(chunk_at(member), rank);
        if (same != steps_of(chunk_, rank)) return "a run is another one for another of its chunks";
      }
    return {};
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
[[nodiscard]] std::string fault_of_steps(const Policy& policy, const owned_chunk& chunk, const rank_world& world)
{
  for (const bool sums : {false, true}) {
    run_on_bytes run{policy, chunk, world, sums};
    std::string wrong = run.mistake();
    if (wrong.empty()) wrong = run.mistake_in_other_chunks();
    if (!wrong.empty()) return wrong;
  }
  return {};
}

/// What all ranks send is what all receive, and answers do not depend on what was asked before.
template <class Policy>
[[nodiscard]] std::string fault_of_traffic(const Policy& policy, const owned_chunk& chunk, const rank_world& world)
{
  const Policy copy = policy;
  if (copy.room(chunk, world) != policy.room(chunk, world)) return "the same arguments gave two rooms";
  for (const bool sums : {false, true}) {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (std::uint32_t rank = 0; rank < world.ranks; ++rank) {
      const auto steps_by = [&](const Policy& asked) {
        return sums ? asked.reduction(chunk, rank_id{rank}, world) : asked.fetch(chunk, rank_id{rank}, world);
      };
      const collective_steps steps = steps_by(policy);
      if (steps_by(copy) != steps || steps_by(policy) != steps) return "the same arguments gave other steps";
      if (steps.count > steps.items.size()) return "more steps than there is room for";
      sent += steps.traffic(rank_id{rank}, world).sent;
      received += steps.traffic(rank_id{rank}, world).received;
    }
    if (sent != received) return "what ranks send is not what they receive";
    if (world.ranks == 1 && received != 0) return "a rank alone moves bytes";
  }
  return {};
}

/// The place and the case of a broken law, after its name.
inline std::string placed(const std::string& law, const owned_chunk& chunk, const rank_world& world)
{
  return law + " (chunk " + std::to_string(index_of(chunk.id)) + " of " + std::to_string(chunk.chunks) + ", " +
         std::to_string(chunk.size.count()) + " B, " + std::to_string(world.ranks) + " ranks, " +
         std::to_string(world.of_node) + " of a node)";
}

/// All worlds of 1 to 64 ranks, with nodes of every size.
inline std::vector<rank_world> worlds_of_laws()
{
  std::vector<rank_world> all;
  for (std::uint32_t ranks = 1; ranks <= 64; ++ranks)
    for (std::uint32_t of_node = 1; of_node <= ranks; ++of_node)
      if (ranks % of_node == 0) all.push_back({ranks, of_node});
  return all;
}

}  // namespace detail

/// One trial of the laws of ownership_policy, for one world: on numbers, and with few ranks on bytes.
template <chunkmem::ownership_policy Policy>
[[nodiscard]] std::string mistake_in_world(const Policy& policy, const chunkmem::ownership::rank_world& world,
                                           allocation_counter allocations = nullptr)
{
  using namespace detail;
  if (std::string_view{Policy::name}.empty()) return "a policy without a name";
  const bool has_few_ranks = world.ranks <= 9;
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{256}, std::uint64_t{257},
                                   std::uint64_t{65'537}, std::uint64_t{1'000'003}, std::uint64_t{1} << 50})
    for (const std::uint32_t index : {1U, 2 * world.ranks}) {
      const owned_chunk chunk{chunk_id{index}, bytes{size}, 2 * world.ranks + 1};
      allocation_watch watch{allocations};
      watch([&] {
        (void)policy.owned(chunk, rank_id{0}, world);
        (void)policy.fetch(chunk, rank_id{0}, world);
        (void)policy.reduction(chunk, rank_id{0}, world);
        (void)policy.room(chunk, world);
      });
      if (watch.has_seen_one()) return placed("an answer allocated", chunk, world);
      std::string wrong = fault_of_ranges(policy, chunk, world);
      if (wrong.empty() && has_few_ranks && size <= 257) wrong = fault_of_steps(policy, chunk, world);
      if (wrong.empty()) wrong = fault_of_traffic(policy, chunk, world);
      if (!wrong.empty()) return placed(wrong, chunk, world);
    }
  if (!has_few_ranks) return {};
  const owned_chunk chunk{chunk_id{world.ranks / 2}, bytes{2'053}, world.ranks};
  const std::string wrong = fault_of_steps(policy, chunk, world);
  return wrong.empty() ? "" : placed(wrong, chunk, world);
}

/// The broken law of ownership_policy; empty: none.
template <chunkmem::ownership_policy Policy>
[[nodiscard]] std::string mistake_in_ownership_policy(const Policy& policy = {},
                                                      allocation_counter allocations = nullptr)
{
  const auto worlds = detail::worlds_of_laws();
  return first_mistake(worlds.size(),
                       [&](std::uint64_t number) { return mistake_in_world(policy, worlds[number - 1], allocations); });
}

/// The laws of ownership_policy: on numbers for 1 to 64 ranks, on bytes for up to 9 and nodes of every size.
template <chunkmem::ownership_policy Policy>
void ownership_policy_laws(const Policy& policy = {}, allocation_counter allocations = nullptr)
{
  const auto worlds = detail::worlds_of_laws();
  require_trials(worlds.size(),
                 [&](std::uint64_t number) { return mistake_in_world(policy, worlds[number - 1], allocations); });
}

}  // namespace conformance
