// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/own_chunks.hpp>

#include <chunkmem/tensor/tensor.hpp>

#include "random_workload.hpp"

#include <support/catch.hpp>

#include <cstdint>

namespace own_chunks_test {

using namespace chunkmem;

namespace {

/// Records the declarations.
struct listener {
  std::vector<std::uint64_t> elements;
  template <class Element>
  tensor<Element> add(const shape& extents, role)
  {
    elements.push_back(extents.elements());
    return {{tensor_id{static_cast<std::uint32_t>(elements.size() - 1)}, 0}};
  }
};

}  // namespace

TEST_CASE("the own part of a tensor is the tensor on one rank", "[planner]")
{
  const workload::transformer_shape shape{workload::transformer_style::gpt, 2, 64, 4, 4, 256, 500, 64, 32, 32, true};
  const planner::parameter_groups groups{shape, {}};
  listener heard;
  const auto made = planner::declare_own_chunks(heard, groups, 256, 1);
  REQUIRE(made.size() == groups.groups());
  for (std::uint32_t group = 0; group < groups.groups(); ++group) {
    CHECK(made[group].parts().size() == 1);
    CHECK(heard.elements[group] == groups.elements_of(group));
  }
}

TEST_CASE("own chunks of all ranks hold every element of every group, in halves of a chunk", "[planner]")
{
  support::dice dice{41};
  for (int round = 0; round < 300; ++round) {
    const std::uint64_t ranks = dice.between(2, 9);
    const std::uint64_t chunk = planner::own_elements(dice.between(1, 3'000));
    const planner::parameter_groups groups{planner_test::random_shape(dice), {}, chunk * ranks};
    listener heard;
    const auto made = planner::declare_own_chunks(heard, groups, chunk, ranks);
    REQUIRE(made.size() == groups.groups());
    for (std::uint32_t group = 0; group < groups.groups(); ++group) {
      std::uint64_t own = 0;
      for (const tensor<bf16> each : made[group].parts()) {
        REQUIRE(heard.elements[index_of(each.id)] > 0);
        REQUIRE(heard.elements[index_of(each.id)] <= chunk / 2);
        own += heard.elements[index_of(each.id)];
      }
      REQUIRE(own * ranks >= groups.elements_of(group));
      REQUIRE(own <= chunk);
      REQUIRE(own * ranks < groups.elements_of(group) + 256 * ranks + ranks);
    }
  }
}

}  // namespace own_chunks_test
