// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/stream_backend.hpp>

#include <support/catch.hpp>

#include <thread>

namespace wait_totals_test {

using namespace chunkmem;

TEST_CASE("totals of each cause are added up by several threads", "[backend]")
{
  backend::wait_totals totals;
  const auto work = [&totals](wait_cause why, std::uint64_t nanoseconds) {
    for (int index = 0; index < 1'000; ++index) totals.add(why, nanoseconds);
  };
  std::thread one{[&] { work(wait_cause::demand_miss, 3); }};
  std::thread other{[&] { work(wait_cause::demand_miss, 4); }};
  work(wait_cause::other, 5);
  one.join();
  other.join();
  CHECK(totals.of(wait_cause::demand_miss) == wait_total{2'000, 7'000});
  CHECK(totals.of(wait_cause::other) == wait_total{1'000, 5'000});
  CHECK(totals.of(wait_cause::throttle) == wait_total{});
  CHECK(totals.of(wait_cause::optimizer_input) == wait_total{});
}

}  // namespace wait_totals_test
