// SPDX-License-Identifier: Apache-2.0
// A model over ranks trains in virtual time, without bytes: on a device that the calling thread reaches and on one that
// it does not.
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/collective/network_costs.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/planner/timed_optimizer.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace virtual_time_test {

using namespace chunkmem;

namespace {

/// Memory of the host plays the device.
class host_clocks : public backend::simulated {
 public:
  static constexpr bool host_addressable = true;
  using simulated::simulated;
};
class device_clocks : public backend::simulated {
 public:
  using simulated::simulated;
};

constexpr std::uint64_t elements = 65536;
constexpr std::uint32_t ranks = 4;
constexpr std::uint32_t weights = 3;
constexpr double updates = 1e6;                // a second
constexpr std::uint64_t update = 16'384'000;   // of a share [ns]
constexpr std::uint64_t compute = 50'000'000;  // of a weight in a pass [ns]

const collective::network_costs network{.of_node = 1, .nodes = ranks, .network_bytes_per_second = 10e9};

template <class Model>
std::vector<tensor<float>> declared(Model& m)
{
  std::vector<tensor<float>> all;
  for (std::uint32_t index = 0; index < weights; ++index)
    all.push_back(m.template add<float>({elements}, role::parameter));
  return all;
}
template <class Model>
void fill(Model& m, const std::vector<tensor<float>>& all)
{
  for (const auto weight : all) {
    const auto pin = m.acquire(weight, access::write, memory_location::host);
    if constexpr (requires { pin.being_filled(); }) std::ranges::fill(pin.being_filled(), 1.0F);
  }
}
template <class Model>
void pass(Model& m, const std::vector<tensor<float>>& all)
{
  const auto work = [&] {
    if (!m.rehearsing()) m.backend().advance(agent::host, compute);
  };
  for (const auto weight : all) {
    const auto pin = m.acquire(weight, access::read);
    work();
  }
  for (auto weight = all.rbegin(); weight != all.rend(); ++weight) {
    {
      const auto pin = m.acquire(*weight, access::read);
    }
    {
      const auto gradient = m.gradient(*weight);
    }
    work();
    m.gradient_done(*weight);
  }
}

/// Nanoseconds of a steady step. @param take   the step
template <class Model, class Take>
std::uint64_t steady_step(Model& m, const std::vector<tensor<float>>& all, Take take)
{
  std::uint64_t begin = 0;
  for (int step = 0; step < 6; ++step) {
    begin = m.backend().now();
    auto iteration = m.iteration();
    pass(m, all);
    take();
  }
  return m.backend().now() - begin;
}

}  // namespace

TEMPLATE_TEST_CASE("a step over ranks takes its updates and its passes in virtual time", "[sharding]", host_clocks,
                   device_clocks)
{
  const sharding::zero divided = GENERATE(sharding::zero_1, sharding::zero_2, sharding::zero_3);
  TestType clocks{{.device_capacity = 16_MiB, .host_capacity = 64_MiB}};
  collective::simulated_ranks group{network};
  planner::timed_optimizer adam{{.host_parameters_per_second = updates,
                                 .device_parameters_per_second = updates,
                                 .host_measured_per_second = 14e9}};
  sharded_model<TestType, collective::simulated_ranks> m{
      clocks, group, {.chunk_bytes = bytes{elements * sizeof(float)}}, {.divided = divided}};
  m.use(adam);
  const auto all = declared(m);
  fill(m, all);
  const optimizer::step_options options{.clip = {.norm = 1.0F}};
  const std::uint64_t least = weights * (update + 2 * compute);
  const std::uint64_t step = steady_step(m, all, [&] { m.step(adam, options); });
  CHECK(step >= least);
  CHECK(step < least + least / 50);
  CHECK(adam.busy(memory_location::host) == 6 * weights * update);
}

TEST_CASE("a late step is no longer than one at once in virtual time, an early one by its gathers at most",
          "[sharding]")
{
  host_clocks clocks{{.device_capacity = 16_MiB, .host_capacity = 64_MiB}};
  collective::network_costs slow = network;
  slow.network_bytes_per_second = 4e6;  // a sum takes as long as the pass of its weight
  collective::simulated_ranks group{slow};
  planner::timed_optimizer adam{{.host_parameters_per_second = updates,
                                 .device_parameters_per_second = updates,
                                 .host_measured_per_second = 14e9}};
  sharded_model<host_clocks, collective::simulated_ranks> m{
      clocks, group, {.chunk_bytes = bytes{elements * sizeof(float)}}, {.divided = sharding::zero_1}};
  m.use(adam);
  const auto all = declared(m);
  fill(m, all);
  const optimizer::step_options options{.clip = {.norm = 1.0F}};
  const std::uint64_t at_once = steady_step(m, all, [&] { m.step(adam, options); });
  CHECK(at_once >= weights * 2 * compute + update);
  optimizer::late_updates late{m, adam};
  CHECK(steady_step(m, all, [&] { late.step(options); }) <= at_once);
  late.finish();
  optimizer::early_updates early{m, adam, 4_MiB};
  constexpr std::uint64_t gather = compute;  // as a sum; ranks update early in orders of their own, and gather in one
  CHECK(steady_step(m, all, [&] { early.step(options); }) <= at_once + (weights - 1) * gather);
  CHECK(adam.busy(memory_location::host) == 18 * weights * update);
}

TEST_CASE("gradients of one manager need no bytes where the calling thread reaches the device", "[sharding]")
{
  host_clocks clocks{{.device_capacity = 16_MiB, .host_capacity = 64_MiB}};
  planner::timed_optimizer adam{{.host_parameters_per_second = updates,
                                 .device_parameters_per_second = updates,
                                 .host_measured_per_second = 14e9}};
  manager<host_clocks> m{clocks, {.chunk_bytes = bytes{elements * sizeof(float)}}};
  m.use(adam);
  const auto all = declared(m);
  fill(m, all);
  const std::uint64_t least = weights * (ranks * update + 2 * compute);
  const std::uint64_t step = steady_step(m, all, [&] { optimizer::step(m, adam, {.clip = {.norm = 1.0F}}); });
  CHECK(step >= least);
  CHECK(step < least + least / 50);
}

}  // namespace virtual_time_test
