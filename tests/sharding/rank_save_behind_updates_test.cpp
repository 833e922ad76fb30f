// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/save_async.hpp>

#include "checkpoint_rig.hpp"

#include <support/memory_folder.hpp>
#include <support/rank_training.hpp>

#include <cstdint>

namespace rank_save_behind_updates_test {

using namespace rank_checkpoints;
namespace checkpoint = cm::checkpoint;
using support::memory_folder;
using trainer = support::ranks::one_of_many<float, model_type, cm::optimizer::adam>;

namespace {

constexpr std::uint32_t saved_at = 3;

/// Saves behind a late step, and trains on. @param lets_go   rank 0 alone does
void save_behind_late_step(const support::ranks::job& how, const support::ranks::history<float>& values,
                           memory_folder& folder, bool lets_go)
{
  cm::sharding::thread_ranks{how.ranks, how.ranks}.run([&](cm::sharding::thread_ranks::place& here) {
    arena memory{{.device_capacity = 64_MiB, .host_capacity = 64_MiB}};
    model_type model{memory, here.process_groups(), {.chunk_bytes = how.frame_bytes()}, {.divided = how.divided}};
    trainer it{model, cm::optimizer::adam{{}}, how, values};
    it.fill();
    model.seal();
    model.shares().content().belongs_to(1);
    for (std::uint32_t step = 0; step < saved_at; ++step) it.step(step);
    expect(model.shares().updates_pending() > 0, "nothing waits");
    auto pending = checkpoint::save_async(
        model, folder, {.files = {.file_size = 100_KiB, .round = 50_KiB}, .buffer = 100_KiB, .lends = true});
    expect(model.shares().updates_pending() == 0, "updates wait on");
    if (here.rank() == 0 && lets_go) pending.let_go();
    for (std::uint32_t step = saved_at; step < how.steps; ++step) it.step(step);
    expect(pending.wait().number == 1, "another generation");
    it.check_all(how.steps);
    expect(it.complaint.empty(), it.complaint);
  });
}

}  // namespace

TEST_CASE("a save over ranks finishes late updates first, and one rank that lets go ends no training", "[sharding]")
{
  for (const auto divided : {cm::sharding::zero_3, cm::sharding::zero_2})
    for (const std::uint32_t ranks : {1U, 2U, 3U}) {
      INFO(ranks << " ranks");
      const support::ranks::job how{
          .ranks = ranks, .steps = saved_at + 2, .divided = divided, .when = support::ranks::updates::late};
      support::ranks::one_rank<float, cm::optimizer::adam> one{how, cm::optimizer::adam{{}}};
      memory_folder right;
      save_behind_late_step(how, one.values, right, false);
      memory_folder folder;
      save_behind_late_step(how, one.values, folder, true);
      CHECK(folder.names() == right.names());
      for (const auto& name : right.names()) CHECK(folder.content_of(name) == right.content_of(name));
    }
}

}  // namespace rank_save_behind_updates_test
