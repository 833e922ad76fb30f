// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/timed_optimizer.hpp>

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <support/catch.hpp>

#include <algorithm>

namespace timed_optimizer_test {

using namespace chunkmem;

TEST_CASE("timed_optimizer takes elements over its rates, rounded up, and counts it for both places", "[planner]")
{
  planner::timed_optimizer kernel{{1e9, 4e9, 2e9, 8e9}};
  CHECK(kernel.update_takes(memory_location::host, 1'000) == work_cost{1'000, bytes{28'000}});
  CHECK(kernel.update_takes(memory_location::device, 1'001) == work_cost{251});
  CHECK(planner::timed_optimizer{{1e9, 4e9}, {.lists = 0}}.update_takes(memory_location::host, 1'000).host_memory ==
        bytes{12'000});
  CHECK(kernel.measure_takes(memory_location::host, 1'001) == work_cost{501, bytes{2'002}});
  CHECK(kernel.measure_takes(memory_location::device, 800) == work_cost{100});
  CHECK(kernel.busy(memory_location::host) == 1'501);
  CHECK(kernel.busy(memory_location::device) == 351);
  const planner::timed_optimizer with_momentum{{1e9, 4e9}, {.lists = 1, .bytes_each = 2}};
  const auto same = [](const list_spec& one, const list_spec& other) { return one.type == other.type; };
  CHECK(std::ranges::equal(kernel.lists(), optimizer::adam{}.lists(), same));
  CHECK(std::ranges::equal(with_momentum.lists(), optimizer::sgd{{}, {.momentum = dtype::bfloat16}}.lists(), same));
}

TEST_CASE("no rate of updates or norms is assumed: without the machine's there is no time", "[planner]")
{
  CHECK_THROWS_AS(planner::timed_optimizer{planner::update_rates{}}, usage_error);
  CHECK_THROWS_AS(planner::timed_optimizer{planner::update_rates{.host_parameters_per_second = 1e9}}, usage_error);
  CHECK_THROWS_AS(planner::timed_optimizer{planner::update_rates{.device_parameters_per_second = 1e9}}, usage_error);
  planner::timed_optimizer kernel{{.host_parameters_per_second = 1e9, .device_parameters_per_second = 4e9}};
  CHECK_THROWS_AS(kernel.measure_takes(memory_location::host, 8), usage_error);
  CHECK_THROWS_AS(kernel.measure_takes(memory_location::device, 8), usage_error);
  CHECK(kernel.busy(memory_location::host) + kernel.busy(memory_location::device) == 0);
}

TEST_CASE("a step takes the time of its kernel on the calling thread where there are no bytes", "[planner]")
{
  for (const bool norm : {false, true}) {
    backend::simulated memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB, .costs = {}, .host_runs_ahead = true}};
    manager<backend::simulated> m{memory, {.chunk_bytes = 4_KiB}};
    planner::timed_optimizer kernel{{1e9, 4e9, 2e9, 8e9}};
    const auto weight = m.add<float>({1'000}, role::parameter);
    m.use(kernel);
    (void)m.acquire(weight, access::write, memory_location::host);
    std::uint64_t took[2];
    for (std::uint64_t& each : took) {
      const auto scope = m.iteration();
      m.gradient_done(m.gradient(weight, agent::compute));
      {  // the gradient is on the host before the clock is read
        const auto seen = m.acquire_bytes(weight, gradient_list, access::read, memory_location::host);
      }
      const std::uint64_t before = memory.now();
      optimizer::step(m, kernel, {.clip = {.norm = norm ? 1.0F : 0.0F}, .skip_nonfinite = false});
      each = memory.now() - before;
    }
    CHECK(took[1] == (norm ? 1'500 : 1'000));  // the first one fills momentum and variance too
  }
}

}  // namespace timed_optimizer_test
