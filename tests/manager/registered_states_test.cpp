// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/registered_states.hpp>

#include <support/catch.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace registered_states_test {

using namespace chunkmem;

namespace {

/// An object as `use` takes one.
struct counter {
  static constexpr std::string_view name = "counter";
  registration registered;
  std::uint32_t count = 3;

  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(restart_state{"count", std::as_writable_bytes(std::span{&count, 1}),
                        [](std::span<const std::byte>) { throw config_error{"no"}; }});
  }
};
constexpr auto no_lists = [] {};

std::string names_of(const registered_states& states)
{
  std::string all;
  states.for_each([&](std::string_view name, std::span<std::byte> content) {
    all.append(name).append(":").append(std::to_string(content.size())).append(" ");
  });
  return all;
}

}  // namespace

TEST_CASE("states are found by name, with the bytes of their owners", "[manager]")
{
  registered_states states;
  std::array<std::byte, 8> cursor{};
  counter steps;
  states.add("cursor", cursor);
  states.add(steps, no_lists);
  CHECK(names_of(states) == "cursor:8 counter/count:4 ");
  states.for_each([&](std::string_view name, std::span<std::byte> content) {
    if (name == "counter/count") CHECK(content.data() == reinterpret_cast<std::byte*>(&steps.count));
  });
  CHECK(states.check_of("cursor") == nullptr);
  CHECK_THROWS_AS(states.check_of("counter/count")({}), config_error);
  states.expect_used(steps.registered, "a counter");
  states.expect_whole();
}

TEST_CASE("a registration that is refused changes nothing", "[manager]")
{
  registered_states states;
  counter first, second;
  states.add(first, no_lists);
  CHECK_THROWS_AS(states.add(first, no_lists), usage_error);   // twice
  CHECK_THROWS_AS(states.add(second, no_lists), usage_error);  // the name is taken
  registered_states others;
  CHECK_THROWS_AS(others.add(first, no_lists), usage_error);  // it counts the updates of another manager
  CHECK_THROWS_AS(others.add(second, [] { throw std::runtime_error{"lists"}; }), std::runtime_error);
  CHECK(names_of(others).empty());
  CHECK_THROWS_AS(others.expect_used(second.registered, "a counter"), usage_error);
  others.add(second, no_lists);
  CHECK(names_of(states) == "counter/count:4 ");
}

TEST_CASE("an owner that is gone leaves its names, and a save is refused", "[manager]")
{
  registered_states states;
  std::optional<counter> steps{std::in_place};
  states.add(*steps, no_lists);
  steps.reset();
  CHECK(names_of(states) == "counter/count:0 ");
  CHECK_THROWS_WITH(states.expect_whole(), Catch::Matchers::ContainsSubstring("counter/count"));
}

}  // namespace registered_states_test
