// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/ownership/rank_world.hpp>

#include <cstdint>

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

  /// @throws config_error   nodes are not full, or ranks are numbered in another way
  process_groups(Communicator& all, Communicator& node, Communicator& across)
      : all_{&all}, node_{&node}, across_{&across}
  {
    const auto place = std::uint64_t{index_of(across.rank())} * node.ranks() + index_of(node.rank());
    if (std::uint64_t{node.ranks()} * across.ranks() == all.ranks() && place == index_of(all.rank())) return;
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
