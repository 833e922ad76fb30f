// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/reachable.hpp>

#include <chunkmem/planner/training_forecast.hpp>
#include <support/catch.hpp>

#include <cstdint>

namespace reachable_test {

using namespace chunkmem;
using namespace chunkmem::planner;

namespace {

const workload::transformer_shape small{workload::transformer_style::gpt, 6, 64, 4, 4, 256, 500, 64, 32, 32, false};

training_forecast ask(std::uint64_t ranks, std::uint64_t chunk, double device_share, double host_updates, bool norm,
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
  settings.finds_reachable = true;
  return forecast_training(small, {}, share, settings);
}

}  // namespace

TEST_CASE("no step is faster than the bound, and the bound is not below the busiest part", "[planner]")
{
  for (const std::uint64_t ranks : {1U, 3U})
    for (const double device_share : {0.0, 0.5})
      for (const double host_updates : {2e7, 2e8, 1e10})
        for (const bool norm : {false, true}) {
          const training_forecast found = ask(ranks, 8'192 / ranks, device_share, host_updates, norm);
          CAPTURE(ranks, device_share, host_updates, norm, found.why_not);
          REQUIRE(found.fits);
          const auto step = static_cast<double>(found.step.nanoseconds);
          CHECK(step >= found.least_nanoseconds() * 0.999'999);
          CHECK(found.reachable.busiest() <= found.reachable.nanoseconds);
          CHECK(found.reachable.compute == static_cast<double>(found.step.computing));
          CHECK(found.reachable.to_device == static_cast<double>(found.step.to_device));
          CHECK(found.reachable.host == static_cast<double>(found.step.updating));
        }
}

TEST_CASE("what the host updates is bound by its chains, which a step reaches", "[planner]")
{
  for (const bool norm : {false, true}) {
    const training_forecast found = ask(1, 6'144, 0, 2e8, norm);  // 56 chunks
    REQUIRE(found.fits);
    CHECK(found.reachable.nanoseconds > found.reachable.busiest());
    CHECK(static_cast<double>(found.step.nanoseconds) <= 1.05 * found.least_nanoseconds());
  }
}

}  // namespace reachable_test
