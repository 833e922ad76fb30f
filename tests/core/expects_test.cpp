#include <chunkmem/core/expects.hpp>

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

TEST_CASE("a broken precondition names the caller's own line", "[core]")
{
  std::string expected;
  try {
    expected = std::to_string(__LINE__ + 1);
    expects(false, "the window is empty");
    FAIL("a false condition passed");
  } catch (const usage_error& refused) {
    const std::string text = refused.what();
    CAPTURE(text);
    CHECK(text.rfind("chunkmem: the window is empty (at ", 0) == 0);
    CHECK(text.find("expects_test.cpp:" + expected + ")") != std::string::npos);
  }
}

TEST_CASE("a precondition that holds does nothing", "[core]")
{
  CHECK_NOTHROW(expects(true, "never seen"));
  CHECK_THROWS_AS(half_of(3), usage_error);
}

}  // namespace expects_test
