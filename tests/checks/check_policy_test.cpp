// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/check_policy.hpp>

#include <chunkmem/checks/no_checks.hpp>
#include <support/catch.hpp>

#include <string_view>

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

}  // namespace check_policy_test
