// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/policy.hpp>

#include <support/catch.hpp>
#include <support/refusal.hpp>

#include <concepts>
#include <string>
#include <string_view>

namespace policy_test {

using namespace chunkmem;

namespace {

struct evicts {
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "evicts";
};
struct evicts_otherwise {
  using policy_kind = eviction_kind;
  static constexpr std::string_view name = "evicts_otherwise";
};
struct transfers {
  using policy_kind = transfer_kind;
  static constexpr const char* name = "transfers";
};
struct lays_out {
  using policy_kind = layout_kind;
  static constexpr std::string_view name = "lays_out";
};
struct nameless {
  using policy_kind = eviction_kind;
};
struct kindless {
  static constexpr std::string_view name = "kindless";
};
struct named_by_a_number {
  using policy_kind = eviction_kind;
  static constexpr int name = 3;
};

static_assert(names_itself<evicts> && names_itself<transfers>);
static_assert(kindless::name == "kindless" && named_by_a_number::name == 3);
static_assert(!names_itself<nameless> && !names_itself<kindless> && !names_itself<named_by_a_number> &&
              !names_itself<int>);

template <class... Policies>
using eviction_of = pick_policy<eviction_kind, evicts_otherwise, Policies...>;
template <class... Policies>
using transfer_of = pick_policy<transfer_kind, transfers, Policies...>;

// Families that are not named have a default.
static_assert(std::same_as<eviction_of<>, evicts_otherwise>);
static_assert(std::same_as<eviction_of<transfers, lays_out>, evicts_otherwise>);

// Order never matters.
static_assert(std::same_as<eviction_of<evicts, transfers, lays_out>, evicts>);
static_assert(std::same_as<eviction_of<transfers, evicts, lays_out>, evicts>);
static_assert(std::same_as<eviction_of<lays_out, transfers, evicts>, evicts>);
static_assert(std::same_as<transfer_of<evicts, lays_out>, transfers>);

// Types without a name are passed over here; the check of the list reports them.
static_assert(std::same_as<eviction_of<int, nameless, evicts>, evicts>);

using host_class = detail::accepts<eviction_kind, transfer_kind>;
static_assert(host_class::check<>());
static_assert(host_class::check<evicts>());
static_assert(host_class::check<transfers, evicts>());

template <class... Policies>
struct composed {
  using type = composed<eviction_of<Policies...>, transfer_of<Policies...>>;
};
static_assert(std::same_as<composed<evicts, transfers>::type, composed<transfers, evicts>::type>,
              "order made a new type");

}  // namespace

TEST_CASE("policies are picked by kind, whatever their order", "[core]")
{
  CHECK(eviction_of<transfers, evicts>::name == "evicts");
  CHECK(eviction_of<transfers>::name == "evicts_otherwise");
}

}  // namespace policy_test

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
  CHECK_THAT(support::refusal<config_error>([&] { (void)low_or_high{"lowest"}; }),
             Catch::Matchers::ContainsSubstring("lowest to choose from (take one of: low high)"));
}

TEST_CASE("policies of two kinds make no choice", "[core]")
{
  STATIC_REQUIRE(can_be_chosen_from<low, high>);
  STATIC_REQUIRE(!can_be_chosen_from<low, other_kind>);
}

}  // namespace policy_choice_test
