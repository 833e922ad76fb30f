// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/update_split.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace update_split_test {

using namespace chunkmem;
using transfer::best_split;
using transfer::update_bound;
using transfer::update_rates;
using transfer::update_split;
using transfer::update_traffic;

namespace {

/// The five times as they are defined, without lines.
double seconds_of(const update_rates& rates, double streamed, double resident, const update_traffic& each = {})
{
  const double on_host = 1 - streamed - resident;
  const double up = each.state_bytes * streamed + each.value_bytes * on_host;
  const double down = each.state_bytes * streamed + each.gradient_bytes * on_host;
  double most =
      std::max({on_host / rates.host_updates_per_second, (streamed + resident) / rates.device_updates_per_second,
                up / rates.to_device_bytes_per_second, down / rates.to_host_bytes_per_second});
  if (rates.host_memory_bytes_per_second > 0)
    most = std::max(most, (up + down + each.host_update_bytes * on_host) / rates.host_memory_bytes_per_second);
  return most;
}

constexpr update_rates per_device(double host_updates, double up, double down, double memory)
{
  return {host_updates * 1e9, 1e12, up * 1e9, down * 1e9, memory * 1e9};
}

/// A machine of the prototype, with what it found by hand [ns for each parameter].
struct expected {
  update_rates rates;
  double all_host, all_device, best_share, best;
  double share_without_memory, gain_without_memory;
};

const std::vector<expected> machines = {
    {per_device(1.5, 24, 24, 42), 0.762, 0.571, 1.00, 0.571, 0.54, 1.62},    // A100 on PCIe 4, one of eight
    {per_device(7.1, 24, 24, 200), 0.160, 0.500, 0.17, 0.153, 0.10, 1.12},   // A100 alone on a socket
    {per_device(2.2, 50, 50, 62), 0.516, 0.387, 1.00, 0.387, 0.63, 1.44},    // H100 on PCIe 5, one of eight
    {per_device(8.9, 50, 50, 250), 0.128, 0.240, 0.38, 0.116, 0.23, 1.30},   // H100 alone
    {per_device(17, 375, 297, 486), 0.066, 0.049, 1.00, 0.049, 0.56, 1.57},  // GH200
    {per_device(2.5, 24, 24, 70), 0.457, 0.500, 0.70, 0.377, 0.39, 1.63},    // RTX 4090
    {per_device(2, 25, 25, 0), 0.500, 0.480, 0.47, 0.267, 0.47, 1.80},       // weak cores, no limit of memory
};

}  // namespace

TEST_CASE("splits of seven machines are those worked out by hand", "[transfer]")
{
  for (const expected& it : machines) {
    const update_bound bound{it.rates};
    CAPTURE(it.rates.host_updates_per_second, it.rates.to_device_bytes_per_second);
    CHECK(std::abs(bound.seconds(0) * 1e9 - it.all_host) < 0.0006);
    CHECK(std::abs(bound.seconds(1) * 1e9 - it.all_device) < 0.0006);
    CHECK(std::abs(bound.best().device_share - it.best_share) < 0.006);
    CHECK(std::abs(bound.best().seconds * 1e9 - it.best) < 0.0006);
    update_rates plenty = it.rates;
    plenty.host_memory_bytes_per_second = 0;
    const update_bound without{plenty};
    CHECK(std::abs(without.best().device_share - it.share_without_memory) < 0.006);
    const double gain = std::min(without.seconds(0), without.seconds(1)) / without.best().seconds;
    CHECK(std::abs(gain - it.gain_without_memory) < 0.012);
  }
}

TEST_CASE("the best split of any machine is that of a scan over all of them", "[transfer]")
{
  std::mt19937 random{17};
  std::uniform_real_distribution<double> exponent{-2, 2};
  std::uniform_real_distribution<double> share{0, 1};
  const auto rate = [&] { return std::pow(10.0, exponent(random)); };
  int mixed = 0;
  for (int round = 0; round < 10'000; ++round) {
    const update_rates rates{rate(), rate() * 5, rate() * 10, rate() * 10, round % 5 == 0 ? 0 : rate() * 30};
    const double resident = round % 3 == 0 ? 0 : share(random);
    const update_traffic each = round % 2 == 0 ? update_traffic{}
                                               : update_traffic{.state_bytes = 8 * share(random) + 0.1,
                                                                .gradient_bytes = 4 * share(random),
                                                                .value_bytes = 4 * share(random),
                                                                .host_update_bytes = 30 * share(random)};
    const update_split found = best_split(rates, resident, each);
    REQUIRE(found.device_share >= 0);
    REQUIRE(found.device_share <= 1 - resident);
    REQUIRE(found.seconds == Catch::Approx(seconds_of(rates, found.device_share, resident, each)).epsilon(1e-9));
    constexpr int steps = 500;
    double least = std::numeric_limits<double>::infinity();
    for (int index = 0; index <= steps; ++index)
      least = std::min(least, seconds_of(rates, (1 - resident) * index / steps, resident, each));
    REQUIRE(found.seconds <= least * (1 + 1e-9));
    mixed += found.device_share > 0 && found.device_share < 1 - resident ? 1 : 0;
  }
  CHECK(mixed > 2'000);
}

TEST_CASE("states that stay on the device shorten every update that they do not delay", "[transfer]")
{
  for (const expected& it : machines) {
    const update_split without = best_split(it.rates);
    const update_split with = best_split(it.rates, 0.3);
    CHECK(with.seconds == Catch::Approx(0.7 * without.seconds));
    CHECK(with.device_share == Catch::Approx(0.7 * without.device_share));
    const update_split all = best_split(it.rates, 1);
    CHECK(all.device_share == 0);
    CHECK(all.seconds == Catch::Approx(1 / it.rates.device_updates_per_second));
  }
}

TEST_CASE("gradients that came down during backward leave their link to streamed states", "[transfer]")
{
  const update_rates rates{2e9, 1e12, 1e12, 25e9, 0};
  const double late = best_split(rates).seconds;
  const double early = best_split(rates, 0, {.gradient_bytes = 0}).seconds;
  CHECK(late == Catch::Approx(12.0 / 25e9 * (1 / 2e9 - 2 / 25e9) / (1 / 2e9 + 10 / 25e9) +
                              2.0 / 25e9 * (12 / 25e9) / (1 / 2e9 + 10 / 25e9)));
  CHECK(early == Catch::Approx(12.0 / 25e9 * (1 / 2e9) / (1 / 2e9 + 12 / 25e9)));
}

TEST_CASE("equal splits: the one that streams least", "[transfer]")
{
  // Only host memory counts, and 28 + 2 + 2 B there are as many as 16 up and 16 down.
  STATIC_REQUIRE(best_split({1e9, 1e9, 1e9, 1e9, 1}, 0, {.state_bytes = 16}).device_share == 0);
}

TEST_CASE("rates, bytes and shares that cannot be are refused", "[transfer]")
{
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {0.0, -1.0, nan, infinity}) {
    CHECK_THROWS_AS(best_split({bad, 1, 1, 1}), config_error);
    CHECK_THROWS_AS(best_split({1, bad, 1, 1}), config_error);
    CHECK_THROWS_AS(best_split({1, 1, bad, 1}), config_error);
    CHECK_THROWS_AS(best_split({1, 1, 1, bad}), config_error);
  }
  for (const double bad : {-1.0, nan, infinity}) {
    CHECK_THROWS_AS(best_split({1, 1, 1, 1, bad}), config_error);
    CHECK_THROWS_AS(best_split({1, 1, 1, 1}, 0, {.state_bytes = bad}), config_error);
    CHECK_THROWS_AS(best_split({1, 1, 1, 1}, 0, {.host_update_bytes = bad}), config_error);
  }
  for (const double bad : {-0.1, 1.1, nan}) CHECK_THROWS_AS(best_split({1, 1, 1, 1}, bad), usage_error);
}

TEST_CASE("one split for several ranks has the fewest seconds of the slowest, and is the smallest of equal ones",
          "[transfer]")
{
  // The host takes (1 - x) / updates, the link up (2 + 10 x) / 4: lines that cross at 1/7 for 1 update per second.
  const auto rank = [](double updates) { return update_bound{{updates, 1e30, 4, 1e30}}; };
  const std::vector<update_bound> one{rank(1)};
  CHECK(std::abs(best_split(one).device_share - 1.0 / 7) < 1e-12);
  CHECK(std::abs(best_split(one).seconds - 6.0 / 7) < 1e-12);
  // With half the rate, 2 (1 - x) = (2 + 10 x) / 4 at 1/3; the faster rank waits.
  const std::vector<update_bound> both{rank(1), rank(0.5)};
  CHECK(std::abs(best_split(both).device_share - 1.0 / 3) < 1e-12);
  CHECK(std::abs(best_split(both).seconds - 4.0 / 3) < 1e-12);
  CHECK(std::abs(transfer::slowest_seconds(both, 0) - 2) < 1e-12);
  // Gradients that come down are the limit of one rank for any share up to 1/2: 2 updates per second at least.
  const std::vector<update_bound> flat{update_bound{{2, 1e30, 1e30, 1}, 0, {.state_bytes = 2, .gradient_bytes = 2}}};
  CHECK(best_split(flat).device_share < 1e-12);
  CHECK_THROWS_AS(best_split(std::span<const update_bound>{}), usage_error);
  for (const expected& it : machines) {
    const std::vector<update_bound> alone{update_bound{it.rates}};
    CHECK(std::abs(best_split(alone).seconds - update_bound{it.rates}.best().seconds) < 1e-12);
  }
}

}  // namespace update_split_test
