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
/// For ownerships that work inside nodes and across them (ownership::hierarchical). A node of one rank makes plain data
/// parallelism of that, a single node makes ownership::sharded. The ends outlive this; ranks of a node are numbered one
/// after the other.
template <class Communicator>
class circles {
 public:
  using communicator_type = Communicator;

  /// @throws config_error   nodes are not full, or ranks are numbered in another way
  circles(Communicator& all, Communicator& node, Communicator& across) : all_{&all}, node_{&node}, across_{&across}
  {
    const auto place = std::uint64_t{index_of(across.rank())} * node.ranks() + index_of(node.rank());
    if (std::uint64_t{node.ranks()} * across.ranks() == all.ranks() && place == index_of(all.rank())) return;
    throw config_error{error_text{} << "chunkmem: rank " << index_of(all.rank()) << " of " << all.ranks() << " is rank "
                                    << index_of(node.rank()) << " of " << node.ranks() << " in node "
                                    << index_of(across.rank()) << " of " << across.ranks()
                                    << " (fill nodes, and number the ranks of a node one after the other)"};
  }

  [[nodiscard]] Communicator& of(ownership::circle who) const noexcept
  {
    return who == ownership::circle::all ? *all_ : who == ownership::circle::node ? *node_ : *across_;
  }
  [[nodiscard]] ownership::rank_world world() const noexcept { return {all_->ranks(), node_->ranks()}; }

 private:
  Communicator* all_;
  Communicator* node_;
  Communicator* across_;
};

/// A single group as circles: one node that has all ranks.
template <class Communicator>
class one_circle {
 public:
  using communicator_type = Communicator;

  explicit one_circle(Communicator& all) noexcept : all_{&all} {}
  [[nodiscard]] Communicator& of(ownership::circle) const noexcept { return *all_; }
  [[nodiscard]] ownership::rank_world world() const noexcept { return {all_->ranks(), all_->ranks()}; }

 private:
  Communicator* all_;
};

namespace detail {

template <class Ranks>
struct circles_of {
  using type = one_circle<Ranks>;
};
template <class Communicator>
struct circles_of<circles<Communicator>> {
  using type = circles<Communicator>;
};

}  // namespace detail

/// What a model over ranks works with: circles as they are, a communicator as one circle.
template <class Ranks>
using circles_of = typename detail::circles_of<Ranks>::type;

/// A communicator, or circles of one type of communicators.
template <class Ranks, class Backend>
concept rank_group = communicator<typename circles_of<Ranks>::communicator_type, Backend>;

}  // namespace sharding

}  // namespace chunkmem::inline v0
