// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/save_async.hpp>

#include "checkpoint_rig.hpp"

#include <support/memory_folder.hpp>
#include <support/rank_training.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace rank_save_behind_updates_test {

using namespace rank_checkpoints;
namespace checkpoint = cm::checkpoint;
using support::memory_folder;
using trainer = support::ranks::one_of_many<float, model_type, cm::optimizer::adam>;

namespace {

constexpr std::uint32_t saved_at = 3;

/// Saves behind a late step. @param finishes   the updates first   @return   whether a rank's updates waited on
bool save_behind_late_step(const support::ranks::job& how, const support::ranks::history<float>& values,
                           memory_folder& folder, bool finishes)
{
  bool waits = false;
  cm::sharding::thread_ranks{how.ranks, how.ranks}.run([&](cm::sharding::thread_ranks::place& here) {
    arena memory{{.device_capacity = 64_MiB, .host_capacity = 64_MiB}};
    model_type model{memory, here.process_groups(), {.chunk_bytes = how.frame_bytes()}, {.divided = how.divided}};
    trainer it{model, cm::optimizer::adam{{}}, how, values};
    it.fill();
    model.seal();
    model.shares().content().belongs_to(1);
    for (std::uint32_t step = 0; step < saved_at; ++step) it.step(step);
    expect(model.shares().updates_pending() > 0, "nothing waits");
    if (finishes) model.finish_updates();
    auto pending = checkpoint::save_async(
        model, folder, {.files = {.file_size = 100_KiB, .round = 50_KiB}, .buffer = 100_KiB, .lends = true});
    if (here.rank() == 0) waits = model.shares().updates_pending() > 0;
    for (std::uint32_t step = saved_at; step < how.steps; ++step) it.step(step);
    expect(pending.wait().number == 1, "another generation");
    it.check_all(how.steps);
    expect(it.complaint.empty(), it.complaint);
  });
  return waits;
}

}  // namespace

TEST_CASE(
    "a save of divided.parameters takes shares behind their late updates, and its files are those of finished ones",
    "[sharding]")
{
  for (const auto divided : {cm::sharding::zero_3, cm::sharding::zero_2})
    for (const std::uint32_t ranks : {1U, 2U, 3U}) {
      INFO(ranks << " ranks");
      const support::ranks::job how{
          .ranks = ranks, .steps = saved_at + 2, .divided = divided, .when = support::ranks::updates::late};
      support::ranks::one_rank<float, cm::optimizer::adam> one{how, cm::optimizer::adam{{}}};
      memory_folder folder;
      memory_folder right;
      const bool waits = save_behind_late_step(how, one.values, folder, false);
      CHECK(waits == divided.parameters);  // weights that are kept whole are gathered in their updates
      CHECK_FALSE(save_behind_late_step(how, one.values, right, true));
      CHECK(folder.names() == right.names());
      for (const auto& name : right.names()) CHECK(folder.content_of(name) == right.content_of(name));
    }
}

}  // namespace rank_save_behind_updates_test
