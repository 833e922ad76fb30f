// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "grid_names.hpp"

#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>

#include <cstdint>
#include <deque>
#include <optional>

namespace gpt {

/// Parallel pipelines whose stages are threads: rank `replica * stages + stage` is a stage of a replica.
class thread_grid {
 public:
  /// @param plan   of each pipeline, outlives this
  thread_grid(const chunkmem::pipeline::schedule& plan, std::uint32_t replicas)
      : stages_{plan.stage_count()},
        replicas_{replicas},
        first_{plan.owners.front()},
        last_{plan.owners.back()},
        everyone_{stages_ * replicas}
  {
    for (std::uint32_t replica = 0; replica < replicas; ++replica) {
      pipelines_.emplace_back(plan, chunkmem::collective::thread_group_options{}, name_of_pipeline(replica, replicas));
      tables_.emplace_back(2);
    }
    for (std::uint32_t stage = 0; stage < stages_; ++stage) by_stage_.emplace_back(replicas);
  }

  /// The groups of one rank.
  class place {
   public:
    using communicator_type = chunkmem::collective::local_threads;

    place(thread_grid& all, std::uint32_t rank)
        : replica_{rank / all.stages_},
          pipeline_{all.pipelines_[replica_], rank % all.stages_},
          replicas_{all.by_stage_[stage()], chunkmem::rank_id{replica_}},
          world_{all.everyone_, chunkmem::rank_id{rank}}
    {
      if (all.first_ != all.last_ && (stage() == all.first_ || stage() == all.last_))
        tables_.emplace(all.tables_[replica_], chunkmem::rank_id{stage() == all.first_ ? 0U : 1U})
            .call_members(names_of_tables(all.first_, all.last_, replica_));
      replicas_.call_members(names_of_replicas(stage(), all.replicas_));
      world_.call_members(names_of_grid(all.stages_, all.replicas_));
    }
    place(const place&) = delete;

    [[nodiscard]] std::uint32_t stage() const noexcept { return pipeline_.stage(); }
    [[nodiscard]] std::uint32_t replica() const noexcept { return replica_; }
    /// The stages of this rank's pipeline.
    [[nodiscard]] communicator_type& all() noexcept { return pipeline_.all(); }
    /// The replicas of this rank's stage.
    [[nodiscard]] communicator_type& replicas() noexcept { return replicas_; }
    /// All ranks.
    [[nodiscard]] communicator_type& world() noexcept { return world_; }
    /// The stages of the first and of the last part, which have a copy of the table each. Null: this stage has none, or
    /// both.
    [[nodiscard]] communicator_type* tables() noexcept { return tables_ ? &*tables_ : nullptr; }
    template <class Backend>
    [[nodiscard]] auto links(Backend& backend)
    {
      return pipeline_.links(backend);
    }

   private:
    std::uint32_t replica_;
    chunkmem::pipeline::thread_stages::place pipeline_;
    communicator_type replicas_;
    communicator_type world_;
    std::optional<communicator_type> tables_;
  };

  /// Calls `work(place)` once for each rank, each on a thread of its own. @throws as thread_stages::run
  template <class Work>
  void run(Work work)
  {
    chunkmem::collective::run_threads(stages_ * replicas_, [&](std::uint32_t rank) {
      place here{*this, rank};
      work(here);
    });
  }

 private:
  std::uint32_t stages_;
  std::uint32_t replicas_;
  std::uint32_t first_;  // stages of the first and of the last part
  std::uint32_t last_;
  chunkmem::collective::thread_group everyone_;
  std::deque<chunkmem::pipeline::thread_stages> pipelines_;  // by replica
  std::deque<chunkmem::collective::thread_group> tables_;    // by replica
  std::deque<chunkmem::collective::thread_group> by_stage_;
};

}  // namespace gpt
