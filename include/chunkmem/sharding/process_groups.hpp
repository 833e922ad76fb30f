// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/ownership/ownership_policy.hpp>

#include <cstdint>
#include <string>

namespace chunkmem::inline v0 {

namespace sharding {

/// One rank's communicators of three groups: all ranks, the ranks of its node, and the ranks with its local rank on
/// every node.
///
///     process_groups ranks{all, node, across};
///     sharded_model<backend::host_arena, decltype(ranks), ownership::hierarchical> m{memory, ranks};
///
/// For ownerships that work inside nodes and across them (ownership::hierarchical). With nodes of one rank,
/// ownership::hierarchical is plain data parallelism; with a single node, it is ownership::sharded. The communicators
/// outlive this object; ranks of a node have consecutive numbers.
template <class Communicator>
class process_groups {
 public:
  using communicator_type = Communicator;

  /// Call it before the first operation of the groups: their errors then name rank and node.
  /// @throws config_error   nodes are not full, or ranks are numbered differently
  process_groups(Communicator& all, Communicator& node, Communicator& across)
      : all_{&all}, node_{&node}, across_{&across}
  {
    const auto place = std::uint64_t{index_of(across.rank())} * node.ranks() + index_of(node.rank());
    if (std::uint64_t{node.ranks()} * across.ranks() == all.ranks() && place == index_of(all.rank())) {
      name_members();
      return;
    }
    throw config_error{error_text{} << "chunkmem: rank " << index_of(all.rank()) << " of " << all.ranks() << " is rank "
                                    << index_of(node.rank()) << " of " << node.ranks() << " in node "
                                    << index_of(across.rank()) << " of " << across.ranks()
                                    << " (fill nodes, and number the ranks of a node one after the other)"};
  }

  [[nodiscard]] Communicator& of(ownership::process_group group) const noexcept
  {
    return group == ownership::process_group::all ? *all_ : group == ownership::process_group::node ? *node_ : *across_;
  }
  /// The group for sums of these ranks.
  [[nodiscard]] Communicator& of_sums(ownership::process_group group) const noexcept { return of(group); }
  static constexpr bool has_sums_apart = false;
  [[nodiscard]] ownership::rank_world world() const noexcept { return {all_->ranks(), node_->ranks()}; }
  /// Calls `visit(group)` for each group.
  template <class Visit>
  void for_each(Visit visit) const
  {
    visit(*all_), visit(*node_), visit(*across_);
  }

 private:
  /// Errors of each group name the rank among all ranks, and the node.
  void name_members() const
  {
    if constexpr (requires(Communicator& group, const collective::member_names& names) { group.call_members(names); }) {
      if (across_->ranks() == 1) return;
      const std::uint32_t of_node = node_->ranks();
      const auto number = [](std::uint32_t it) { return std::to_string(it); };
      collective::member_names all{.group = "all ranks"};
      for (std::uint32_t rank = 0; rank < all_->ranks(); ++rank)
        all.ranks.push_back("rank " + number(rank % of_node) + " of node " + number(rank / of_node));
      const std::uint32_t mine = index_of(across_->rank());
      collective::member_names node{.group = "node " + number(mine)};
      for (std::uint32_t rank = 0; rank < of_node; ++rank)
        node.ranks.push_back("rank " + number(mine * of_node + rank) + " of all");
      const std::uint32_t place = index_of(node_->rank());
      collective::member_names across{.group = "ranks in place " + number(place) + " of each node"};
      for (std::uint32_t it = 0; it < across_->ranks(); ++it)
        across.ranks.push_back("rank " + number(it * of_node + place) + " of all, in node " + number(it));
      all_->call_members(all);
      node_->call_members(node);
      across_->call_members(across);
    }
  }

  Communicator* all_;
  Communicator* node_;
  Communicator* across_;
};

/// A single group as process groups: one node that has all ranks.
///
///     const one_process_group ranks{all};
///     collective::local_threads& node = ranks.of(ownership::process_group::node);  // `all`
template <class Communicator>
class one_process_group {
 public:
  using communicator_type = Communicator;

  explicit one_process_group(Communicator& all) noexcept : all_{&all} {}
  [[nodiscard]] Communicator& of(ownership::process_group) const noexcept { return *all_; }
  [[nodiscard]] Communicator& of_sums(ownership::process_group) const noexcept { return *all_; }
  static constexpr bool has_sums_apart = false;
  [[nodiscard]] ownership::rank_world world() const noexcept { return {all_->ranks(), all_->ranks()}; }
  template <class Visit>
  void for_each(Visit visit) const
  {
    visit(*all_);
  }

 private:
  Communicator* all_;
};

/// Calls `revoke` of each communicator of a rank.
template <class Groups>
void end_all(const Groups& groups) noexcept
{
  groups.for_each([](auto& group) { group.revoke(); });
}

/// Runs work of a rank. Where one of its groups fails, all of them are revoked, so that waits in the other groups end
/// at once.
/// @throws   as `work`
template <class Groups, class Work>
decltype(auto) end_all_on_failure(const Groups& groups, Work work)
{
  try {
    return work();
  } catch (const comm_error&) {
    end_all(groups);
    throw;
  }
}

template <class Ranks>
class sums_apart;

namespace detail {

template <class Ranks>
struct process_groups_of {
  using type = one_process_group<Ranks>;
};
template <class Communicator>
struct process_groups_of<process_groups<Communicator>> {
  using type = process_groups<Communicator>;
};
template <class Ranks>
struct process_groups_of<sums_apart<Ranks>> {
  using type = sums_apart<Ranks>;
};

}  // namespace detail

/// Groups of ranks, and a second set of groups of the same ranks for sums. A model over both has one agent for gathers
/// and another one for sums. A gather does not wait for a sum whose gradient is not computed yet, and a sum does not
/// wait for a gather without room.
///
///     sharding::sums_apart<collective::local_threads> ranks{gathers, sums};
///     sharded_model<backend::host_arena, decltype(ranks)> m{memory, ranks};
///
/// Good where communication overlaps with compute of the device; no gain where it does not. A model over communicators
/// of NCCL refuses it: their kernels could deadlock where devices start them in different orders. Where the backend has
/// another agent left, this rank's shares are copied to the device on that agent. No share then waits for an activation
/// that is reloaded later in the backward pass. Cost: at most two agents of the backend, and the second set of groups.
/// Words of ranks use the groups of gathers. Where one group fails, a rank that notices it revokes the others. A rank
/// that gives up calls `revoke` of its model.
/// @tparam Ranks   a communicator, or process_groups of one
template <class Ranks>
class sums_apart {
  using groups_type = typename detail::process_groups_of<Ranks>::type;

 public:
  using communicator_type = typename groups_type::communicator_type;
  static constexpr bool has_sums_apart = true;

  /// Both outlive this object. @throws config_error   they are not of the same ranks, or have a group in common
  sums_apart(Ranks& gathers, Ranks& sums) : gathers_{gathers}, sums_{sums}
  {
    gathers_.for_each([this](const auto& group) {
      sums_.for_each([&](const auto& other) {
        if (&group == &other)
          throw config_error{
              "sums_apart was given one group for gathers and for sums, and two agents cannot work in one "
              "group (make a second group of the same ranks, or give the model the first one alone)"};
      });
    });
    const auto& mine = of(ownership::process_group::all);
    const auto& others = of_sums(ownership::process_group::all);
    if (mine.rank() == others.rank() && mine.ranks() == others.ranks() && world().of_node == sums_.world().of_node)
      return;
    throw config_error{error_text{} << "chunkmem: rank " << index_of(mine.rank()) << " of " << mine.ranks()
                                    << " is rank " << index_of(others.rank()) << " of " << others.ranks()
                                    << " in the groups of sums (give two groups of the same ranks in one order)"};
  }

  [[nodiscard]] communicator_type& of(ownership::process_group group) const noexcept { return gathers_.of(group); }
  [[nodiscard]] communicator_type& of_sums(ownership::process_group group) const noexcept { return sums_.of(group); }
  [[nodiscard]] ownership::rank_world world() const noexcept { return gathers_.world(); }
  /// Calls `visit(group)` for each group.
  template <class Visit>
  void for_each(Visit visit) const
  {
    gathers_.for_each(visit);
    sums_.for_each(visit);
  }

 private:
  groups_type gathers_;
  groups_type sums_;
};

/// The process groups of a model over ranks. A communicator counts as one process group.
template <class Ranks>
using process_groups_of = typename detail::process_groups_of<Ranks>::type;

/// A communicator whose work is on streams of the device, and whose failures must be polled: collective::nccl.
template <class Communicator, class Backend>
concept works_on_streams =
    requires(Communicator& group, Backend& backend, agent stream) { group.finish(backend, stream); };

/// A communicator, or process groups of one type of communicators.
template <class Ranks, class Backend>
concept rank_group = communicator<typename process_groups_of<Ranks>::communicator_type, Backend>;

}  // namespace sharding

}  // namespace chunkmem::inline v0
