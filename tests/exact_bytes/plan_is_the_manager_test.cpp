// SPDX-License-Identifier: Apache-2.0
// A plan of memory as docs/training.md uses it: chunk_bytes, capacities, gradients() and placement() make the manager.
// The model is then declared tensor by tensor, by a trainer that shares nothing with the planner.
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/placement/memory_plan.hpp>
#include <chunkmem/planner/plan_memory.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <vector>

namespace plan_is_the_manager_test {

using namespace chunkmem;

namespace {

workload::transformer_shape gpt(std::uint64_t layers)
{
  return {workload::transformer_style::gpt, layers, 32, 4, 4, 128, 64, 32, 16, 16, false};
}
constexpr bytes device = 256_KiB;

planner::rank_settings settings(const planned_gradient& gradient)
{
  planner::rank_settings it;
  it.device_context = it.host_process = bytes{};
  it.host_reserve = 0;
  it.most_iterations = 5;
  it.chunk_elements = 4'096;
  it.gradient = gradient;
  it.updates_late = false;
  return it;
}

planner::training_forecast forecast(const planner::rank_settings& how, bytes host)
{
  return planner::forecast_training(gpt(4), {}, {1, 1, device, host, {2e12, 1e10, 1e10, 0.0, 0, 1e11, 1e8, 1e9}}, how);
}

/// The least host that the planner names, found by asking it for every size.
bytes least_host(const planner::rank_settings& how)
{
  std::uint64_t low = 0;
  std::uint64_t high = 4'096;
  while (low < high) {
    const std::uint64_t middle = (low + high) / 2;
    if (forecast(how, bytes{1'024 * middle}).fits)
      high = middle;
    else
      low = middle + 1;
  }
  return bytes{1'024 * low};
}

/// The requirement that a rehearsal of the plan's manager tells. @throws config_error   the capacities are too small
memory_requirement rehearse(const workload::transformer_shape& shape, const memory_plan& plan)
{
  backend::simulated memory{{.device_capacity = plan.device_capacity, .host_capacity = plan.host_capacity}};
  manager<backend::simulated, transfer::planned, placement::update_share, planned_gradient> m{
      memory, {.chunk_bytes = plan.chunk_bytes}, plan.placement(), plan.gradients()};
  optimizer::adam adam;
  m.use(adam);
  std::vector<tensor<bf16>> all;
  for (const workload::transformer_tensor& it : workload::tensors_of(shape))
    all.push_back(m.add<bf16>({it.elements()}, role::parameter));
  return m.rehearse([&] {
    const auto iteration = m.iteration();
    {
      const auto scratch = m.lease(tier::device, plan.assumed.peak_leased);
      for (const tensor<bf16> weight : all) (void)m.acquire(weight, access::read);
      for (auto weight = all.rbegin(); weight != all.rend(); ++weight) {
        auto pin = m.acquire(*weight, access::read);
        m.gradient_done(m.gradient(std::move(pin)));
      }
    }
    optimizer::step(m, adam, {.learning_rate = 1e-3F});
  });
}

}  // namespace

TEST_CASE("the least host that a planner names is the least host of the manager that its plan names", "[exact_bytes]")
{
  for (const char* name : {"separate", "in_place"}) {
    const planner::rank_settings how = settings(planned_gradient{name});
    const bytes host = least_host(how);
    const planner::training_forecast found = forecast(how, host);
    REQUIRE(found.fits);
    CHECK(found.need.smallest_host <= host);
    CHECK(found.need.smallest_host + 1_KiB > host);
    memory_plan plan;
    plan.chunk_bytes = bytes{2 * how.chunk_elements};
    plan.device_capacity = device;
    plan.host_capacity = host;
    plan.device_update_share = how.device_update_share;
    plan.gradient = name;
    plan.assumed.peak_leased = found.need.largest_leases;
    CAPTURE(name, host.count(), plan.assumed.peak_leased.count());
    const memory_requirement need = rehearse(gpt(4), plan);
    CHECK(need.smallest_host == found.need.smallest_host);
    CHECK(need.chunks == found.need.chunks);
    plan.host_capacity = host - plan.chunk_bytes;
    CHECK_THROWS_AS(rehearse(gpt(4), plan), config_error);
  }
}

TEST_CASE("a plan's file makes the manager that was planned", "[exact_bytes]")
{
  for (const char* name : {"separate", "in_place"}) {
    const workload::rank_share share{1, 1, device, 4_MiB, {2e12, 1e10, 1e10, 0.0, 0, 1e11, 1e8, 1e9}};
    const auto found = planner::plan_memory(gpt(1), {}, share, settings(planned_gradient{name}));
    REQUIRE(found.fits);
    CHECK(found.plan.gradient == name);
    CHECK(found.plan.layout == "size_class_layout");
    const memory_requirement need = rehearse(gpt(1), found.plan);
    CHECK(need.chunks == found.forecast.need.chunks);
    CHECK(need.smallest_device <= found.plan.device_capacity);
  }
}

}  // namespace plan_is_the_manager_test
