// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/wait_cause.hpp>

#include <support/catch.hpp>

namespace wait_cause_test {

using namespace chunkmem;

TEST_CASE("a total of waits begins with none, and every cause has a place in a table", "[backend]")
{
  CHECK(wait_total{} == wait_total{0, 0});
  CHECK_FALSE(wait_total{1, 0} == wait_total{0, 0});
  CHECK_FALSE(wait_total{0, 1} == wait_total{0, 0});
  for (const wait_cause why :
       {wait_cause::demand_miss, wait_cause::optimizer_input, wait_cause::throttle, wait_cause::other})
    CHECK(static_cast<std::size_t>(why) < wait_causes);
}

}  // namespace wait_cause_test
