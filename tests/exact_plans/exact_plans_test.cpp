// SPDX-License-Identifier: Apache-2.0
// The fewest bytes that a plan of one iteration can move, proven by an integer program that is independent of the
// planner.
#include <eviction/byte_bound.hpp>
#include <eviction/gpt_trace.hpp>
#include <transfer/retention_of_record.hpp>

#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/transfer/retention_solution.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <set>

namespace exact_plans_test {

namespace cm = chunkmem;
using eviction_bench::byte_bound;
using eviction_bench::gpt_writer;
using eviction_bench::trace;
using eviction_bench::updates;

namespace {

/// 24 weights of one frame, updated on the device, with states of two frames.
trace step_with_windows()
{
  return gpt_writer{{24, 1, updates::on_device, true}}();
}

double planned_frames(const trace& what, std::uint32_t frames)
{
  transfer_bench::retention_of_record numbers{what};
  const cm::transfer::retention_problem problem{numbers.on(frames)};
  return static_cast<double>(cm::transfer::plan_retention(problem).moved_bytes) / eviction_bench::frame_bytes;
}

}  // namespace

TEST_CASE("plans of a GPT's step are the best of one iteration where the linear program is below them", "[exact_plans]")
{
  const trace what = step_with_windows();
  const byte_bound bound{what};
  for (const std::uint32_t frames : {24U, 42U, 78U}) {
    CAPTURE(frames);
    const double best = bound.of_whole_gaps(frames);
    CHECK(best >= bound(frames) - 1e-6);
    CHECK(planned_frames(what, frames) == best);
  }
  CHECK(bound(42) < bound.of_whole_gaps(42) - 0.5);
}

TEST_CASE("evictions whose iterations differ can move less than any plan of one iteration", "[exact_plans][.slow]")
{
  const trace what = step_with_windows();
  const byte_bound bound{what};
  CHECK(bound.of_whole_gaps(60) == 228);
  CHECK(planned_frames(what, 60) == 228);
  CHECK(bound(60) > 225);
  CHECK(bound(60) < 226);

  eviction_bench::repeated_run<cm::eviction::belady> run{what, 60};
  for (int step = 0; step < 8; ++step) run.run(true);
  std::multiset<double> moved;
  for (int step = 0; step < 34; ++step) moved.insert(run.run(true).all());
  CHECK(*moved.begin() == 224);
  CHECK(*moved.rbegin() == 228);
  CHECK(moved.count(224) + moved.count(228) == moved.size());
  CHECK(moved.count(224) > 0);
}

}  // namespace exact_plans_test
