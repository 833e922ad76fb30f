// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/parameter_groups.hpp>
#include <chunkmem/workload/named_transformers.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include "random_workload.hpp"

#include <cstdint>
#include <set>
#include <vector>

namespace parameter_groups_test {

using namespace chunkmem;
using namespace chunkmem::planner;

TEST_CASE("groups hold every parameter once, and a pass has the FLOP of its model", "[planner]")
{
  support::dice dice{7};
  for (int round = 0; round < 1'000; ++round) {
    const workload::transformer_shape shape = planner_test::random_shape(dice);
    const workload::training_setup setup = planner_test::random_setup(dice);
    const std::uint64_t all = workload::parameters_of(shape);
    const bool by_tensor = dice.one_in(3);
    const std::uint64_t size = by_tensor ? all : dice.between(1, static_cast<std::uint32_t>(all));
    const parameter_groups groups = by_tensor ? parameter_groups{shape, setup} : parameter_groups{shape, setup, size};
    CAPTURE(round, name_of(shape.style), all, size);
    std::uint64_t elements = 0;
    for (std::uint32_t index = 0; index < groups.groups(); ++index) {
      REQUIRE(groups.elements_of(index) > 0);
      REQUIRE(groups.elements_of(index) <= size);
      elements += groups.elements_of(index);
    }
    REQUIRE(elements == all);
    REQUIRE(groups.stages() == shape.layers + 2);
    std::uint64_t forward = 0;
    std::uint64_t backward = 0;
    std::set<std::uint32_t> used;
    for (std::uint32_t stage = 0; stage < groups.stages(); ++stage)
      for (const group_use& it : groups.stage(stage)) {
        REQUIRE(it.group < groups.groups());
        forward += it.forward_flops;
        backward += it.backward_flops;
        used.insert(it.group);
      }
    const workload::transformer_costs costs{shape, setup};
    REQUIRE(used.size() == groups.groups());
    REQUIRE(forward == costs.model().forward_flops);
    std::uint64_t again = costs.model().recomputed_flops;
    if (setup.recomputes_layers) again -= costs.layer().forward_flops * shape.layers;
    REQUIRE(backward == costs.model().backward_flops + again);
  }
}

TEST_CASE("a layer uses its groups in the order of construction, and a tied table is used in both ends", "[planner]")
{
  // GPT: table 100 x 8, positions 4 x 8, then 12 h^2 + 13 h = 872 elements a layer, and the norm of 16 at the end.
  const workload::transformer_shape shape{workload::transformer_style::gpt, 2, 8, 2, 2, 32, 100, 8, 4, 4, true};
  const parameter_groups groups{shape, {}, 500};
  CHECK(groups.elements() == 800 + 32 + 2 * 872 + 16);
  CHECK(groups.groups() == 6);
  CHECK(groups.elements_of(5) == 92);
  const auto order = [&](std::uint32_t stage) {
    std::vector<std::uint32_t> numbers;
    for (const group_use& it : groups.stage(stage)) numbers.push_back(it.group);
    return numbers;
  };
  CHECK(order(0) == std::vector<std::uint32_t>{0, 1});
  CHECK(order(1) == std::vector<std::uint32_t>{1, 2, 3});
  CHECK(order(2) == std::vector<std::uint32_t>{3, 4, 5});
  CHECK(order(3) == std::vector<std::uint32_t>{5, 0, 1});
  // The head: 2 FLOP for each of 4 tokens and each element of the table; the norm has none.
  CHECK(groups.stage(3)[0].forward_flops == 0);
  CHECK(groups.stage(3)[1].forward_flops == 2 * 4 * 500);
  CHECK(groups.stage(3)[2].forward_flops == 2 * 4 * 300);
  CHECK(groups.stage(3)[2].backward_flops == 4 * 4 * 300);
}

TEST_CASE("without a size each tensor of the model is a group", "[planner]")
{
  support::dice dice{8};
  for (int round = 0; round < 100; ++round) {
    const workload::transformer_shape shape = planner_test::random_shape(dice);
    const parameter_groups groups{shape, planner_test::random_setup(dice)};
    const auto tensors = workload::tensors_of(shape);
    REQUIRE(groups.groups() == tensors.size());
    for (std::uint32_t index = 0; index < groups.groups(); ++index)
      REQUIRE(groups.elements_of(index) == tensors[index].elements());
  }
}

TEST_CASE("groups of no elements, or too many groups, are refused", "[planner]")
{
  const auto& shape = workload::shape_of("PatrickStar", "175B");
  CHECK_THROWS_AS((parameter_groups{shape, {}, 0}), config_error);
  CHECK_THROWS_AS((parameter_groups{shape, {}, 10}), config_error);
  CHECK_THROWS_AS((parameter_groups{shape, {.micro_batch = 0}, std::uint64_t{1} << 30}), config_error);
  CHECK_THROWS_AS((parameter_groups{{}, {}, 1'000}), config_error);
}

}  // namespace parameter_groups_test
