// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>

#include <string>

namespace expects_test {

using namespace chunkmem;

namespace {

constexpr int half_of(int even)
{
  expects(even % 2 == 0, "only even numbers have a half");
  return even / 2;
}
static_assert(half_of(6) == 3, "a precondition that holds costs nothing when compiled");

}  // namespace

TEST_CASE("a broken precondition is a usage_error with its text alone", "[core]")
{
  try {
    expects(false, "the window is empty (give it a frame)");
    FAIL("a false condition passed");
  } catch (const usage_error& refused) {
    CHECK(std::string{refused.what()} == "chunkmem: the window is empty (give it a frame)");
  }
}

TEST_CASE("a precondition that holds does nothing", "[core]")
{
  CHECK_NOTHROW(expects(true, "never seen"));
  CHECK_THROWS_AS(half_of(3), usage_error);
}

}  // namespace expects_test
