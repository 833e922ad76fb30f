// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/communicator.hpp>

#include <support/catch.hpp>
#include <support/rank_threads.hpp>

#include <atomic>
#include <cstdint>

namespace first_failure_test {

using namespace chunkmem;

TEST_CASE("the first failure stays, and is thrown each time", "[collective]")
{
  collective::first_failure failure;
  CHECK_NOTHROW(failure.check());
  failure.tell({error_text{} << "chunkmem: first", {.failure = comm_failure::revoked, .rank = 3}});
  failure.tell({error_text{} << "chunkmem: second", {.failure = comm_failure::deadline, .rank = 4}});
  for (int i = 0; i < 2; ++i) {
    CHECK(failure.is_there());
    CHECK_THROWS_WITH(failure.check(), "chunkmem: first");
  }
}

TEST_CASE("of failures told at once all threads see the same one", "[collective]")
{
  collective::first_failure failure;
  std::atomic<std::uint32_t> sum{0};
  std::atomic<std::uint32_t> last{0};
  support::on_ranks(4, [&](std::uint32_t rank) {
    failure.tell({error_text{} << "chunkmem: one of four", {.rank = rank + 1}});
    try {
      failure.check();
    } catch (const comm_error& error) {
      sum += error.fault().rank;
      last = error.fault().rank;
    }
  });
  CHECK(last != 0);
  CHECK(sum == 4 * last);
}

}  // namespace first_failure_test
