// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/device_parameter.hpp>

#include <support/catch.hpp>

namespace device_parameter_test {

namespace cm = chunkmem;
using cm::dtype;
using namespace chunkmem::optimizer;

namespace {

alignas(16) std::byte memory[256];

parameter_bytes example()
{
  parameter_bytes all;
  all.value = memory;
  all.value_type = dtype::bfloat16;
  all.gradient = memory + 32;
  all.gradient_type = dtype::float32;
  all.lists[0] = {memory + 64, dtype::float32, cm::list_use::master};
  all.lists[1] = {memory + 96, dtype::bfloat16};
  all.lists[2] = {memory + 128};
  all.list_count = 3;
  all.elements = 8;
  all.tensor = 5;
  return all;
}

}  // namespace

TEST_CASE("a parameter for a device has its master apart and says which list each state is", "[optimizer]")
{
  const device_parameter it = on_device(example(), false);
  CHECK(it.value == memory);
  CHECK(it.gradient == memory + 32);
  CHECK(it.master == memory + 64);
  CHECK(it.states[0] == memory + 96);
  CHECK(it.states[1] == memory + 128);
  CHECK(it.state_lists[0] == 1);
  CHECK(it.state_lists[1] == 2);
  CHECK(it.state_types[0] == dtype::bfloat16);
  CHECK(it.state_types[1] == dtype::float32);
  CHECK((it.value_type == dtype::bfloat16 && it.gradient_type == dtype::float32));
  CHECK((it.elements == 8 && it.tensor == 5 && !it.fresh_master && !it.is_overwritten));
  CHECK(on_device(example(), true).is_overwritten);
}

TEST_CASE("one address that is no multiple of 16 is enough for a parameter not to be aligned", "[optimizer]")
{
  CHECK(on_device(example(), false).is_aligned);
  parameter_bytes value = example();
  value.value += 4;
  CHECK(!on_device(value, false).is_aligned);
  parameter_bytes gradient = example();
  gradient.gradient += 8;
  CHECK(!on_device(gradient, false).is_aligned);
  for (std::size_t at = 0; at < 3; ++at) {
    parameter_bytes list = example();
    list.lists[at].data += 4;
    CHECK(!on_device(list, false).is_aligned);
  }
}

TEST_CASE("random bits are for 16-bit states and for 16-bit values without a master", "[optimizer]")
{
  parameter_bytes all = example();
  CHECK(rounds_stochastically(on_device(all, false)));
  all.lists[1].type = dtype::float32;
  CHECK(!rounds_stochastically(on_device(all, false)));
  all.lists[0].data = nullptr;
  CHECK(rounds_stochastically(on_device(all, false)));
  all.value_type = dtype::float32;
  CHECK(!rounds_stochastically(on_device(all, false)));
}

}  // namespace device_parameter_test
