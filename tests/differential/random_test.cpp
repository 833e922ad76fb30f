// SPDX-License-Identifier: Apache-2.0
#include "random_world.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/any_backend.hpp>

#include <iostream>

namespace random_test {

using namespace random_world;
using support::any_backend;

namespace {

using ahead = support::any_manager<any_backend>;
using demand = support::any_manager<any_backend, cm::transfer::no_prefetch>;

constexpr std::uint32_t largest = 3;  // frames

template <class Options>
Options sized(std::uint64_t seed)
{
  Options options{};
  options.device_capacity = (largest + 1 + seed % 4) * frame + (seed % 3) * 256_B;
  options.host_capacity = seed % 5 == 0 ? 44 * frame : 80 * frame;  // sometimes less than everything
  return options;
}

template <class Manager>
void run_world(const support::any_options& options, std::uint64_t seed, bool launches, std::uint64_t operations,
               tally& sum)
{
  INFO("seed " << seed << ", launches " << launches);
  world<Manager, any_backend> it{options, seed, launches};
  sum += it.run(operations);
  it.memory().drain();
  REQUIRE(it.memory().faults().empty());
}

tally run_worlds(std::uint64_t first, std::uint64_t count, std::uint64_t operations)
{
  tally sum;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    auto waiting = sized<support::adversarial_options>(seed);
    waiting.when = static_cast<support::schedule>(seed % 3);
    waiting.seed = seed;
    run_world<demand>(waiting, seed, false, operations, sum);
    run_world<ahead>(waiting, seed, false, operations, sum);
    waiting.async_compute = true;
    run_world<demand>(waiting, seed, true, operations, sum);
    run_world<ahead>(waiting, seed, true, operations, sum);
    auto threads = sized<cm::backend::host_arena_options>(seed);
    threads.async_compute = seed % 2 == 0;
    run_world<ahead>(threads, seed, threads.async_compute, operations, sum);
  }
  std::cout << sum.operations << " operations, " << sum.accesses << " accesses, " << sum.illegal << " illegal, "
            << sum.shortages << " out of memory, " << sum.repeated << " iterations repeated, " << sum.diverged
            << " recorded or diverged, " << sum.loads << " loads\n";
  return sum;
}

}  // namespace

TEST_CASE("a hundred thousand random operations equal the model", "[differential]")
{
  const tally sum = run_worlds(1, 20, 1000);
  CHECK(sum.operations >= 100'000);
  CHECK(sum.illegal * 10 >= sum.operations);
  CHECK(sum.repeated > 100);
  CHECK(sum.diverged > 100);
  CHECK(sum.loads > 10'000);
}

TEST_CASE("three million random operations equal the model", "[differential][.slow]")
{
  const tally sum = run_worlds(1'000, 200, 3'000);
  CHECK(sum.operations >= 3'000'000);
}

}  // namespace random_test
