// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/model_tensors.hpp>

#include <support/catch.hpp>

#include <cstdint>

namespace model_tensors_test {

using namespace chunkmem;
using sharding::model_tensors;

tensor_handle add(model_tensors& to, role part, std::uint32_t planned = 0, std::uint64_t elements = 64)
{
  to.make_room();
  return to.add({.part = part, .planned = planned, .elements = elements, .extents = {elements}});
}

TEST_CASE("a tensor of the plan is found among all that were declared", "[sharding]")
{
  model_tensors known;
  (void)add(known, role::buffer);
  const tensor_handle weight = add(known, role::parameter, 0);
  (void)add(known, role::activation);
  const tensor_handle frozen = add(known, role::frozen, 1, 8);
  CHECK(known.size() == 4);
  CHECK(known.tensor_of_plan(0) == known.index_of(weight));
  CHECK(known.tensor_of_plan(1) == known.index_of(frozen));
  CHECK(known[3].elements == 8);
  CHECK(known.of(frozen).part == role::frozen);
}

TEST_CASE("a tensor is called by its number until it has a name", "[sharding]")
{
  model_tensors known;
  (void)add(known, role::parameter);
  const tensor_handle second = add(known, role::parameter, 1);
  CHECK(known.name_of(1) == "tensor.1");
  known.name(second, "embedding");
  CHECK(known.name_of(1) == "embedding");
  CHECK(known.name_of(0) == "tensor.0");
}

TEST_CASE("tensors of another model, and those that nobody made, are refused", "[sharding]")
{
  model_tensors known, other;
  const tensor_handle mine = add(known, role::parameter);
  (void)add(other, role::parameter);
  CHECK(known.index_of(mine) == 0);
  CHECK_THROWS_AS(other.index_of(mine), usage_error);
  CHECK_THROWS_AS(known.of({tensor_id{1}, mine.owner}), usage_error);
  CHECK_THROWS_AS(known.of(tensor_handle{}), usage_error);
}

TEST_CASE("room for many tensors is made without copying all of them each time", "[sharding]")
{
  model_tensors known;
  const model_tensors::entry* begin = nullptr;
  int moves = 0;
  for (std::uint32_t index = 0; index < 10'000; ++index) {
    (void)add(known, role::parameter, index);
    if (const model_tensors::entry* const now = &known[0]; now != begin) {
      begin = now;
      ++moves;
    }
  }
  CHECK(moves < 20);
}

}  // namespace model_tensors_test
