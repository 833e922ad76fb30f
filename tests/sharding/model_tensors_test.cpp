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
