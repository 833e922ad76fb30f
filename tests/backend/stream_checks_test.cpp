// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/stream_backend.hpp>

#include <support/catch.hpp>

#include <string>

namespace stream_checks_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("an unknown agent is refused with its index and the count", "[backend]")
{
  CHECK_NOTHROW(backend::require_agent(agent::to_host, 4));
  try {
    backend::require_agent(static_cast<agent>(4), 4);
    FAIL("not refused");
  } catch (const usage_error& refused) {
    CHECK_THAT(std::string{refused.what()}, ContainsSubstring("index 4") && ContainsSubstring("has 4"));
  }
}

TEST_CASE("bytes cannot move from or to a null address", "[backend]")
{
  std::byte place{};
  CHECK_NOTHROW(backend::require_places(&place, &place, bytes{1}));
  CHECK_NOTHROW(backend::require_places(nullptr, nullptr, bytes{0}));
  CHECK_THROWS_AS(backend::require_places(nullptr, &place, bytes{1}), usage_error);
  CHECK_THROWS_AS(backend::require_places(&place, nullptr, bytes{1}), usage_error);
}

TEST_CASE("an event past everything that was given is refused", "[backend]")
{
  CHECK_NOTHROW(backend::require_recorded({.value = 3, .source = agent::host}, 3));
  CHECK_THROWS_AS(backend::require_recorded({.value = 4, .source = agent::host}, 3), usage_error);
}

TEST_CASE("no agent is adopted past the limit", "[backend]")
{
  CHECK_NOTHROW(backend::require_room_for_agent(max_agents - 1));
  CHECK_THROWS_AS(backend::require_room_for_agent(max_agents), usage_error);
}

}  // namespace stream_checks_test
