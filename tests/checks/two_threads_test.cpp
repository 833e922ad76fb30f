// SPDX-License-Identifier: Apache-2.0
#include "mistakes.hpp"

#include <support/catch.hpp>

#include <thread>

namespace two_threads_test {

using namespace mistakes;

TEST_CASE("threads may take turns", "[checks]")
{
  rig<> it;
  std::string answer = "not run";
  std::thread{[&] {
    answer = answer_of([&] { (void)it.m.acquire(it.weights.slice(0), cm::access::read).span()[0]; });
  }}.join();
  CHECK(answer == "");
  CHECK_NOTHROW(it.m.verify());
}

}  // namespace two_threads_test
