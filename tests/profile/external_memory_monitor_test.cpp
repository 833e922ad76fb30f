// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/profile/external_memory_monitor.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace external_memory_monitor_test {

using namespace chunkmem;

TEST_CASE("without a source nothing is watched and nothing drifts", "[profile]")
{
  external_memory_monitor watch;
  watch.sample();
  watch.end_iteration();
  CHECK(watch.iterations() == 0);
  CHECK(watch.highest() == 0_B);
  CHECK(watch.percentile(0.9) == 0_B);
  CHECK(!watch.has_drifted());
}

TEST_CASE("of each iteration the highest answer is kept", "[profile]")
{
  bytes held;
  auto source = [&] { return held; };
  external_memory_monitor watch;
  watch.watch(source);
  for (const std::uint64_t answer : {30U, 80U, 10U}) {
    held = bytes{answer};
    watch.sample();
  }
  watch.end_iteration();
  CHECK(watch.last() == 80_B);
  held = 20_B;
  watch.sample();
  watch.end_iteration();
  CHECK(watch.last() == 20_B);
  CHECK(watch.highest() == 80_B);
  CHECK(watch.iterations() == 2);
}

TEST_CASE("percentiles are those of the last sixty-four iterations, by sorting them", "[profile]")
{
  support::dice dice{5};
  bytes held;
  auto source = [&] { return held; };
  external_memory_monitor watch;
  watch.watch(source);
  std::vector<std::uint64_t> all;
  for (int iteration = 0; iteration < 200; ++iteration) {
    held = bytes{dice.below(1'000)};
    all.push_back(held.count());
    watch.sample();
    watch.end_iteration();
    std::vector<std::uint64_t> sorted(
        all.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(all.size(), external_memory_monitor::remembered)),
        all.end());
    std::sort(sorted.begin(), sorted.end());
    REQUIRE(watch.percentile(0.0).count() == sorted.front());
    REQUIRE(watch.percentile(1.0).count() == sorted.back());
    for (const double share : {0.25, 0.5, 0.75}) {
      const std::uint64_t found = watch.percentile(share).count();
      const auto within = static_cast<double>(
          std::count_if(sorted.begin(), sorted.end(), [&](std::uint64_t it) { return it <= found; }));
      REQUIRE(within + 1 > share * static_cast<double>(sorted.size()));
    }
  }
}

TEST_CASE("others drift when they hold more than they usually do", "[profile]")
{
  bytes held = 100_B;
  auto source = [&] { return held; };
  external_memory_monitor watch;
  watch.watch(source);
  const auto iterate = [&] {
    watch.sample();
    watch.end_iteration();
  };
  for (int usual = 0; usual < 10; ++usual) iterate();
  CHECK(!watch.has_drifted());
  held = 110_B;
  iterate();
  CHECK(!watch.has_drifted());
  CHECK(watch.has_drifted(0.05));
  held = 111_B;
  iterate();
  CHECK(watch.has_drifted());
  held = 50_B;
  iterate();
  CHECK(!watch.has_drifted());
}

TEST_CASE("a source may be const", "[profile]")
{
  const auto source = [] { return chunkmem::bytes{7}; };
  chunkmem::external_memory_monitor watched;
  watched.watch(source);
  watched.sample();
  watched.end_iteration();
  CHECK(watched.last() == chunkmem::bytes{7});
}

TEST_CASE("what a source throws is the caller's, and changes nothing", "[profile]")
{
  bool fails = false;
  auto source = [&] {
    if (fails) throw std::runtime_error{"the device is gone"};
    return 7_B;
  };
  external_memory_monitor watch;
  watch.watch(source);
  watch.sample();
  fails = true;
  CHECK_THROWS_AS(watch.sample(), std::runtime_error);
  watch.end_iteration();
  CHECK(watch.last() == 7_B);
}

}  // namespace external_memory_monitor_test
