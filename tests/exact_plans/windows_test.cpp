// SPDX-License-Identifier: Apache-2.0
// A manager whose chunks have one frame and two moves the bytes of the best plan of one iteration.
#include <eviction/byte_bound.hpp>
#include <eviction/gpt_trace.hpp>
#include <transfer/managed_run.hpp>

#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <support/catch.hpp>

#include <cstdint>

namespace windows_test {

namespace cm = chunkmem;
using eviction_bench::byte_bound;
using eviction_bench::gpt_writer;
using eviction_bench::trace;
using eviction_bench::updates;

TEST_CASE("steps with states of two frames move what an integer program moves by bytes alone", "[exact_plans]")
{
  for (const updates where : {updates::on_device, updates::half, updates::half_alternating}) {
    const trace what = gpt_writer{{24, 1, where, true}}();
    const byte_bound bound{what};
    for (const std::uint32_t frames : {24U, 42U, 78U}) {
      CAPTURE(static_cast<int>(where), frames);
      transfer_bench::managed_run<cm::eviction::lru, cm::transfer::planned> run{what, frames, {}};
      CHECK(run.settled(6, 2) == bound.of_whole_gaps(frames));
      CHECK(run.retains());
      CHECK(run.skipped() == 0);
      CHECK((run.planned().current.periodic || run.planned().plan.places.empty()));
    }
  }
}

}  // namespace windows_test
