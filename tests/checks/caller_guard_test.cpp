// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/full_checks.hpp>

#include <support/catch.hpp>

#include <atomic>
#include <string>
#include <thread>

namespace caller_guard_test {

using namespace chunkmem;
using checks::caller_guard;

namespace {

/// What another thread hears that enters now.
std::string answer_elsewhere(caller_guard& guard, const char* call)
{
  std::string answer;
  std::thread{[&] {
    try {
      const auto inside = guard.enter(call);
    } catch (const usage_error& error) {
      answer = error.what();
    }
  }}.join();
  return answer;
}

}  // namespace

TEST_CASE("one thread is inside, as deep as it likes", "[checks]")
{
  caller_guard guard;
  CHECK(answer_elsewhere(guard, "drop") == "");
  {
    const auto outer = guard.enter("gradient");
    {
      const auto inner = guard.enter("acquire");
    }
    CHECK_THAT(answer_elsewhere(guard, "drop"),
               Catch::Matchers::ContainsSubstring("drop, while another thread is in gradient"));
  }
  CHECK(answer_elsewhere(guard, "drop") == "");
}

TEST_CASE("the end of a pin waits for the other thread and says so", "[checks]")
{
  caller_guard guard;
  bool waited = true;
  {
    const auto free = guard.wait_to_enter("the end of a pin", waited);
    CHECK_FALSE(waited);
    const auto nested = guard.wait_to_enter("the end of a pin", waited);
    CHECK_FALSE(waited);
  }
  std::thread other;
  std::atomic<bool> has_begun{false};
  {
    const auto outer = guard.enter("lease");
    other = std::thread{[&] {
      has_begun = true;
      has_begun.notify_all();
      const auto late = guard.wait_to_enter("the end of a pin", waited);
    }};
    has_begun.wait(false);
  }
  other.join();  // whether it had to wait is a matter of luck; that it came in is not
  CHECK(answer_elsewhere(guard, "drop") == "");
}

}  // namespace caller_guard_test
