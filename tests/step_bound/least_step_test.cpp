// SPDX-License-Identifier: Apache-2.0
#include <step_bound/least_step.hpp>

#include <chunkmem/planner/training_forecast.hpp>
#include <support/catch.hpp>

#include <cstdint>

namespace least_step_test {

using namespace chunkmem;
using planner::forecast_training;
using planner::rank_settings;
using planner::training_forecast;

namespace {

const workload::transformer_shape small{workload::transformer_style::gpt, 6, 64, 4, 4, 256, 500, 64, 32, 32, false};

struct answer {
  training_forecast forecast;
  step_bound::least_step least;
};

answer ask(std::uint64_t ranks, std::uint64_t chunk, double device_share, double host_updates, bool norm,
           bytes device = 4_MiB)
{
  const workload::rank_share share{ranks,
                                   static_cast<std::uint32_t>(ranks),
                                   device,
                                   100_MiB,
                                   {4e10, 4e9, 4e9, ranks > 1 ? 8e9 : 0.0, 0, 1e10, host_updates, 1e10}};
  rank_settings settings;
  settings.chunk_elements = chunk;
  settings.device_context = settings.host_process = bytes{};
  settings.host_reserve = 0;
  settings.takes_norm = norm;
  settings.device_update_share = device_share;
  settings.link_latency_nanoseconds = 10;
  answer given{forecast_training(small, {}, share, settings), {}};
  CAPTURE(given.forecast.why_not);
  REQUIRE(given.forecast.fits);
  given.least = step_bound::find_least_step(given.forecast, small, {}, share, settings);
  return given;
}

}  // namespace

TEST_CASE("no step is faster than the bound, and the bound is not below the busiest part", "[step_bound]")
{
  for (const std::uint64_t ranks : {1U, 3U})
    for (const double device_share : {0.0, 0.5})
      for (const double host_updates : {2e7, 2e8, 1e10})
        for (const bool norm : {false, true}) {
          CAPTURE(ranks, device_share, host_updates, norm);
          const auto [forecast, least] = ask(ranks, 8'192 / ranks, device_share, host_updates, norm);
          const auto& step = forecast.step;
          CHECK(static_cast<double>(step.nanoseconds) >= least.nanoseconds() * 0.999'999);
          CHECK(least.reachable.busiest() <= least.reachable.nanoseconds);
          CHECK(least.reachable.compute == static_cast<double>(step.computing));
          CHECK(least.reachable.to_device == static_cast<double>(step.to_device));
          CHECK(least.reachable.host == static_cast<double>(step.updating));
        }
}

TEST_CASE("what the host updates is bound by its chains, which a step reaches", "[step_bound]")
{
  for (const bool norm : {false, true}) {
    const auto [forecast, least] = ask(1, 6'144, 0, 2e8, norm);  // 56 chunks
    CHECK(least.reachable.nanoseconds > least.reachable.busiest());
    CHECK(static_cast<double>(forecast.step.nanoseconds) <= 1.05 * least.nanoseconds());
  }
}

}  // namespace least_step_test
