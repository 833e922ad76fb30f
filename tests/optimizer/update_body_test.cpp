// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/update_body.hpp>

#include <kernels/stored_parameter.hpp>
#include <support/catch.hpp>

namespace update_body_test {

using namespace kernels;
using cm::dtype;
using opt::step_decision;

namespace {

using work = opt::detail::adam_work<false>;
using factors = opt::adam::device_factors;
using body = opt::update_body<work, factors, opt::row_order::neighbours>;
static_assert(opt::element_body<body> &&
              opt::element_body<opt::update_body<work, factors, opt::row_order::by_counter>>);

constexpr std::size_t count = 1'003;

void leave_alone(const opt::adam& kernel, stored_parameter& it, std::uint64_t step, bool is_overwritten,
                 step_decision decision)
{
  update_by_body(kernel, it.describe(step), {0.5F}, {0.01F, 7}, 3, is_overwritten, decision);
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
    for (std::size_t at = 0; at < count; ++at) {
      std::uint16_t half = 0;
      std::uint32_t wide = 0;
      std::memcpy(&half, it.value.data() + 2 * at, 2);
      std::memcpy(&wide, it.lists[2].data() + 4 * at, 4);
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
      update_by_body(kernel, it.describe(1), {1.0F}, {0.01F, 1}, 3, false);
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

}  // namespace update_body_test
