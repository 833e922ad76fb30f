// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/pipeline/pipeline_schedule.hpp>
#include <chunkmem/pipeline/stage_links.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace pipeline {

/// Stages that are threads of this process, with a communicator of two ranks for each direction of each link.
///
///     thread_stages{plan}.run([&](thread_stages::place& here) {
///       backend::host_arena memory{options};
///       stage_links links = here.links(memory);
///       stage_runner runner{plan, links, memory, buffers, boundaries};
///       runner.run(stages[here.stage()]);
///     });
///
/// @threads   any
class thread_stages {
 public:
  /// @param pipeline   name of this pipeline in errors, where there are several: "replica 1"
  /// @throws config_error   a deadline of 0
  explicit thread_stages(const schedule& plan, const collective::thread_group_options& options = {},
                         std::string_view pipeline = {})
      : stages_{plan.stage_count()}, made_for_{identity_of(plan)}, pairs_{pairs_of(plan)}, everyone_{stages_, options}
  {
    std::vector<std::string> names;
    for (std::uint32_t stage = 0; stage < stages_; ++stage) names.push_back(detail::name_of_stage(stage, pipeline));
    for (const stage_pair& pair : pairs_)
      groups_.emplace_back(2, options)
          .rendezvous()
          ->call_members(detail::names_of_link(pair, names, plan.all_micro_batches()));
    everyone_.rendezvous()->call_members({"all stages", std::move(names)});
  }

  /// One stage's ends of its links.
  class place : public stage_ends<collective::local_threads> {
   public:
    /// @throws usage_error   the place is taken
    place(const thread_stages& all, std::uint32_t stage)
        : stage_ends{stage, all.made_for_}, all_{all.everyone_, rank_id{stage}}
    {
      for (std::size_t index = 0; index < all.pairs_.size(); ++index) {
        const stage_pair pair = all.pairs_[index];
        if (pair.first == stage || pair.second == stage)
          add(pair, all.groups_[index], rank_id{pair.first == stage ? 0U : 1U});
      }
    }

    /// This stage's communicator of all stages, as for stage_step.
    [[nodiscard]] collective::local_threads& all() noexcept { return all_; }

   private:
    collective::local_threads all_;
  };

  /// Calls `work(place)` once for each stage, each on a thread of its own, and returns when all have ended. Call it
  /// once: each place can be taken once.
  ///
  /// Where one throws, its ends are closed, so waits of its neighbours end with a comm_error at once.
  /// @throws the error of the first stage that failed with no comm_error, since a comm_error is mostly a consequence;
  ///   else the first comm_error
  template <class Work>
  void run(Work work) const
  {
    collective::run_threads(stages_, [this, &work](std::uint32_t stage) {
      place here{*this, stage};
      work(here);
    });
  }

 private:
  std::uint32_t stages_;
  std::uint64_t made_for_;
  std::vector<stage_pair> pairs_;
  collective::thread_group everyone_;
  std::deque<collective::thread_group> groups_;  // by pair
};

}  // namespace pipeline

}  // namespace chunkmem::inline v0
