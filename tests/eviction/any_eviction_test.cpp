// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/eviction/policies.hpp>

#include <conformance/eviction_policy.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/tidal_paging.hpp>

namespace any_eviction_test {

using namespace chunkmem;
using any = eviction::any_eviction<eviction::belady, eviction::lru, eviction::list_order, eviction::cost_aware>;

static_assert(eviction_policy<any>);

TEST_CASE("any_eviction keeps the laws of an eviction policy", "[eviction]")
{
  conformance::eviction_policy_laws<any>();
  conformance::eviction_policy_laws<eviction::any_eviction<eviction::lru>>();
}

TEST_CASE("any_eviction decides as the policy that was chosen by name or given with its settings", "[eviction]")
{
  CHECK(any{}.chosen() == "belady");
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice dice{seed};
    const support::tidal_trace what = support::roll_tidal_trace(dice, true);
    CHECK(support::tidal_loads_of(what, any{}) == support::tidal_loads_of<eviction::belady>(what));
    CHECK(support::tidal_loads_of(what, any{"lru"}) == support::tidal_loads_of<eviction::lru>(what));
    CHECK(support::tidal_loads_of(what, any{"list_order"}) == support::tidal_loads_of<eviction::list_order>(what));
    CHECK(support::tidal_loads_of(what, any{eviction::cost_aware{0.5}}) ==
          support::tidal_loads_of(what, eviction::cost_aware{0.5}));
  }
  CHECK_THROWS_AS(any{"mru"}, config_error);
}

}  // namespace any_eviction_test
