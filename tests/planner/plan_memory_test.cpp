// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/plan_memory.hpp>

#include <support/catch.hpp>

#include "tiny_plan.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace plan_memory_test {

using namespace chunkmem;
using namespace chunkmem::planner;

namespace {

/// One candidate by itself.
training_forecast alone(const workload::transformer_shape& shape, const workload::rank_share& share,
                        const plan_point& what)
{
  rank_settings settings = tiny_plan::settings();
  settings.chunk_elements = what.chunk_elements;
  settings.device_update_share = what.device_update_share;
  settings.gather_units = what.gather_units;
  return forecast_training(shape, {}, share, settings);
}

}  // namespace

TEST_CASE("a plan of memory is the fastest of its candidates, and not slower than either pure split", "[planner]")
{
  for (const std::uint64_t ranks : {1U, 2U}) {
    const workload::transformer_shape& shape = ranks == 1 ? tiny_plan::shape : tiny_plan::least_shape;
    const auto share = tiny_plan::share_of(200_KiB, 1_MiB, ranks);
    std::vector<plan_trial> told;
    const memory_plan_choice found =
        plan_memory(shape, {}, share, tiny_plan::settings(), [&](const plan_trial& it) { told.push_back(it); });
    REQUIRE(found.fits);
    CHECK(found.why_not.empty());
    CHECK(told == found.trials);
    CHECK(found.trials.size() <= most_plan_trials);
    std::set<std::uint64_t> sizes;
    for (std::size_t index = 0; index < found.trials.size(); ++index) {
      const plan_trial& it = found.trials[index];
      const auto same = [&](const plan_trial& other) { return other.what == it.what; };
      CHECK(std::ranges::count_if(found.trials, same) == 1);
      sizes.insert(it.what.chunk_elements);
      if (index % 8 != 0) continue;  // some of many
      const training_forecast one = alone(shape, share, it.what);
      REQUIRE(one.fits);
      CHECK(it.nanoseconds == one.step.nanoseconds);
    }
    if (ranks == 1) CHECK(sizes.size() == 2);
    CHECK(std::all_of(told.begin(), told.end(),
                      [&](const plan_trial& it) { return found.plan.step_nanoseconds <= it.nanoseconds; }));
    for (const std::uint64_t size : sizes)
      for (const double pure : {0.0, 1.0}) {
        const auto same = [&](const plan_trial& it) {
          return it.what.chunk_elements == size && it.what.device_update_share == pure;
        };
        CHECK(std::any_of(found.trials.begin(), found.trials.end(), same));
      }
  }
}

TEST_CASE("a plan of memory says what was simulated, and the same job has the same plan", "[planner]")
{
  const auto share = tiny_plan::share_of(90_KiB, 1_MiB);
  const memory_plan_choice found = plan_memory(tiny_plan::least_shape, {}, share, tiny_plan::settings());
  REQUIRE(found.fits);
  CHECK(plan_memory(tiny_plan::least_shape, {}, share, tiny_plan::settings()).plan == found.plan);
  const memory_plan& plan = found.plan;
  const training_forecast same =
      alone(tiny_plan::least_shape, share, {plan.chunk_bytes.count() / 2, plan.device_update_share, plan.gather_units});
  CHECK(plan.step_nanoseconds == same.step.nanoseconds);
  CHECK(plan.device_capacity == 90_KiB);
  CHECK(plan.host_capacity == 1_MiB);
  CHECK(plan.at_peak.sum() == 90_KiB);
  CHECK(plan.at_peak == same.timeline.at_peak);
  CHECK(plan.at_peak.leases == plan.assumed.peak_leased);
  CHECK(plan.assumed.peak_leased == same.need.largest_leases);
  CHECK(plan.assumed.modelled_peak_leased == plan.assumed.peak_leased);
  CHECK(plan.assumed.rates == share.rates);
  CHECK(plan.assumed.flops_per_second == 1e9);
  CHECK(plan.host_peak == same.counts.peak[tier::host]);
  CHECK(plan.host_peak <= 1_MiB);
  CHECK(plan.placement().device_share == plan.device_update_share);
  CHECK(plan.fingerprint == plan_fingerprint(tiny_plan::least_shape, {}, share, tiny_plan::settings()));
}

TEST_CASE("no neighbour of a plan of memory is more than a hundredth faster", "[planner]")
{
  for (const std::uint64_t ranks : {1U, 2U}) {
    const auto share = tiny_plan::share_of(ranks == 1 ? 60_KiB : 160_KiB, 1_MiB, ranks);
    const memory_plan_choice found = plan_memory(tiny_plan::least_shape, {}, share, tiny_plan::settings());
    REQUIRE(found.fits);
    const std::uint64_t chunk = found.plan.chunk_bytes.count() / 2;
    const auto own = (workload::parameters_of(tiny_plan::least_shape) + ranks - 1) / ranks;
    const double one = 1.0 / static_cast<double>((own + chunk - 1) / chunk);
    const plan_point here{chunk, found.plan.device_update_share, found.plan.gather_units};
    for (const double share_of_updates : {here.device_update_share - one, here.device_update_share + one})
      for (const std::uint32_t units : {here.gather_units - 1, here.gather_units, here.gather_units + 1}) {
        if (share_of_updates < 0 || share_of_updates > 1 || units == 0) continue;
        const training_forecast next = alone(tiny_plan::least_shape, share, {chunk, share_of_updates, units});
        if (next.fits) CHECK(100 * next.step.nanoseconds >= 99 * found.plan.step_nanoseconds);
      }
  }
}

TEST_CASE("over ranks a plan keeps gathered groups where the device has room for them", "[planner]")
{
  const workload::transformer_shape shape{
      workload::transformer_style::gpt, 1, 128, 4, 4, 256, 60, 128, 16, 16, false};  // ten groups
  auto share = tiny_plan::share_of(4_MiB, 4_MiB, 2);
  share.rates.peer_bytes_per_second = 1e6;  // collectives are what a step waits for
  const memory_plan_choice found = plan_memory(shape, {}, share, tiny_plan::settings());
  REQUIRE(found.fits);
  CHECK(found.plan.gather_units > tiny_plan::settings().gather_units);
  const training_forecast few =
      alone(shape, share,
            {found.plan.chunk_bytes.count() / 2, found.plan.device_update_share, tiny_plan::settings().gather_units});
  CHECK(few.step.nanoseconds > found.plan.step_nanoseconds);
}

TEST_CASE("over ranks a plan has the bytes that a rehearsal of its own candidate finds", "[planner]")
{
  const auto share = tiny_plan::share_of(200_KiB, 1_MiB, 2);
  const memory_plan_choice found = plan_memory(tiny_plan::least_shape, {}, share, tiny_plan::settings());
  REQUIRE(found.fits);
  const auto told = [](const memory_requirement& need) {
    std::ostringstream text;
    text << need;
    return text.str();
  };
  for (const plan_trial& it : found.trials)
    if (it.fits && it.what.chunk_elements == found.plan.chunk_bytes.count() / 2 &&
        it.what.device_update_share == found.plan.device_update_share)
      CHECK(told(alone(tiny_plan::least_shape, share, it.what).need) == told(found.forecast.need));
}

TEST_CASE("a plan that gathers ahead has the number of its own candidate, and the bytes of a model of this number",
          "[planner]")
{
  const workload::transformer_shape shape{
      workload::transformer_style::gpt, 1, 128, 4, 4, 256, 60, 128, 16, 16, false};  // ten groups
  auto share = tiny_plan::share_of(4_MiB, 4_MiB, 2);
  share.rates.peer_bytes_per_second = 4e7;  // some groups are late, and the network has time for them
  rank_settings settings = tiny_plan::settings();
  settings.takes_norm = false;
  settings.gather_units = 8;
  settings.gathers_ahead = 100;
  const memory_plan_choice found = plan_memory(shape, {}, share, settings);
  REQUIRE(found.fits);
  CHECK(found.plan.gathers_ahead > 0);
  CHECK(found.plan.gathers_ahead == found.forecast.gathers_ahead);
  settings.chunk_elements = found.plan.chunk_bytes.count() / 2;
  settings.device_update_share = found.plan.device_update_share;
  settings.gather_units = found.plan.gather_units;
  settings.gathers_ahead = found.plan.gathers_ahead;
  const memory_requirement need = rehearse_over_ranks<eviction::belady, transfer::planned, size_class_layout>(
      shape, {}, share, settings, layer_activations::all(shape.layers, workload::training_setup{}.recomputes_layers),
      found.forecast.capacity);
  CHECK(need.smallest_device == found.forecast.need.smallest_device);
  CHECK(need.smallest_host == found.forecast.need.smallest_host);
}

TEST_CASE("a device that updates faster than all others work gets the updates, one that is slow does not", "[planner]")
{
  auto share = tiny_plan::share_of(2_MiB, 2_MiB);  // there is room for everything
  share.rates.host_updates_per_second = 1e5;
  share.rates.device_updates_per_second = 1e12;
  CHECK(plan_memory(tiny_plan::least_shape, {}, share, tiny_plan::settings()).plan.device_update_share == 1);
  std::swap(share.rates.host_updates_per_second, share.rates.device_updates_per_second);
  CHECK(plan_memory(tiny_plan::least_shape, {}, share, tiny_plan::settings()).plan.device_update_share == 0);
}

TEST_CASE("where the host has no room for all states, the device updates what it cannot have", "[planner]")
{
  const std::uint64_t all = workload::parameters_of(tiny_plan::least_shape);
  const auto share = tiny_plan::share_of(200_KiB, bytes{8 * all});
  const memory_plan_choice found = plan_memory(tiny_plan::least_shape, {}, share, tiny_plan::settings());
  CAPTURE(found.why_not);
  REQUIRE(found.fits);
  CHECK(found.plan.device_update_share > 0.3);
  CHECK(found.plan.host_peak <= share.host_bytes);
}

TEST_CASE("an optimizer with fewer states has a plan in memory that is too small for Adam", "[planner]")
{
  const auto share = tiny_plan::share_of(32_KiB, 112_KiB);  // together 13.4 B for each parameter
  rank_settings settings = tiny_plan::settings();
  CHECK_FALSE(plan_memory(tiny_plan::least_shape, {}, share, settings).fits);
  for (const optimizer::listed_states states : {optimizer::listed_states{.lists = 0}, {.lists = 1, .bytes_each = 2}}) {
    settings.states = states;
    const memory_plan_choice found = plan_memory(tiny_plan::least_shape, {}, share, settings);
    CAPTURE(states.lists, found.why_not);
    REQUIRE(found.fits);
    const memory_requirement& need = found.forecast.need;
    CHECK(need.by_role[role::optimizer_state] * 2 == need.by_role[role::parameter] * states.bytes());
  }
}

TEST_CASE("where nothing fits the bytes that are missing are named, and with them a plan is there", "[planner]")
{
  auto share = tiny_plan::share_of(20_KiB, 90_KiB);
  const memory_plan_choice refused = plan_memory(tiny_plan::least_shape, {}, share, tiny_plan::settings());
  REQUIRE_FALSE(refused.fits);
  CHECK(refused.trials.size() <= most_plan_trials);
  const memory_requirement& need = refused.forecast.need;
  REQUIRE(need.rehearsed);
  for (const bytes each : {need.smallest_device, 20_KiB, need.smallest_host, 90_KiB})
    CHECK(refused.why_not.find(std::to_string(each.count()) + " B") != std::string::npos);
  for (const plan_trial& it : refused.trials) {
    CHECK_FALSE(it.fits);
    CHECK(it.missing > bytes{});
  }
  share.device_bytes = std::max(share.device_bytes, need.smallest_device);
  share.host_bytes = std::max(share.host_bytes, need.smallest_host);
  CHECK(plan_memory(tiny_plan::least_shape, {}, share, tiny_plan::settings()).fits);
}

TEST_CASE("where no memory is enough there is no plan, in one sentence", "[planner]")
{
  const memory_plan_choice refused = plan_memory(tiny_plan::least_shape, {.micro_batch = std::uint64_t{1} << 38},
                                                 tiny_plan::share_of(200_KiB, 1_MiB), tiny_plan::settings());
  REQUIRE_FALSE(refused.fits);
  CHECK(refused.why_not.find("this step needs at least") != std::string::npos);
  for (const plan_trial& it : refused.trials) CHECK(it.missing == bytes{});
}

}  // namespace plan_memory_test
