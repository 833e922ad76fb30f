// SPDX-License-Identifier: Apache-2.0
#include "mistakes.hpp"

#include <support/catch.hpp>

namespace read_pin_written_test {

using namespace mistakes;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a write through a pin that reads is named once, and stays", "[checks]")
{
  rig<> it;
  {
    const auto pin = it.m.acquire(it.weights.slice(0), cm::access::read);
    write_unseen(pin.data(), 4.0F);
  }
  CHECK_THROWS_AS(it.m.verify(), cm::usage_error);
  CHECK_NOTHROW(it.m.verify());
  CHECK(it.m.acquire(it.weights.slice(0), cm::access::read).span()[0] == 4.0F);
}

TEST_CASE("a pin that reads beside one that writes the same tensor is no mistake", "[checks]")
{
  rig<> it;
  {
    const auto reader = it.m.acquire(it.weights.slice(1), cm::access::read);
    const auto writer = it.m.acquire(it.weights.slice(1), cm::access::read_write);
    writer.span()[0] = 2.0F;
  }
  CHECK_NOTHROW(it.m.verify());
}

TEST_CASE("a write on the host through a pin that reads is named too", "[checks]")
{
  rig<> it;
  {
    const auto pin = it.m.acquire(it.weights.slice(2), cm::access::read, cm::memory_location::host);
    write_unseen(pin.data(), 4.0F);
  }
  CHECK_THAT(answer_of([&] { (void)it.m.lease(cm::tier::host, 256_B); }),
             ContainsSubstring("'up' (value) was written through"));
}

}  // namespace read_pin_written_test
