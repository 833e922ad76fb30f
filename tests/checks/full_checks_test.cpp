// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/full_checks.hpp>

#include "mistakes.hpp"

#include <conformance/check_policy.hpp>
#include <support/catch.hpp>

#include <array>
#include <atomic>
#include <span>
#include <string>
#include <thread>
#include <utility>

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

extern "C" int __asan_address_is_poisoned(const volatile void* address);

namespace guarded_bytes_test {

using namespace mistakes;
using cm::checks::guarded_bytes;

namespace {

/// What the address sanitizer would report; without it, nothing is.
bool is_reported([[maybe_unused]] const void* at)
{
  if constexpr (guarded_bytes::is_guarding)
    return __asan_address_is_poisoned(at) != 0;
  else
    return false;
}

/// Of a byte that nobody may touch.
constexpr bool guarded = guarded_bytes::is_guarding;

}  // namespace

TEST_CASE("bytes of an arena are guarded but for those of pins that live", "[checks]")
{
  alignas(256) std::array<std::byte, 1024> arena{};
  guarded_bytes bytes;
  bytes.add_arena(arena);
  CHECK(is_reported(&arena[0]) == guarded);
  bytes.open({&arena[256], 100});
  CHECK(bytes.is_open(&arena[355]));
  CHECK_FALSE(bytes.is_open(&arena[356]));
  CHECK_FALSE(is_reported(&arena[256]));
  CHECK(is_reported(&arena[360]) == guarded);
  bytes.open({&arena[256], 100});
  bytes.close({&arena[256], 100});
  CHECK_FALSE(is_reported(&arena[256]));
  bytes.close({&arena[256], 100});
  CHECK(is_reported(&arena[256]) == guarded);
  CHECK_FALSE(bytes.is_open(&arena[256]));
  bytes.forget();
  CHECK_FALSE(is_reported(&arena[0]));
}

TEST_CASE("a copy that is over leaves open what pins hold", "[checks]")
{
  alignas(256) std::array<std::byte, 1024> arena{};
  guarded_bytes bytes;
  bytes.add_arena(arena);
  bytes.open({&arena[256], 256});
  bytes.lend({&arena[0], 512});
  CHECK_FALSE(is_reported(&arena[0]));
  bytes.take_back({&arena[0], 512});
  CHECK(is_reported(&arena[0]) == guarded);
  CHECK_FALSE(is_reported(&arena[256]));
  bytes.take_back({&arena[300], 100});  // within what a pin holds
  CHECK_FALSE(is_reported(&arena[256]));
  CHECK_FALSE(is_reported(&arena[399]));
}

TEST_CASE("a read after a release and a write past a tensor are reported where they happen", "[checks]")
{
  rig<> it;
  const float* kept = nullptr;
  {
    const auto pin = it.m.acquire(it.weights.slice(0), cm::access::read_write);
    kept = pin.data();
    CHECK_FALSE(is_reported(kept));
    CHECK_FALSE(is_reported(kept + 249));
    CHECK(is_reported(kept + 250) == guarded);  // the gap
    CHECK(is_reported(kept + 256) == guarded);  // the next tensor
  }
  CHECK(is_reported(kept) == guarded);
  const auto again = it.m.acquire(it.weights.slice(0), cm::access::read);
  CHECK_FALSE(is_reported(again.data()));
}

TEST_CASE("a lease that ended and a free frame are guarded, and the system has its memory back clean", "[checks]")
{
  const std::byte* kept = nullptr;
  {
    rig<> it;
    {
      const auto lease = it.m.lease(cm::tier::device, 4_KiB);
      kept = lease.data();
      CHECK_FALSE(is_reported(kept + 4095));
    }
    CHECK(is_reported(kept) == guarded);
  }
  CHECK_FALSE(is_reported(kept));
}

}  // namespace guarded_bytes_test

namespace mistake_note_test {

using namespace chunkmem;

TEST_CASE("the first mistake is thrown once, with the count of the others", "[checks]")
{
  checks::mistake_note it;
  CHECK_NOTHROW(it.raise());
  it.add(error_text{} << "chunkmem: first");
  it.add(error_text{} << "chunkmem: second");
  it.add(error_text{} << "chunkmem: third");
  CHECK(it.count() == 3);
  try {
    it.raise();
    FAIL("nothing was thrown");
  } catch (const usage_error& error) {
    CHECK(std::string{error.what()} == "chunkmem: first [and 2 more that were found since]");
  }
  CHECK(it.count() == 0);
  CHECK_NOTHROW(it.raise());
}

}  // namespace mistake_note_test

namespace full_checks_test {

TEST_CASE("checks::full keeps the laws of a check policy", "[checks]")
{
  conformance::check_policy_laws<chunkmem::checks::full>();
}

}  // namespace full_checks_test
