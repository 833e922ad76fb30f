// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/update_kernel.hpp>

#include <support/catch.hpp>

#include <kernels/stored_parameter.hpp>

namespace update_kernel_test {

using namespace kernels;
using cm::dtype;
using opt::step_decision;

namespace {

using work = opt::detail::adam_work<false>;
using factors = opt::adam::device_factors;
using body = opt::update_kernel<work, factors, opt::row_order::neighbours>;
static_assert(opt::element_kernel<body> &&
              opt::element_kernel<opt::update_kernel<work, factors, opt::row_order::by_counter>>);

constexpr std::size_t count = 1'003;

void leave_alone(const opt::adam& kernel, stored_parameter& it, std::uint64_t step, bool is_overwritten,
                 step_decision decision)
{
  update_by_kernel(kernel, it.describe(step), {0.5F}, {0.01F, 7}, 3, is_overwritten, decision);
}

}  // namespace

TEST_CASE("a step that is skipped or not decided leaves a parameter alone", "[optimizer]")
{
  for (const cm::dtype moments : {dtype::float32, dtype::bfloat16})
    for (const step_decision decision : {step_decision::skip, step_decision::open}) {
      const opt::adam kernel{{}, {.moments = moments}};
      for (const parameter_case& what : parameter_cases(false)) {
        INFO(name_of(what));
        stored_parameter it{kernel, what, count};
        const stored_parameter before = it;
        it.differentiate(2);
        leave_alone(kernel, it, 2, false, decision);
        CHECK(it == before);
      }
    }
}

TEST_CASE("a skipped step makes a fresh master all the same", "[optimizer]")
{
  const opt::adam kernel;
  for (const dtype type : {dtype::bfloat16, dtype::float16}) {
    stored_parameter it{kernel, {type, type, false}, count};
    const stored_parameter before = it;
    leave_alone(kernel, it, 1, false, step_decision::skip);
    CHECK(it.value == before.value);
    CHECK(it.lists[0] == before.lists[0]);
    for (std::size_t index = 0; index < count; ++index) {
      std::uint16_t half = 0;
      std::uint32_t wide = 0;
      std::memcpy(&half, it.value.data() + 2 * index, 2);
      std::memcpy(&wide, it.lists[2].data() + 4 * index, 4);
      const float expected =
          type == dtype::bfloat16 ? cm::to_float(cm::bf16::from_bits(half)) : cm::to_float(cm::fp16::from_bits(half));
      REQUIRE(wide == cm::bits_as<std::uint32_t>(expected));
    }
  }
}

TEST_CASE("a skipped step makes a value again that its gradient has overwritten", "[optimizer]")
{
  for (const dtype moments : {dtype::float32, dtype::bfloat16}) {
    const opt::adam kernel{{}, {.moments = moments}};
    for (const dtype type : {dtype::bfloat16, dtype::float16}) {
      stored_parameter it{kernel, {type, type, true}, count};
      it.differentiate(1);
      update_by_kernel(kernel, it.describe(1), {1.0F}, {0.01F, 1}, 3, false);
      const stored_parameter before = it;
      it.differentiate(2);
      REQUIRE(!(it == before));
      leave_alone(kernel, it, 2, true, step_decision::skip);
      CHECK(it == before);
    }
  }
}

TEST_CASE("an empty parameter asks for no call", "[optimizer]")
{
  const opt::device_step_state state;
  const factors shared{opt::adam_options{}, opt::step_settings{}};
  CHECK(body{opt::device_parameter{}, &state, &shared, 0, 0.0F}.count() == 0);
}

}  // namespace update_kernel_test

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
  for (std::size_t index = 0; index < 3; ++index) {
    parameter_bytes list = example();
    list.lists[index].data += 4;
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
