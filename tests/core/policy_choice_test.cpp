// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/policy.hpp>

#include <support/catch.hpp>

#include <string>
#include <string_view>
#include <variant>

namespace policy_choice_test {

using namespace chunkmem;

namespace {

struct low {
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "low";
  [[nodiscard]] int value() const { return 1; }
};
struct high {
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "high";
  int setting = 10;
  [[nodiscard]] int value() const { return setting; }
};
struct other_kind {
  using policy_kind = layout_kind;
  static constexpr std::string_view name = "other_kind";
};

struct low_or_high : policy_choice<low, high> {
  using policy_choice::policy_choice;
  [[nodiscard]] int value() const
  {
    return ask([](const auto& it) { return it.value(); });
  }
};

template <class... Policies>
concept can_be_chosen_from = requires { typename policy_choice<Policies...>; };

}  // namespace

TEST_CASE("a choice is the first of its list, the one named, or the one given with its settings", "[core]")
{
  CHECK(low_or_high{}.value() == 1);
  CHECK(low_or_high{}.chosen() == "low");
  CHECK(low_or_high{"high"}.value() == 10);
  CHECK(low_or_high{"low"}.value() == 1);
  CHECK(low_or_high{high{.setting = 7}}.value() == 7);
  CHECK(low_or_high{high{.setting = 7}}.chosen() == "high");
}

TEST_CASE("a name that no policy of a choice has is refused with those that can be had", "[core]")
{
  try {
    (void)low_or_high{"lowest"};
    FAIL("it was not refused");
  } catch (const config_error& refused) {
    CHECK(std::string{refused.what()}.find("lowest to choose from (take one of: low high)") != std::string::npos);
  }
}

TEST_CASE("policies of two kinds make no choice", "[core]")
{
  STATIC_REQUIRE(can_be_chosen_from<low, high>);
  STATIC_REQUIRE(!can_be_chosen_from<low, other_kind>);
}

}  // namespace policy_choice_test
