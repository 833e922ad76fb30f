#include <chunkmem/manager/iteration_planner.hpp>

#include <chunkmem/eviction/belady.hpp>
#include <chunkmem/transfer/lookahead.hpp>
#include <conformance/transfer_policy.hpp>
#include <support/catch.hpp>

#include <algorithm>

using namespace chunkmem;

namespace {

using planner = iteration_planner<eviction::belady, transfer::lookahead>;

}  // namespace

TEST_CASE("a plan is good for its start and says whether it closes on itself", "[manager]")
{
  int periodic = 0;
  int open = 0;
  planner maker{transfer::lookahead{}};
  iteration_plan<eviction::belady> plan;  // used again and again, as an engine does
  for (std::uint64_t seed = 1; seed <= 160; ++seed) {
    support::dice dice{seed};
    conformance::demand_run run;
    const support::iteration_traits traits{.entries = dice.between(1, 50), .longest_chunk = dice.between(1, 3)};
    if (!conformance::roll_demand(seed, traits, dice.one_in(3), run)) continue;
    const auto before = run.start;
    maker.make(plan, run.start, run.iteration.record, run.iteration.chunk_of_slot);
    REQUIRE(plan.valid);
    REQUIRE(plan.start.same_places(run.start));
    REQUIRE(run.start.same_places(before));
    REQUIRE(plan.periodic == run.end.same_places(run.start));
    (plan.periodic ? periodic : open) += 1;
    for (std::uint32_t at = 0; at < run.iteration.record.size(); ++at) {
      const bool planned = std::any_of(plan.actions.begin(), plan.actions.end(), [&](const transfer::move& it) { return it.moment == at; });
      if (run.iteration.record.entries()[at].has_actions != planned) FAIL("seed " << seed << ": entry " << at << " does not know its actions");
    }
    if (const std::string wrong = conformance::mistake_when_followed(run, plan.actions); !wrong.empty()) FAIL("seed " << seed << ": " << wrong);
  }
  CHECK(periodic > 5);
  CHECK(open > 5);
}

TEST_CASE("an iteration that does not fit has no plan", "[manager]")
{
  support::record_builder build;
  build.access(0, entry_kind::write);
  build.access(1, entry_kind::write);
  access_record record = build.finish({0, 1}, 2);
  const support::random_iteration it{{1, 1}, {0, 1}, {0, 0}, record};
  const auto state = support::residency_for<eviction::belady>(it, 1, 2);
  planner maker{transfer::lookahead{}};
  iteration_plan<eviction::belady> plan;
  plan.valid = true;
  maker.make(plan, state, record, it.chunk_of_slot);
  CHECK_FALSE(plan.valid);
}
