// SPDX-License-Identifier: Apache-2.0
// The copies of a manager whose host has no room for all of a model are those that were planned for it.
#include <eviction/gpt_trace.hpp>
#include <transfer/managed_run.hpp>
#include <transfer/retention_of_record.hpp>

#include <chunkmem/eviction/evictions.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>

namespace short_host_test {

namespace cm = chunkmem;
using eviction_bench::gpt_writer;
using eviction_bench::trace;
using eviction_bench::updates;

TEST_CASE("a GPT's step on a short host moves what its plan says, and never more than evictions", "[exact_plans]")
{
  for (const updates where : {updates::on_device, updates::half}) {
    const trace what = gpt_writer{{24, 1, where, false}}();
    const std::uint32_t all = what.chunks();
    for (const std::uint32_t frames : {40U, 76U})
      for (const std::uint32_t missing : {8U, 3 * frames / 4}) {
        CAPTURE(frames, missing);
        transfer_bench::solved_once::answer solved;
        transfer_bench::managed_run<cm::eviction::lru, transfer_bench::solved_once> run{
            what, frames, transfer_bench::solved_once{solved}, missing};
        const double moved = run.settled(6, 4);
        CHECK(run.retains());
        CHECK(run.skipped() == 0);
        CHECK(moved * eviction_bench::frame_bytes == static_cast<double>(solved.solver.solution().moved_bytes));
        const auto& alone = run.planned().plan.device_only;
        REQUIRE(alone.size() == all);
        CHECK(static_cast<std::uint32_t>(std::ranges::count(alone, 1)) >= missing);
        CHECK(moved <=
              transfer_bench::managed_run<cm::eviction::belady, cm::transfer::lookahead>{what, frames, {}, missing}
                  .settled(6, 4));
      }
  }
}

}  // namespace short_host_test
