// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/sharding/process_groups.hpp>

#include <cstdint>
#include <deque>

namespace chunkmem::inline v0 {

namespace sharding {

/// Ranks that are threads of this process: their groups of all ranks, of each node, and of each local rank.
///
///     thread_ranks{4, 2}.run([](thread_ranks::place& here) {
///       sharded_model<backend::host_arena, collective::local_threads> m{memory_of(here.rank()), here.all()};
///     });
///
/// @threads   any
class thread_ranks {
 public:
  /// @param of_node   ranks of a node, for ownerships with nodes; 0: one node has all
  /// @throws config_error   nodes are not full; as collective::thread_group
  explicit thread_ranks(std::uint32_t ranks, std::uint32_t of_node = 0,
                        const collective::thread_group_options& options = {})
      : world_{ranks, of_node == 0 ? ranks : of_node}, all_{ranks, options}
  {
    world_.check();
    for (std::uint32_t index = 0; index < world_.nodes(); ++index) nodes_.emplace_back(world_.of_node, options);
    for (std::uint32_t index = 0; index < world_.of_node; ++index) places_.emplace_back(world_.nodes(), options);
  }

  /// One rank's ends of its groups. They may outlive the groups.
  class place {
   public:
    using communicator_type = collective::local_threads;

    /// @throws usage_error   no such rank, or its place is taken
    place(const thread_ranks& groups, std::uint32_t rank)
        : all_{groups.all_, rank_id{rank}},
          node_{groups.nodes_[rank / groups.world_.of_node], rank_id{rank % groups.world_.of_node}},
          across_{groups.places_[rank % groups.world_.of_node], rank_id{rank / groups.world_.of_node}},
          process_groups_{all_, node_, across_}
    {
    }
    place(const place&) = delete;

    [[nodiscard]] std::uint32_t rank() const noexcept { return index_of(all_.rank()); }
    /// For ownerships with nodes.
    [[nodiscard]] sharding::process_groups<communicator_type>& process_groups() noexcept { return process_groups_; }
    /// For other ownerships.
    [[nodiscard]] communicator_type& all() noexcept { return all_; }

   private:
    communicator_type all_;
    communicator_type node_;
    communicator_type across_;
    sharding::process_groups<communicator_type> process_groups_;
  };

  [[nodiscard]] const ownership::rank_world& world() const noexcept { return world_; }

  /// Calls `work(place)` once for each rank, each on a thread of its own, and returns when all have ended.
  ///
  /// Where one throws, its ends are closed, so waits of the others end with a comm_error at once.
  /// @throws the error of the first rank that failed with no comm_error, since a comm_error is mostly a consequence;
  ///   else the first comm_error
  void run(call_ref<void(place&)> work) const
  {
    collective::run_threads(world_.ranks, [this, work](std::uint32_t rank) {
      place here{*this, rank};
      work(here);
    });
  }

 private:
  ownership::rank_world world_;
  collective::thread_group all_;
  std::deque<collective::thread_group> nodes_;
  std::deque<collective::thread_group> places_;
};

}  // namespace sharding

}  // namespace chunkmem::inline v0
