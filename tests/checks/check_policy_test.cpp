// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/check_policy.hpp>

#include <conformance/check_policy.hpp>
#include <support/catch.hpp>

#include <string_view>
#include <type_traits>

namespace check_policy_test {

using namespace chunkmem;

namespace {

struct forgets_leases : checks::no_checks {
  void leased(std::span<std::byte>) = delete;
};
template <class Part>
struct with {
  using policy_kind = checks_kind;
  static constexpr std::string_view name = "with";
  static constexpr bool is_on = true;
  using part = Part;
};
struct throws_at_releases : checks::no_checks {
  static void released(const checks::pin_event&) {}
};
struct of_another_kind : with<checks::no_checks> {
  using policy_kind = sink_kind;
};
struct without_part {
  using policy_kind = checks_kind;
  static constexpr std::string_view name = "without_part";
  static constexpr bool is_on = true;
};

}  // namespace

TEST_CASE("a check policy has a part that hears of calls, bytes and gradients", "[checks]")
{
  STATIC_REQUIRE(check_policy<with<checks::no_checks>>);
  STATIC_REQUIRE_FALSE(check_policy<with<forgets_leases>>);
  STATIC_REQUIRE_FALSE(check_policy<with<throws_at_releases>>);  // the end of a pin throws nothing
  STATIC_REQUIRE_FALSE(check_policy<with<int>>);
  STATIC_REQUIRE_FALSE(check_policy<of_another_kind>);
  STATIC_REQUIRE_FALSE(check_policy<without_part>);
}

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

}  // namespace check_policy_test
