// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/plan_memory.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/workload/machine.hpp>
#include <support/catch.hpp>

#include "tiny_plan.hpp"

namespace readme_test {

namespace cm = chunkmem;
using namespace cm::literals;

TEST_CASE("the README's plan of memory is a manager that trains", "[planner]")
{
  const cm::workload::transformer_shape shape = tiny_plan::least_shape;
  const cm::workload::machine machine{
      "one", 1, 1, cm::bytes{1'201'000'000}, 3_GiB, {2e12, 1e10, 1e10, 0, 0, 1e11, 1e9, 1e10}};
  cm::backend::host_arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
#include "plan_memory.inc"  // declares found and m
  CHECK(found.plan.device_capacity == cm::bytes{1'000'000});
  CHECK(m.placement().device_share == found.plan.device_update_share);
  cm::optimizer::adam adam;
  m.use(adam);
  const auto weight = m.add<cm::bf16>({64}, cm::role::parameter);
  const auto need = m.seal();
  CHECK(need.chunk_bytes == found.plan.chunk_bytes);
  CHECK(m.acquire(weight, cm::access::write).size() == 64);
}

}  // namespace readme_test
