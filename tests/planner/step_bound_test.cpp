// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/step_bound.hpp>

#include <chunkmem/planner/training_forecast.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include "random_workload.hpp"
#include "tiny_plan.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

namespace step_bound_test {

using namespace chunkmem;
using namespace chunkmem::planner;

namespace {

constexpr double endless = std::numeric_limits<double>::infinity();

/// A million parameters on a rank with unlimited room and speed; updates on the device never end.
step_needs roomy()
{
  step_needs made;
  made.parameters = 1e6;
  made.device_at_peak = made.device_at_turn = made.device_between = made.host = endless;
  made.rates = {endless, endless, endless, 0, 0, endless, endless, 1e-30};
  return made;
}

void check(const step_needs& needs, double seconds, step_limit limit, step_limit backward)
{
  const step_bound bound = step_bound_of(needs);
  CAPTURE(bound.best.on_device, bound.best.resident, name_of(bound.limit), name_of(bound.backward_limit));
  REQUIRE(bound.fits);
  CHECK(bound.seconds <= seconds);
  CHECK(bound.seconds >= seconds * (1 - 3e-6));
  CHECK(bound.limit == limit);
  CHECK(bound.backward_limit == backward);
}
void check(const step_needs& needs, double seconds, step_limit limit)
{
  check(needs, seconds, limit, limit);
}

}  // namespace

TEST_CASE("a free bound with one resource is the work of this resource", "[planner]")
{
  step_needs it = roomy();
  check(it, 0, step_limit::compute);
  it.rates.host_updates_per_second = 1e6;
  check(it, 1, step_limit::host_updates);
  it = roomy();
  it.rates.to_device_bytes_per_second = 1e6;
  check(it, 2, step_limit::to_device);  // each weight, made by the host
  it = roomy();
  it.rates.to_host_bytes_per_second = 1e6;
  check(it, 2, step_limit::to_host);  // each gradient
  it = roomy();
  it.rates.host_memory_bytes_per_second = 1e6;
  check(it, 32, step_limit::host_memory);  // both, and 28 B of an update
  it = roomy();
  it.gather_seconds = 5, it.gathered_bytes = 2e6;
  check(it, 10, step_limit::collectives);  // a gather and a sum: weights stay at the turn
  it = roomy();
  it.forward_seconds = 1, it.backward_seconds = 3;
  check(it, 4, step_limit::compute);
  it = roomy();
  it.forward_seconds = 1, it.backward_seconds = 3;
  it.rates.device_updates_per_second = 2e6, it.rates.host_updates_per_second = 1e-30;
  check(it, 4.5, step_limit::compute);
}

TEST_CASE("a free bound with a norm has all updates after the backward pass", "[planner]")
{
  step_needs it = roomy();
  it.forward_seconds = 1, it.backward_seconds = 3, it.takes_norm = true;
  check(it, 4, step_limit::compute);
  it.rates.host_updates_per_second = 0.5e6;
  check(it, 3 + 2, step_limit::host_updates, step_limit::compute);
  it.rates.host_updates_per_second = endless, it.rates.to_device_bytes_per_second = 1e6;
  check(it, 3 + 2, step_limit::to_device, step_limit::compute);
  it.rates.to_device_bytes_per_second = endless, it.rates.host_memory_bytes_per_second = 15e6;
  check(it, 3 + 2, step_limit::host_memory, step_limit::compute);
  it.rates.host_memory_bytes_per_second = endless, it.gather_seconds = 2, it.gathered_bytes = 2e6;
  check(it, 3 + 2, step_limit::collectives, step_limit::compute);  // the sum fits under the backward pass
  it.gather_seconds = 4;
  check(it, 8, step_limit::collectives);
}

TEST_CASE("a free bound counts the weights that have no room", "[planner]")
{
  step_needs it = roomy();
  it.rates.to_device_bytes_per_second = 1e6;
  it.device_at_peak = it.device_at_turn = 0.5e6;  // a quarter of all weights
  check(it, 2 + 1.5, step_limit::to_device);
  it.unread = 0.5e6;
  check(it, 2 + 0.5, step_limit::to_device);
  it.unread = 1e6;
  check(it, 2, step_limit::to_device);

  // Half of the weights come up for the forward pass alone: the backward pass hides no part of their way.
  it = roomy();
  it.forward_seconds = 0.5, it.backward_seconds = 3;
  it.rates.to_device_bytes_per_second = 1e6;
  it.device_between = 1e6;
  check(it, 3 + 1, step_limit::to_device, step_limit::compute);

  // With a norm: room for the states of half of the parameters, while the others stream, both ways.
  it = roomy();
  it.takes_norm = true;
  it.rates.device_updates_per_second = endless, it.rates.host_updates_per_second = 1e-30;
  it.device_at_peak = it.device_at_turn = it.device_between = 8e6;
  it.rates.to_host_bytes_per_second = 1e6;
  // Half of the states stay, with all weights; the others come and go.
  check(it, 6, step_limit::to_host);
}

TEST_CASE("states that the host has no room for lie on the device, whoever updates them", "[planner]")
{
  step_needs it = roomy();
  it.host = 9e6;  // of 12
  it.device_at_peak = 2.9e6;
  CHECK_FALSE(step_bound_of(it).fits);
  it.device_at_peak = 3.1e6;
  REQUIRE(step_bound_of(it).fits);
  CHECK(step_bound_of(it).best.resident >= 0.25);
  it.rates.to_host_bytes_per_second = 1e6;
  check(it, 2 + 3, step_limit::to_host);  // a quarter of the states go to the host and come back: 3 B of 12
  it.rates.device_updates_per_second = 1e6;
  CHECK(step_bound_of(it).seconds < 2.01);
}

TEST_CASE("a free bound does not fit where activations or states do not", "[planner]")
{
  step_needs it = roomy();
  it.device_at_peak = -1;
  const step_bound refused = step_bound_of(it);
  CHECK_FALSE(refused.fits);
  CHECK(refused.seconds == 0);
  it = roomy();
  it.device_at_turn = -1;  // the turn is a moment of the peak's kind
  CHECK_FALSE(step_bound_of(it).fits);
  it = roomy();
  it.device_at_peak = it.device_at_turn = it.device_between = 0;
  CHECK(step_bound_of(it).fits);
  it.host = 0;
  CHECK_FALSE(step_bound_of(it).fits);
  it.parameters = 0;
  it.forward_seconds = 1;
  check(it, 1, step_limit::compute);
}

TEST_CASE("more memory and faster rates never raise the free bound", "[planner]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    support::dice dice{seed};
    const auto any = [&](double unit) { return unit * dice.between(1, 100); };
    step_needs it;
    it.parameters = 1e6;
    it.unread = dice.one_in(2) ? any(1e4) : 0;
    it.forward_seconds = any(0.02), it.backward_seconds = any(0.05), it.gather_seconds = any(0.02);
    it.gathered_bytes = dice.one_in(2) ? any(1e6) : 0;
    it.device_at_peak = any(2e5), it.device_at_turn = it.device_at_peak + any(5e4);
    it.device_between = it.device_at_turn + any(5e4);
    it.host = any(2e5);
    it.rates = {1, any(1e5), any(1e5), 0, 0, any(1e6), any(1e5), any(1e5)};
    it.takes_norm = dice.one_in(2);
    const step_bound bound = step_bound_of(it);
    step_needs roomier = it;
    roomier.device_at_peak *= 1.3, roomier.device_at_turn *= 1.3, roomier.device_between *= 1.3;
    CHECK((!bound.fits || step_bound_of(roomier).seconds <= bound.seconds * (1 + 1e-9)));
    const auto is_no_longer = [&](double step_needs::*member) {
      step_needs more = it;
      more.*member *= 1.3;
      const step_bound found = step_bound_of(more);
      CHECK((!bound.fits || (found.fits && found.seconds <= bound.seconds * (1 + 1e-9))));
    };
    for (const auto member : {&step_needs::device_at_turn, &step_needs::device_between, &step_needs::host})
      is_no_longer(member);
    for (const auto rate :
         {&workload::machine_rates::to_device_bytes_per_second, &workload::machine_rates::to_host_bytes_per_second,
          &workload::machine_rates::host_memory_bytes_per_second, &workload::machine_rates::host_updates_per_second,
          &workload::machine_rates::device_updates_per_second}) {
      step_needs more = it;
      more.rates.*rate *= 1.3;
      CHECK(step_bound_of(more).seconds <= bound.seconds * (1 + 1e-9));
    }
    step_needs free = it;
    free.takes_norm = false;
    CHECK(step_bound_of(free).seconds <= bound.seconds * (1 + 1e-9));
  }
}

TEST_CASE("no decisions of a grid are below the free bound", "[planner]")
{
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    support::dice dice{seed};
    step_needs it;
    it.parameters = 1e6;
    it.forward_seconds = 0.1 * dice.below(20), it.backward_seconds = 0.1 * dice.below(40);
    it.device_at_peak = 1e5 * dice.below(130), it.device_at_turn = it.device_at_peak + 1e5 * dice.below(20);
    it.device_between = it.device_at_turn + 1e5 * dice.below(20);
    it.host = endless;
    const auto rate = [&] { return 1e5 * dice.between(1, 100); };
    it.rates = {1, rate(), rate(), 0, 0, 20 * rate(), rate(), rate()};
    it.takes_norm = dice.one_in(2);
    const step_bound bound = step_bound_of(it);
    REQUIRE(bound.fits);
    const double most = std::min(1.0, it.device_at_peak / 12e6);
    double least = endless;
    for (int share = 0; share <= 50; ++share)
      for (int resident = 0; resident <= 50; ++resident)
        least = std::min(least, planner::detail::bound_under(it, {share / 50.0, most * resident / 50.0}).seconds);
    CHECK(bound.seconds <= least);
    CHECK(bound.seconds >= 0.7 * least);  // the grid is coarse
  }
}

TEST_CASE("limits have names of their own", "[planner]")
{
  std::set<std::string> names;
  for (int index = 0; index < 6; ++index) names.insert(name_of(static_cast<step_limit>(index)));
  CHECK(names.size() == 6);
  CHECK(name_of(step_limit::compute) == std::string{"compute"});
  CHECK(name_of(step_limit::collectives) == std::string{"collectives"});
}

TEST_CASE("the needs of a step are the script's, for every size of chunks", "[planner]")
{
  support::dice dice{5};
  for (int round = 0; round < 200; ++round) {
    workload::transformer_shape shape = planner_test::random_shape(dice);
    const workload::training_setup setup = planner_test::random_setup(dice);
    const std::uint64_t ranks = dice.between(1, 3);
    rank_settings settings = tiny_plan::settings();
    settings.chunk_elements = dice.between(1, 5'000);
    settings.gather_units = dice.between(1, 5);
    const workload::rank_share share = tiny_plan::share_of(1_GiB, 1_GiB, ranks);
    const step_needs needs = step_needs_of(shape, setup, share, settings);
    CAPTURE(round, name_of(shape.style), ranks);

    const parameter_groups groups = groups_of(shape, setup, share, settings);
    const training_script script{groups, setup.recomputes_layers, 1e9};  // share_of: half of 2e9 FLOP/s
    double forward = 0;
    double backward = 0;
    bytes leased;
    bytes peak;
    bytes at_turn;
    bool is_back = false;
    std::vector<bytes> sizes(script.leases());
    std::vector<std::uint8_t> is_read(groups.groups(), 0);
    std::vector<std::uint8_t> is_tied(groups.groups(), 0);
    for (const act& it : script.acts()) {
      if (it.kind == act_kind::lease) leased += sizes[it.id] = it.size;
      if (it.kind == act_kind::give) leased -= sizes[it.id];
      if (it.kind == act_kind::backward) is_back = true, at_turn = leased;
      if (it.kind != act_kind::use) continue;
      (is_back ? backward : forward) += static_cast<double>(it.nanoseconds) * 1e-9;
      peak = std::max(peak, leased);
      if (is_back && it.reads) is_read[it.id] = 1;
    }
    CHECK(needs.forward_seconds <= forward * (1 + 1e-9));
    CHECK(needs.forward_seconds >= forward * (1 - 1e-9));
    CHECK(needs.backward_seconds <= backward * (1 + 1e-9));
    CHECK(needs.backward_seconds >= backward * (1 - 1e-9));
    const double device = static_cast<double>((1_GiB).count());
    CHECK(needs.device_between == device);
    CHECK(needs.device_at_turn == device - static_cast<double>(at_turn.count()));
    CHECK(needs.device_at_peak == device - static_cast<double>(peak.count()));
    CHECK(needs.device_at_peak <= needs.device_at_turn);
    double unread = 0;  // of whole groups
    for (std::uint32_t group = 0; group < groups.groups(); ++group)
      if (is_read[group] == 0) unread += static_cast<double>(groups.elements_of(group));
    CHECK(needs.unread * static_cast<double>(ranks) >= unread * (1 - 1e-9));
    CHECK(needs.unread <= needs.parameters * (1 + 1e-9));
    CHECK(needs.parameters * static_cast<double>(ranks) ==
          Catch::Approx(static_cast<double>(workload::parameters_of(shape))));
    CHECK((needs.gather_seconds > 0) == (ranks > 1));
  }
}

TEST_CASE("the tables that are not read again are the ones that no product takes", "[planner]")
{
  workload::transformer_shape shape = tiny_plan::shape;
  const workload::rank_share share = tiny_plan::share_of(1_GiB, 1_GiB);
  const auto unread = [&](bool has_logits) {
    workload::training_setup setup;
    setup.has_logits = has_logits;
    return step_needs_of(shape, setup, share, tiny_plan::settings()).unread;
  };
  const auto table = static_cast<double>(shape.vocabulary * shape.hidden);
  const auto positions = static_cast<double>(shape.positions * shape.hidden);
  shape.ties_embedding = false;
  CHECK(unread(true) == table + positions);
  shape.ties_embedding = true;
  CHECK(unread(true) == positions);
  CHECK(unread(false) == table + positions);
}

TEST_CASE("no simulated step is shorter than the free bound", "[planner]")
{
  for (const std::uint64_t ranks : {1U, 2U})
    for (const bool norm : {false, true})
      for (const double device_share : {0.0, 0.4, 1.0})
        for (const bytes device : {300_KiB, 1_MiB}) {
          rank_settings settings = tiny_plan::settings();
          settings.chunk_elements = 2'048;
          settings.takes_norm = norm;
          settings.device_update_share = device_share;
          const workload::rank_share share = tiny_plan::share_of(device, 2_MiB, ranks);
          const training_forecast found = forecast_training(tiny_plan::shape, {}, share, settings);
          const step_bound bound = step_bound_of(tiny_plan::shape, {}, share, settings);
          CAPTURE(ranks, norm, device_share, device.count(), found.why_not);
          REQUIRE(found.fits);
          REQUIRE(bound.fits);
          CHECK(bound.seconds > 0);
          CHECK(bound.seconds <= static_cast<double>(found.step.nanoseconds) * 1e-9);
        }
}

TEST_CASE("no simulated step over ranks whose collectives have latencies is shorter than the free bound", "[planner]")
{
  for (const std::uint64_t start : {0U, 20'000U, 500'000U})
    for (const bool norm : {false, true})
      for (const std::uint64_t chunk : {256U, 768U, 2'048U})
        for (const std::uint32_t units : {1U, 3U, 12U}) {
          rank_settings settings = tiny_plan::settings();
          settings.chunk_elements = chunk;
          settings.gather_units = units;
          settings.takes_norm = norm;
          settings.device_update_share = 1;
          settings.exchange = group_times{{.of_node = 4,
                                           .nodes = 1,
                                           .peer_bytes_per_second = 1e9,
                                           .network_bytes_per_second = 1e9,
                                           .start_nanoseconds = start,
                                           .peer_nanoseconds = 0}};
          const workload::rank_share share = tiny_plan::share_of(4_MiB, 1_MiB, 4);
          const training_forecast found = forecast_training(tiny_plan::shape, {}, share, settings);
          const step_bound bound = step_bound_of(tiny_plan::shape, {}, share, settings);
          CAPTURE(start, norm, chunk, units, found.why_not);
          REQUIRE(found.fits);
          REQUIRE(bound.fits);
          CHECK(bound.seconds <= static_cast<double>(found.step.nanoseconds) * 1e-9);
        }
}

}  // namespace step_bound_test
