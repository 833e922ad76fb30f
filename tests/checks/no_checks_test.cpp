// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/no_checks.hpp>

#include <conformance/check_policy.hpp>
#include <support/catch.hpp>

#include <type_traits>

namespace no_checks_test {

namespace cm = chunkmem;

TEST_CASE("checks::none keeps the laws of a check policy", "[checks]")
{
  conformance::check_policy_laws<cm::checks::none>();
}

TEST_CASE("checks::none is the default, and its part is empty", "[checks]")
{
  using arena = cm::backend::host_arena;
  STATIC_REQUIRE(std::is_same_v<cm::manager<arena>, cm::manager<arena, cm::checks::none>>);
  STATIC_REQUIRE(std::is_empty_v<cm::checks::no_checks>);
  STATIC_REQUIRE(std::is_trivially_destructible_v<cm::checks::no_checks::scope>);
}

}  // namespace no_checks_test
