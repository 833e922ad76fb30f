// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/training_forecast.hpp>

#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace training_forecast_test {

using namespace chunkmem;
using namespace chunkmem::planner;

namespace {

const workload::transformer_shape small{workload::transformer_style::gpt, 2, 64, 4, 4, 256, 500, 64, 32, 32, false};

/// Rates of round numbers: a FLOP takes a nanosecond where half of the peak is reached, a byte one up and two down.
workload::rank_share share_of(std::uint64_t ranks, bytes device = 1_GiB)
{
  return {ranks,
          static_cast<std::uint32_t>(ranks),
          device,
          1_GiB,
          {2e9, 1e9, 5e8, ranks > 1 ? 4e9 : 0.0, 0, 1e10, 1e8, 1e9}};
}

rank_settings settings_of(std::uint64_t chunk_elements, bool norm, double device_share)
{
  rank_settings settings;
  settings.chunk_elements = chunk_elements;
  settings.device_context = bytes{};
  settings.host_process = bytes{};
  settings.host_reserve = 0;
  settings.takes_norm = norm;
  settings.device_update_share = device_share;
  settings.link_latency_nanoseconds = 100;
  return settings;
}

std::uint64_t over(std::uint64_t elements, double per_second)
{
  return static_cast<std::uint64_t>(std::ceil(static_cast<double>(elements) / per_second * 1e9));
}

/// Elements of all tensors, each up to the alignment, in whole frames.
std::uint64_t padded(const workload::transformer_shape& shape)
{
  std::uint64_t all = 0;
  for (const workload::transformer_tensor& it : workload::tensors_of(shape)) all += (it.elements() + 127) / 128 * 128;
  return all;
}

/// The whole model in one chunk of each rank: all happens one after the other.
struct one_chunk {
  explicit one_chunk(std::uint64_t ranks)
      : own{own_elements(ranks == 1 ? padded(small) : workload::parameters_of(small) / ranks)},
        settings{settings_of(own, false, 0)}
  {
    const parameter_groups groups = groups_of(small, {}, share_of(ranks), settings);
    computing = training_script{groups, true, 1e9}.nanoseconds();
    if (ranks == 1)
      for (std::uint32_t group = 0; group < groups.groups(); ++group) tensors.push_back(groups.elements_of(group));
    else
      tensors = {half_chunk(ranks), own - half_chunk(ranks)};
  }
  [[nodiscard]] std::uint64_t half_chunk(std::uint64_t ranks) const { return chunk_elements_of(settings, ranks) / 2; }
  /// Work on every tensor of the rank, one after the other.
  [[nodiscard]] std::uint64_t each(double rate) const
  {
    std::uint64_t all = 0;
    for (const std::uint64_t elements : tensors) all += over(elements, rate);
    return all;
  }

  std::uint64_t own;
  rank_settings settings;
  std::uint64_t computing = 0;
  std::vector<std::uint64_t> tensors{};
};

}  // namespace

TEST_CASE("a model that stays on the device takes its compute and its updates", "[planner]")
{
  one_chunk it{1};
  it.settings.device_update_share = 1;
  const training_forecast plain = forecast_training(small, {}, share_of(1), it.settings);
  REQUIRE(plain.fits);
  CHECK(plain.step.nanoseconds == it.computing + it.each(1e9));
  CHECK(plain.step.computing == plain.step.nanoseconds);
  CHECK(plain.step.loaded_bytes == 0);
  CHECK(plain.step.written_back_bytes == 0);
  it.settings.takes_norm = true;
  CHECK(forecast_training(small, {}, share_of(1), it.settings).step.nanoseconds ==
        it.computing + it.each(1e9) + it.each(14e9));
}

TEST_CASE("a model of one chunk that the host updates takes all of its work, one after the other", "[planner]")
{
  one_chunk it{1};
  const std::uint64_t chunk = 2 * it.own;
  const std::uint64_t all = it.computing + (100 + 2 * chunk) + it.each(1e8) + (100 + chunk);
  const training_forecast plain = forecast_training(small, {}, share_of(1), it.settings);
  REQUIRE(plain.fits);
  CHECK(plain.step.nanoseconds == all);
  CHECK(plain.step.computing == it.computing);
  CHECK(plain.step.to_device == 100 + chunk);
  CHECK(plain.step.to_host == 100 + 2 * chunk);
  CHECK(plain.step.updating == it.each(1e8));
  CHECK(plain.step.collecting == 0);
  CHECK(plain.step.loaded_bytes == chunk);
  CHECK(plain.step.written_back_bytes == chunk);
  it.settings.takes_norm = true;
  CHECK(forecast_training(small, {}, share_of(1), it.settings).step.nanoseconds == all + it.each(14e8));
}

TEST_CASE("two ranks gather their group once and scatter its gradient once, half of the bytes each time", "[planner]")
{
  const one_chunk it{2};
  const std::uint64_t chunk = 2 * it.own;
  const std::uint64_t ring = over(workload::parameters_of(small), 4e9);  // 2 B for each element of the other half
  const training_forecast found = forecast_training(small, {}, share_of(2), it.settings);
  REQUIRE(found.fits);
  CHECK(found.step.collecting == 2 * ring);
  CHECK(found.step.nanoseconds == it.computing + 2 * ring + (100 + 2 * chunk) + it.each(1e8) + (100 + chunk));
}

TEST_CASE("a rank needs 14 bytes for each of its parameters, and its peak is that of the costs", "[planner]")
{
  const rank_settings settings = settings_of(4'096, true, 0);
  const training_forecast found = forecast_training(small, {.micro_batch = 4}, share_of(1), settings);
  REQUIRE(found.fits);
  const parameter_groups groups{small, {.micro_batch = 4}, 4'096};
  const training_script script{groups, true, 1e9};
  CHECK(found.need.chunks >= bytes{14 * workload::parameters_of(small)});
  CHECK(found.need.chunks <= bytes{14 * (workload::parameters_of(small) + 4'096)});
  CHECK(found.need.largest_leases >= groups.costs().peak());
  CHECK(found.need.largest_leases <= groups.costs().peak() + bytes{256} * script.leases());
  CHECK(found.counts.divergences == 0);
  CHECK(found.counts.waits.other == 0);
  CHECK(found.computed.size() == found.record.size());
  std::uint64_t computed = 0;
  for (const std::uint64_t each : found.computed) computed += each;
  CHECK(computed == script.nanoseconds());
}

TEST_CASE("gathered groups take three units of the device beside the peak of the costs", "[planner]")
{
  const training_forecast found =
      forecast_training(small, {.micro_batch = 4}, share_of(4), settings_of(8'192, true, 0));
  REQUIRE(found.fits);
  const workload::transformer_costs costs{small, {.micro_batch = 4}};
  const bytes leased = most_leased(found.record, tier::device);
  CHECK(leased >= costs.peak() + bytes{3 * 3 * 2 * 8'192});
  CHECK(leased <= costs.peak() + bytes{3 * 3 * 2 * 8'192 + 256 * 20});
  CHECK(found.need.largest_leases < leased);  // a sharded_model gathers into frames
}

TEST_CASE("a step gathers as many groups at once as the device has room for", "[planner]")
{
  rank_settings settings = settings_of(8'192, false, 0);
  settings.gather_units = 64;
  workload::rank_share share = share_of(2);
  share.rates.peer_bytes_per_second = 1e6;  // collectives are what a step waits for
  const training_forecast roomy = forecast_training(small, {}, share, settings);
  REQUIRE(roomy.fits);
  share.device_bytes = roomy.need.smallest_device;
  const training_forecast tight = forecast_training(small, {}, share, settings);
  REQUIRE(tight.fits);
  CHECK(most_leased(tight.record, tier::device) <= share.device_bytes);
  CHECK(roomy.gather_units == 64);
  CHECK(tight.gather_units < 64);
  CHECK(tight.step.nanoseconds > roomy.step.nanoseconds);
}

TEST_CASE("a training with a profile takes the same steps, says at once whether it fits, and proves nothing",
          "[planner]")
{
  rank_settings settings = settings_of(2'048, true, 0.25);
  const training_forecast rehearsed = forecast_training(small, {}, share_of(1), settings);
  settings.known = known_before::profile;
  const training_forecast profiled = forecast_training(small, {}, share_of(1), settings);
  REQUIRE(rehearsed.fits);
  REQUIRE(profiled.fits);
  CHECK(rehearsed.need.rehearsed);
  CHECK_FALSE(profiled.need.rehearsed);
  CHECK(profiled.step.nanoseconds == rehearsed.step.nanoseconds);
  CHECK(profiled.record.size() == rehearsed.record.size());
  CHECK(profiled.counts.divergences == 0);
  workload::rank_share share = share_of(1, rehearsed.need.smallest_device);  // proven for a record that is known, too
  CHECK(forecast_training(small, {}, share, settings).fits);
  share = share_of(1);
  share.host_bytes = rehearsed.need.smallest_host;
  CHECK(forecast_training(small, {}, share, settings).fits);
  share.device_bytes = bytes{rehearsed.need.largest_leases.count() - 256};  // who cannot lease cannot train
  const training_forecast refused = forecast_training(small, {}, share, settings);
  CHECK_FALSE(refused.fits);
  CHECK_THAT(refused.why_not, Catch::Matchers::ContainsSubstring("device"));
}

TEST_CASE("a step that no clock can count does not fit, whichever part is that slow", "[planner]")
{
  for (double workload::machine_rates::*which :
       {&workload::machine_rates::device_flops_per_second, &workload::machine_rates::to_device_bytes_per_second,
        &workload::machine_rates::to_host_bytes_per_second, &workload::machine_rates::host_updates_per_second}) {
    workload::rank_share share = share_of(1, 1_MiB);
    share.rates.*which = 1e-9;
    const training_forecast found = forecast_training(small, {}, share, settings_of(2'048, true, 0));
    CHECK_FALSE(found.fits);
    CHECK_THAT(found.why_not, Catch::Matchers::ContainsSubstring("virtual clocks"));
  }
}

TEST_CASE("what no memory is enough for does not fit, and says so", "[planner]")
{
  using Catch::Matchers::ContainsSubstring;
  const rank_settings settings = settings_of(8'192, true, 0);
  // 8 PB
  const training_forecast refused =
      forecast_training(small, {.micro_batch = std::uint64_t{1} << 36}, share_of(1), settings);
  CHECK_FALSE(refused.fits);
  CHECK_FALSE(refused.need.rehearsed);
  CHECK_THAT(refused.why_not,
             ContainsSubstring("this step needs at least") && ContainsSubstring("device capacity is 1073741824 B"));
  rank_settings wide = settings_of(std::uint64_t{1} << 40, true, 0);
  wide.gather_units = 16;
  workload::rank_share share = share_of(2, workload::rank_share::most_bytes);
  share.ranks = workload::machine::most_ranks;
  const training_forecast too_wide = forecast_training(small, {}, share, wide);  // units of 2^61 B
  CHECK_FALSE(too_wide.fits);
  CHECK_THAT(too_wide.why_not, ContainsSubstring("needs at least 2305843009213693952 B"));
  ++share.ranks;
  CHECK_THROWS_WITH(forecast_training(small, {}, share, settings), ContainsSubstring("ranks is above 2^20"));
}

TEST_CASE("a step gathers as many groups for the next one as it may and as are late, and none before a norm",
          "[planner]")
{
  rank_settings settings = settings_of(2'048, false, 0);
  settings.gather_units = 12;
  const training_forecast plain = forecast_training(small, {}, share_of(4), settings);
  REQUIRE(plain.fits);
  CHECK(plain.gathers_ahead == 0);
  for (const std::uint32_t most : {1U, 2U, 100U}) {
    settings.gathers_ahead = most;
    const training_forecast found = forecast_training(small, {}, share_of(4), settings);
    CHECK(found.gathers_ahead == std::min(most, 2U));
    CHECK(found.steps.back() <= plain.steps.back());
  }
  const auto ahead_over = [&](double network) {
    workload::rank_share share = share_of(4);
    share.rates.peer_bytes_per_second = network;
    return forecast_training(small, {}, share, settings).gathers_ahead;
  };
  CHECK(ahead_over(2e7) == 3);  // a gather takes longer than most groups compute
  CHECK(ahead_over(1e7) == 0);  // sums take longer than the backward pass
  settings.takes_norm = true;
  CHECK(forecast_training(small, {}, share_of(4), settings).gathers_ahead == 0);
}

TEST_CASE("what does not fit says what would, and that fits", "[planner]")
{
  const rank_settings settings = settings_of(2'048, false, 0);
  workload::rank_share share = share_of(1);
  for (const tier short_of : {tier::device, tier::host}) {
    share = share_of(1);
    (short_of == tier::device ? share.device_bytes : share.host_bytes) = 10_KiB;
    const training_forecast refused = forecast_training(small, {}, share, settings);
    CHECK_FALSE(refused.fits);
    CHECK(refused.why_not.find("needs at least") != std::string::npos);
    REQUIRE(refused.need.rehearsed);
    share.device_bytes = std::max(share.device_bytes, refused.need.smallest_device);
    share.host_bytes = refused.need.smallest_host;
    const training_forecast tight = forecast_training(small, {}, share, settings);
    CHECK(tight.fits);
    CHECK(tight.counts.peak[tier::device] <= share.device_bytes);
    CHECK(tight.counts.peak[tier::host] <= share.host_bytes);
    if (short_of == tier::device)
      share.device_bytes -= bytes{4'096};
    else
      share.host_bytes -= bytes{4'096};
    CHECK_FALSE(forecast_training(small, {}, share, settings).fits);
  }
}

TEST_CASE("no step is faster than its busiest part, and the same question has the same answer", "[planner]")
{
  for (const std::uint64_t ranks : {1U, 4U})
    for (const double device_share : {0.0, 0.4, 1.0})
      for (const bytes device : {800_KiB, 1_MiB}) {
        const rank_settings settings = settings_of(8'192 / ranks, ranks == 1, device_share);
        CAPTURE(ranks, device_share, device.count());
        const training_forecast one = forecast_training(small, {}, share_of(ranks, device), settings);
        const training_forecast other = forecast_training(small, {}, share_of(ranks, device), settings);
        CAPTURE(one.why_not);
        REQUIRE(one.fits);
        CHECK(one.step.nanoseconds >= one.step.busiest());
        CHECK(one.steps == other.steps);
        CHECK(one.counts.json() == other.counts.json());
        if (device_share == 0) CHECK(one.step.loaded_bytes >= 2 * workload::parameters_of(small) / ranks);
        CHECK(one.counts.peak[tier::device] <= device);
      }
}

TEST_CASE("policies are the caller's", "[planner]")
{
  const rank_settings settings = settings_of(4'096, false, 1);
  const auto share = share_of(1, 1_MiB);
  const training_forecast best = forecast_training(small, {}, share, settings);
  const training_forecast worst = forecast_training<eviction::lru, transfer::lookahead>(small, {}, share, settings);
  REQUIRE(best.fits);
  REQUIRE(worst.fits);
  CHECK(best.step.loaded_bytes + best.step.written_back_bytes <
        worst.step.loaded_bytes + worst.step.written_back_bytes);
}

}  // namespace training_forecast_test
