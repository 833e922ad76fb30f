// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/policies.hpp>

#include <chunkmem/transfer/planned.hpp>
#include <conformance/transfer_policy.hpp>
#include <support/catch.hpp>

namespace any_transfer_test {

using namespace chunkmem;

namespace {

using ahead_first = transfer::any_transfer<transfer::lookahead, transfer::no_prefetch>;
using demand_first = transfer::any_transfer<transfer::no_prefetch, transfer::lookahead>;
using only_demand = transfer::any_transfer<transfer::no_prefetch>;
static_assert(transfer_policy<ahead_first> && transfer_policy<only_demand>);
static_assert(!retaining_transfer<ahead_first> && !early_loading_transfer<ahead_first>);
static_assert(retaining_transfer<transfer::any_transfer<transfer::lookahead, transfer::planned>>);
static_assert(early_loading_transfer<transfer::any_transfer<transfer::lookahead, transfer::planned>>);
static_assert(ahead_first::plans && demand_first::plans && !only_demand::plans);

}  // namespace

TEST_CASE("a chosen lookahead keeps the laws and starts copies as early as lookahead does", "[transfer]")
{
  CHECK(conformance::transfer_policy_laws<ahead_first>() == conformance::transfer_policy_laws<transfer::lookahead>());
}

TEST_CASE("a chosen no_prefetch beside one that plans leaves each move where it is needed", "[transfer]")
{
  CHECK(conformance::transfer_policy_laws<demand_first>() == 0);
  CHECK(conformance::transfer_policy_laws<only_demand>(30) == 0);
}

TEST_CASE("a transfer policy is chosen by name or given with its settings", "[transfer]")
{
  conformance::demand_run run;
  std::uint64_t seed = 1;
  while (!conformance::roll_demand(seed, {}, false, run) || run.demand.size() < 8) ++seed;
  INFO("seed " << seed);
  const auto planned_accesses = [&run](auto policy) {
    std::vector<std::uint32_t> at;
    conformance::moves actions;
    policy.schedule(run.input(true), actions);
    for (const transfer::move& it : actions) at.push_back(it.access_index);
    return at;
  };
  transfer::lookahead narrow;
  narrow.window = 1;
  CHECK(planned_accesses(demand_first{"lookahead"}) == planned_accesses(transfer::lookahead{}));
  CHECK(planned_accesses(demand_first{narrow}) == planned_accesses(narrow));
  CHECK(planned_accesses(ahead_first{"no_prefetch"}) == planned_accesses(demand_first{}));
  CHECK_THROWS_AS(ahead_first{"fast"}, config_error);
}

}  // namespace any_transfer_test
