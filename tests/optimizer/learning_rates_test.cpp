// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/step_options.hpp>

#include <support/catch.hpp>

#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

namespace learning_rates_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using optimizer::learning_rates;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();
constexpr float no_number = std::numeric_limits<float>::quiet_NaN();

static_assert(!std::is_copy_constructible_v<learning_rates> && !std::is_move_constructible_v<learning_rates> &&
              !std::is_copy_assignable_v<learning_rates>);

restart_state state_of(learning_rates& rates)
{
  restart_state found;
  rates.for_each_state([&](const restart_state& it) { found = it; });
  return found;
}

}  // namespace

TEST_CASE("learning rates are finite and not negative", "[optimizer]")
{
  for (const float right : {0.0F, -0.0F, 1e-45F, 1.0F, optimizer::largest_learning_rate})
    CHECK(optimizer::is_learning_rate(right));
  for (const float wrong : {-1e-45F, -1.0F, infinite, -infinite, no_number, 0x1.000002p100F}) {
    CHECK_FALSE(optimizer::is_learning_rate(wrong));
    CHECK_THROWS_AS(optimizer::check_learning_rate(wrong), usage_error);
    CHECK_THROWS_AS((learning_rates{0.1F, wrong}), usage_error);
  }
  CHECK_THROWS_AS(learning_rates{std::span<const float>{}}, usage_error);
  CHECK_THROWS_WITH(optimizer::check_learning_rate(-0.5F),
                    ContainsSubstring("a learning rate of -0.5 (give a finite one, 0 or above)"));
  CHECK_THROWS_WITH(optimizer::check_learning_rate(1e35F),
                    ContainsSubstring("a learning rate of 1e+35 (give one of at most 1.2676506e+30)"));
}

TEST_CASE("learning rates are set by group, and a wrong one changes nothing", "[optimizer]")
{
  learning_rates rates{0.5F, 0.25F};
  const std::span<const float> seen = rates;
  rates.set(group_id{1}, 0.125F);
  CHECK((seen.size() == 2 && seen[0] == 0.5F && seen[1] == 0.125F && rates.of(group_id{1}) == 0.125F));
  CHECK_THROWS_AS(rates.set(group_id{1}, no_number), usage_error);
  CHECK_THROWS_AS(rates.set(group_id{2}, 0.5F), usage_error);
  CHECK_THROWS_AS(rates.of(group_id{2}), usage_error);
  CHECK(seen[1] == 0.125F);
  const float by_group[] = {1.0F, 2.0F, 3.0F};
  CHECK(learning_rates{std::span<const float>{by_group}}.of(group_id{2}) == 3.0F);
}

TEST_CASE("learning rates survive as bytes, and those that no step takes are refused", "[optimizer]")
{
  learning_rates rates{0.5F, 0.25F};
  const restart_state state = state_of(rates);
  CHECK(state.name == "learning rates");
  float loaded[] = {0.1F, 0.2F};
  state.check(std::as_bytes(std::span{loaded}));
  std::memcpy(state.content.data(), loaded, sizeof loaded);
  CHECK(rates.of(group_id{1}) == 0.2F);
  loaded[1] = infinite;
  CHECK_THROWS_WITH(state.check(std::as_bytes(std::span{loaded})),
                    ContainsSubstring("a checkpoint with a learning rate of inf"));
  CHECK_THROWS_AS(state.check(std::as_bytes(std::span{loaded})), config_error);
}

}  // namespace learning_rates_test
