// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/full_checks.hpp>

#include "mistakes.hpp"

#include <support/catch.hpp>

#include <array>
#include <utility>

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
