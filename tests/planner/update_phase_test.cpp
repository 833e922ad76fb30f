// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/update_phase.hpp>

#include <chunkmem/planner/update_split_search.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>

namespace update_phase_test {

using namespace chunkmem;
using planner::simulate_update;
using planner::update_cost;
using planner::update_phase;

namespace {

constexpr std::uint64_t parameters = 1'280'000;
constexpr double count = parameters;

}  // namespace

TEST_CASE("one chunk updated on the host: its gradient down, the update, its weight up", "[planner]")
{
  const update_phase what{.rates = {1e9, 1e12, 20e9, 10e9, 0}, .chunks = 1, .chunk_parameters = parameters};
  const update_cost cost = simulate_update(what, 0);
  CHECK(cost.to_host_bytes == 2 * count);
  CHECK(cost.to_device_bytes == 2 * count);
  CHECK(cost.seconds == Catch::Approx(2 * count / 10e9 + count / 1e9 + 2 * count / 20e9).epsilon(1e-6));
}

TEST_CASE("the host's memory makes an update on the host as slow as its bytes", "[planner]")
{
  const update_phase what{.rates = {1e9, 1e12, 20e9, 10e9, 14e9}, .chunks = 1, .chunk_parameters = parameters};
  CHECK(simulate_update(what, 0).seconds ==
        Catch::Approx(2 * count / 10e9 + 28 * count / 14e9 + 2 * count / 14e9).epsilon(1e-6));
}

TEST_CASE("states that fit on the device are updated there and never move", "[planner]")
{  // with room for two more, since weights may lie between windows
  const update_phase what{
      .rates = {1e9, 5e9, 20e9, 10e9, 0}, .chunks = 6, .chunk_parameters = parameters, .buffers = 8};
  const update_cost cost = simulate_update(what, 6);
  CHECK(cost.to_host_bytes == 0);
  CHECK(cost.to_device_bytes == 0);
  CHECK(cost.seconds == Catch::Approx(6 * count / 5e9).epsilon(1e-6));
}

TEST_CASE("streamed chunks lie evenly among the others", "[planner]")
{
  for (std::uint32_t chunks = 1; chunks < 40; ++chunks)
    for (std::uint32_t streamed = 0; streamed <= chunks; ++streamed) {
      std::uint32_t seen = 0;
      for (std::uint32_t index = 0; index < chunks; ++index) {
        seen += planner::is_streamed(index, streamed, chunks) ? 1U : 0U;
        REQUIRE(seen == std::uint64_t{index + 1} * streamed / chunks);
      }
    }
}

TEST_CASE("no update is faster than its resources, whatever is streamed, and the same one takes the same time",
          "[planner]")
{
  for (const double memory : {0.0, 42e9})
    for (const std::uint32_t streamed : {0U, 5U, 16U, 24U}) {
      const update_phase what{.rates = {1.5e9, 1e11, 24e9, 20e9, memory}, .chunks = 24, .chunk_parameters = parameters};
      const update_cost cost = simulate_update(what, streamed);
      const double on_host = (24.0 - streamed) * count;
      CAPTURE(memory, streamed, cost.seconds, cost.to_device_bytes, cost.to_host_bytes);
      CHECK(cost.to_device_bytes <= 2 * on_host + 12 * count * streamed);
      CHECK(cost.to_device_bytes >= 0.6 * (2 * on_host + 12 * count * streamed));
      const double least =
          std::max({on_host / 1.5e9, count * streamed / 1e11, cost.to_device_bytes / 24e9, cost.to_host_bytes / 20e9,
                    memory > 0 ? (28 * on_host + cost.to_device_bytes + cost.to_host_bytes) / memory : 0});
      CHECK(cost.seconds >= least * (1 - 1e-6));
      CHECK(cost.seconds <= 1.6 * least + 6 * count / 1.5e9);
      CHECK(simulate_update(what, streamed).seconds == cost.seconds);
    }
}

TEST_CASE("a split that is searched for by simulation beats both pure ones where neither resource alone binds",
          "[planner]")
{
  const update_phase what{.rates = {2e9, 1e12, 25e9, 25e9, 0}, .chunks = 32, .chunk_parameters = parameters};
  const auto found =
      planner::search_update_split(transfer::update_bound{what.rates}, what.chunks,
                                   [&](std::uint32_t streamed) { return simulate_update(what, streamed).seconds; });
  CHECK(found.best.streamed > 0);
  CHECK(found.best.streamed < 32);
  CHECK(found.best.seconds < 0.8 * found.pure_seconds());
}

TEST_CASE("an update that cannot be simulated is refused", "[planner]")
{
  const update_phase good{.rates = {1e9, 1e12, 20e9, 10e9, 0}, .chunks = 2, .chunk_parameters = 128};
  CHECK_NOTHROW(simulate_update(good, 2));
  CHECK_THROWS_AS(simulate_update(good, 3), usage_error);
  update_phase bad = good;
  bad.chunks = 0;
  CHECK_THROWS_AS(simulate_update(bad, 0), usage_error);
  bad = good;
  bad.chunk_parameters = 100;
  CHECK_THROWS_AS(simulate_update(bad, 0), usage_error);
  bad = good;
  bad.buffers = 0;
  CHECK_THROWS_AS(simulate_update(bad, 0), usage_error);
  bad = good;
  bad.rates.to_host_bytes_per_second = 0;
  CHECK_THROWS_AS(simulate_update(bad, 0), config_error);
}

}  // namespace update_phase_test
