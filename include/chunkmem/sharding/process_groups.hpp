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

/// One rank's ends of three groups: of all ranks, of those of its node, and of those in its place of every node.
///
///     process_groups ranks{all, node, across};
///     sharded_model<backend::host_arena, decltype(ranks), ownership::hierarchical> m{memory, ranks};
///
/// For ownerships that work inside nodes and across them (ownership::hierarchical). A node of one rank makes plain data
/// parallelism of that, a single node makes ownership::sharded. The ends outlive this; ranks of a node are numbered one
/// after the other.
template <class Communicator>
class process_groups {
 public:
  using communicator_type = Communicator;

  /// Before the first operation of the groups, whose errors say then which rank and node they mean.
  /// @throws config_error   nodes are not full, or ranks are numbered in another way
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
  [[nodiscard]] ownership::rank_world world() const noexcept { return {all_->ranks(), node_->ranks()}; }
  /// Calls `visit(group)` for each group.
  template <class Visit>
  void for_each(Visit visit) const
  {
    visit(*all_), visit(*node_), visit(*across_);
  }

 private:
  /// Errors of each group say which rank of all ranks, and which node.
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
  [[nodiscard]] ownership::rank_world world() const noexcept { return {all_->ranks(), all_->ranks()}; }
  template <class Visit>
  void for_each(Visit visit) const
  {
    visit(*all_);
  }

 private:
  Communicator* all_;
};

namespace detail {

template <class Ranks>
struct process_groups_of {
  using type = one_process_group<Ranks>;
};
template <class Communicator>
struct process_groups_of<process_groups<Communicator>> {
  using type = process_groups<Communicator>;
};

}  // namespace detail

/// The process groups of a model over ranks. A communicator counts as one process group.
template <class Ranks>
using process_groups_of = typename detail::process_groups_of<Ranks>::type;

/// A communicator, or process groups of one type of communicators.
template <class Ranks, class Backend>
concept rank_group = communicator<typename process_groups_of<Ranks>::communicator_type, Backend>;

}  // namespace sharding

}  // namespace chunkmem::inline v0
