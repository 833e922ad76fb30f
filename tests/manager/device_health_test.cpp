// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/hazard_tracker.hpp>
#include <support/catch.hpp>

#include <string>

namespace device_health_test {

using namespace chunkmem;

namespace {

device_error fault(const char* what, bool sticky)
{
  return {error_text{} << what, {.number = 700, .is_sticky = sticky, .call = 3}};
}

}  // namespace

TEST_CASE("a device that failed in passing is alive", "[manager]")
{
  device_health health;
  health.expect_alive();
  REQUIRE_THROWS_AS(health.starting([]() -> int { throw fault("copy", false); }), device_error);
  REQUIRE_FALSE(health.is_lost());
  health.expect_alive();
  REQUIRE(health.starting([] { return 7; }) == 7);
}

TEST_CASE("a sticky fault is the first cause of all that is refused afterwards", "[manager]")
{
  device_health health;
  REQUIRE_THROWS_AS(health.starting([] { throw fault("the first", true); }), device_error);
  REQUIRE_THROWS_AS(health.starting([] { throw fault("the second", true); }), device_error);
  REQUIRE(health.is_lost());
  try {
    health.expect_alive();
    FAIL("a lost device was taken for alive");
  } catch (const device_error& cause) {
    REQUIRE(std::string{cause.what()} == "the first");
    REQUIRE(cause.fault().number == 700);
    REQUIRE(cause.fault().is_sticky);
    REQUIRE(cause.fault().call == 3);
  }
}

TEST_CASE("where the order of work is lost, every error is the end", "[manager]")
{
  device_health health;
  for (int turn = 0; turn < 2; ++turn) {
    try {
      turn == 0 ? health.ordering([] { throw fault("an event", false); }) : health.expect_alive();
      FAIL("the order of work was lost, and nobody said so");
    } catch (const device_error& cause) {
      REQUIRE(std::string{cause.what()}.find("order of work on the device is lost") != std::string::npos);
      REQUIRE(std::string{cause.what()}.find("an event") != std::string::npos);
      REQUIRE(cause.fault().is_sticky);
      REQUIRE(cause.fault().number == 700);
    }
  }
}

TEST_CASE("whoever asked hears of the loss, once", "[manager]")
{
  int heard = 0;
  device_health health{[](void* count) noexcept { ++*static_cast<int*>(count); }, &heard};
  REQUIRE_THROWS_AS(health.starting([] { throw fault("in passing", false); }), device_error);
  REQUIRE(heard == 0);
  for (int i = 0; i < 2; ++i) REQUIRE_THROWS_AS(health.starting([] { throw fault("for good", true); }), device_error);
  REQUIRE(heard == 1);
}

TEST_CASE("errors that are no device's end nothing", "[manager]")
{
  device_health health;
  REQUIRE_THROWS_AS(health.starting([] { throw usage_error{"a mistake"}; }), usage_error);
  REQUIRE_THROWS_AS(health.ordering([] { throw usage_error{"a mistake"}; }), usage_error);
  REQUIRE_FALSE(health.is_lost());
}

}  // namespace device_health_test
