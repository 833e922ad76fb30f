// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/plan_drift.hpp>

#include <support/catch.hpp>

#include "tiny_plan.hpp"

#include <limits>
#include <optional>
#include <string>

namespace plan_drift_test {

using namespace chunkmem;
using namespace chunkmem::planner;

namespace {

const workload::rank_share share = tiny_plan::share_of(90_KiB, 1_MiB);

const memory_plan& planned()
{
  static const memory_plan plan = plan_memory(tiny_plan::least_shape, {}, share, tiny_plan::settings()).plan;
  return plan;
}

/// The assumptions of the plan, as if they were measured.
measured_training as_assumed(const memory_plan& plan)
{
  const workload::machine_rates& rates = plan.assumed.rates;
  return {plan.assumed.peak_leased,       plan.assumed.flops_per_second, rates.to_device_bytes_per_second,
          rates.to_host_bytes_per_second, rates.host_updates_per_second, rates.device_updates_per_second};
}

std::optional<memory_plan_choice> again(const memory_plan& plan, const measured_training& measured)
{
  return replan(plan, measured, tiny_plan::least_shape, {}, share, tiny_plan::settings());
}

}  // namespace

TEST_CASE("a drift is the worst rate and the peak of leases, each with its tolerance", "[planner]")
{
  memory_plan plan;
  plan.device_capacity = 1'000_B;
  plan.assumed = {100_B, 100_B, 10, {0, 20, 40, 0, 0, 0, 80, 160}};
  CHECK_FALSE(drift_of(plan, {}).drifted);
  CHECK_FALSE(drift_of(plan, as_assumed(plan)).drifted);
  measured_training now{110_B, 10.5, 19, 42, 80, 150};
  const plan_drift small = drift_of(plan, now);
  CHECK_FALSE(small.drifted);
  CHECK(small.rate == Catch::Approx(1 - 150.0 / 160));
  CHECK(small.which == "device_updates_per_second");
  CHECK(small.peak_leased == Catch::Approx(0.01));
  CHECK(drift_of(plan, now, {.rate = 0.06}).drifted);
  CHECK(drift_of(plan, now, {.peak_leased = 0.009}).drifted);
  now.peak_leased = 111_B;
  CHECK(drift_of(plan, now).drifted);
  now.peak_leased = 89_B;
  CHECK(drift_of(plan, now).drifted);
  now = {};
  now.to_host_bytes_per_second = 20;
  const plan_drift halved = drift_of(plan, now);
  CHECK(halved.drifted);
  CHECK(halved.rate == 0.5);
  CHECK(halved.which == "to_host_bytes_per_second");
  for (const double wrong : {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    now.to_host_bytes_per_second = wrong;
    CHECK_THROWS_AS(drift_of(plan, now), usage_error);
  }
}

TEST_CASE("a plan stays what it is while nothing drifted", "[planner]")
{
  measured_training measured = as_assumed(planned());
  CHECK_FALSE(again(planned(), measured));
  measured.to_device_bytes_per_second *= 1.05;
  measured.host_updates_per_second *= 0.95;
  CHECK_FALSE(again(planned(), measured));
  CHECK_FALSE(again(planned(), {}));
}

TEST_CASE("updates are measured as those of the plan's optimizer", "[planner]")
{
  rank_settings settings = tiny_plan::settings();
  settings.states = {.lists = 0};
  const memory_plan plan = plan_memory(tiny_plan::least_shape, {}, share, settings).plan;
  const auto replanned = [&](double host_updates) {
    return replan(plan, {.peak_leased = {}, .host_updates_per_second = host_updates}, tiny_plan::least_shape, {}, share,
                  settings);
  };
  const double of_sgd = share.rates.host_updates_per_second * 28 / 12;
  CHECK_FALSE(replanned(of_sgd));
  const auto made = replanned(of_sgd / 2);
  REQUIRE(made);
  CHECK(made->plan.assumed.rates.host_updates_per_second == Catch::Approx(of_sgd / 2));
  CHECK(made->plan.assumed.rates.device_updates_per_second ==
        Catch::Approx(share.rates.device_updates_per_second * 28 / 12));
}

TEST_CASE("a host at an eighth of its rate is another split, the one of the plan that is made for such a host",
          "[planner]")
{
  measured_training measured;
  measured.host_updates_per_second = share.rates.host_updates_per_second / 8;
  measured.to_host_bytes_per_second = share.rates.to_host_bytes_per_second * 2;
  const auto made = again(planned(), measured);
  REQUIRE(made);
  REQUIRE(made->fits);
  workload::rank_share other = share;
  other.rates.host_updates_per_second /= 8;
  other.rates.to_host_bytes_per_second *= 2;
  CHECK(made->plan == plan_memory(tiny_plan::least_shape, {}, other, tiny_plan::settings()).plan);
  CHECK(made->plan.device_update_share > planned().device_update_share);
  CHECK_FALSE(again(made->plan, measured));
}

TEST_CASE("a higher peak of leases is less room for chunks, and its plan holds for it", "[planner]")
{
  measured_training measured;
  measured.peak_leased = planned().assumed.peak_leased + 20_KiB;
  const auto made = again(planned(), measured);
  REQUIRE(made);
  REQUIRE(made->fits);
  const memory_plan& plan = made->plan;
  CHECK_FALSE(plan == planned());
  CHECK(plan.device_capacity == planned().device_capacity);
  CHECK(plan.at_peak.sum() == plan.device_capacity);
  CHECK(plan.assumed.peak_leased == measured.peak_leased);
  CHECK(plan.at_peak.leases == measured.peak_leased);
  CHECK(plan.assumed.modelled_peak_leased == planned().assumed.modelled_peak_leased);
  CHECK_FALSE(again(plan, measured));
  workload::rank_share smaller = share;
  smaller.device_bytes -= 20_KiB;
  const memory_plan direct = plan_memory(tiny_plan::least_shape, {}, smaller, tiny_plan::settings()).plan;
  CHECK(plan.step_nanoseconds == direct.step_nanoseconds);
  CHECK(plan.device_update_share == direct.device_update_share);
  CHECK(drift_of(plan, as_assumed(planned())).drifted);
}

TEST_CASE("a peak of leases that leaves no room is refused with the bytes, and a plan of another job is not made again",
          "[planner]")
{
  measured_training measured;
  measured.peak_leased = 95_KiB;
  const auto made = again(planned(), measured);
  REQUIRE(made);
  CHECK_FALSE(made->fits);
  CHECK(made->why_not.find(" B") != std::string::npos);
  CHECK_THROWS_AS(replan(planned(), measured, tiny_plan::shape, {}, share, tiny_plan::settings()), usage_error);
  memory_plan laid_out_else = planned();
  laid_out_else.layout = "append_layout";
  CHECK_THROWS_AS(again(laid_out_else, measured), usage_error);
}

}  // namespace plan_drift_test
