// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/rank_training.hpp>

#include <support/catch.hpp>

#include <cstdint>

namespace rank_training_test {

using namespace chunkmem;
using namespace chunkmem::planner;

TEST_CASE("what a timeline shows does not overlap on any agent, and computes all of the script", "[planner]")
{
  const workload::transformer_shape shape{workload::transformer_style::llama, 3, 48, 4, 2, 100, 300, 48, 0, 16, false};
  const workload::rank_share share{2, 2, 400_KiB, 100_MiB, {1e12, 5e9, 4e9, 3e9, 0, 1e10, 1e9, 1e10}};
  rank_settings settings;
  settings.chunk_elements = 1'024;
  const parameter_groups groups{shape, {}, 2'048};
  const training_script script{groups, true, 1e12};
  rank_training<> rank{groups, script, share, settings, {{400_KiB, 100_MiB}}};
  (void)rank.rehearse();
  rank.fill();
  for (int step = 0; step < 4; ++step) rank.step();
  const training_timeline& seen = rank.timeline();
  CHECK(seen.begin < seen.end);
  const auto in_order = [](const std::vector<timed_work>& all) {
    for (std::size_t index = 1; index < all.size(); ++index)
      if (all[index].begin < all[index - 1].begin + all[index - 1].nanoseconds) return false;
    return true;
  };
  CHECK(in_order(seen.computing));
  CHECK(in_order(seen.gathering));
  std::uint64_t computed = 0;
  for (const timed_work& it : seen.computing) {
    computed += it.nanoseconds;
    CHECK(it.device_bytes <= (400_KiB).count());
    CHECK(it.leased_bytes <= it.device_bytes);
  }
  CHECK(computed == script.nanoseconds());
  std::uint64_t last[2] = {0, 0};
  std::uint64_t loaded = 0;
  for (const timed_copy& it : seen.copies) {
    std::uint64_t& end = last[it.to == tier::device ? 0 : 1];
    CHECK(it.begin >= end);
    end = it.end;
    loaded += it.to == tier::device ? it.bytes : 0;
  }
  CHECK(loaded >= 2 * 1'024 * (groups.groups() - 1));  // all parameters are updated on the host
  std::uint64_t measured = 0;
  for (const std::uint64_t each : rank.computed()) measured += each;
  CHECK(measured == script.nanoseconds());
}

}  // namespace rank_training_test
