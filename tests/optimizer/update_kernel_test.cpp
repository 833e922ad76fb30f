// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/update_kernel.hpp>

#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/step_options.hpp>

#include <kernels/stored_parameter.hpp>
#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <cstring>
#include <vector>

namespace device_step_state_test {

using namespace chunkmem::optimizer;

TEST_CASE("the state of a loss scale has the bytes of the loss scale itself", "[optimizer]")
{
  loss_scale scale = loss_scale::dynamic({.initial = 8.0F, .window = 3});
  scale.updated();
  scale.skipped();
  scale.updated();
  scale.updated();
  loss_scale_state state;
  REQUIRE(scale.bytes().size() == sizeof state);
  std::memcpy(&state, scale.bytes().data(), sizeof state);
  CHECK(state.updates == 3);
  CHECK(state.skips == 1);
  CHECK(state.scale == 4.0F);
  CHECK(state.in_a_row == 2);
}

TEST_CASE("a fresh state multiplies gradients by one and has decided nothing", "[optimizer]")
{
  const device_step_state state;
  CHECK(state.number == 0);
  CHECK(state.loss.scale == 1.0F);
  CHECK(state.factor == 1.0F);
  CHECK(state.decision == step_decision::open);
}

}  // namespace device_step_state_test

namespace element_rows_test {

namespace cm = chunkmem;
using cm::dtype;
using namespace chunkmem::optimizer;
using namespace chunkmem::optimizer::detail;

namespace {

void covers_each_element_once()
{
  for (const std::uint64_t elements : {0U, 1U, 7U, 8U, 9U, 16U, 127U, 128U, 129U, 1'000U}) {
    std::vector<int> seen(elements, 0);
    for (std::uint64_t index = 0; index < row_place::rows_of(elements); ++index) {
      const row_place place{index, elements};
      REQUIRE(place.count <= row_length);
      for (std::uint32_t position = 0; position < place.count; ++position) ++seen.at(place.first + position);
    }
    for (const int times : seen) REQUIRE(times == 1);
  }
}

constexpr dtype real_types[] = {dtype::float32, dtype::bfloat16, dtype::float16};

/// Rows of hostile bytes, loaded and stored again.
void keeps_what_it_loads(dtype type, std::uint64_t elements, bool is_aligned)
{
  alignas(16) std::byte from[2048];
  alignas(16) std::byte to[2048] = {};
  for (std::size_t position = 0; position < sizeof from; ++position)
    from[position] = static_cast<std::byte>(support::scrambled(position));
  const std::size_t distance = is_aligned ? 0 : 4;
  const std::size_t size = elements * size_of_real(type);
  for (std::uint64_t index = 0; index < row_place::rows_of(elements); ++index) {
    const row_place place{index, elements};
    const bool is_wide = is_aligned && place.count == row_length;
    const row_floats wide = widened(load_row(from + distance, type, place, is_wide), type, is_wide);
    store_row(to + distance, type, place, is_wide, wide, nearest_rounding{});
  }
  for (std::size_t position = 0; position < size / size_of_real(type); ++position) {
    std::uint16_t half[2];
    std::memcpy(&half[0], from + distance + 2 * position, 2);
    std::memcpy(&half[1], to + distance + 2 * position, 2);
    if (type == dtype::bfloat16)
      REQUIRE(half[1] == cm::round_to<cm::bf16>(cm::to_float(cm::bf16::from_bits(half[0]))).bits());
    if (type == dtype::float16)
      REQUIRE(half[1] == cm::round_to<cm::fp16>(cm::to_float(cm::fp16::from_bits(half[0]))).bits());
    if (type == dtype::float32)
      REQUIRE(std::memcmp(from + distance + 4 * position, to + distance + 4 * position, 4) == 0);
  }
  REQUIRE(to[distance + size] == std::byte{0});
}

template <numerics Rule, class Bits>
void rounds_by_the_bits_of_its_elements(Bits bits_of)
{
  const cm::rounding_key key{0x123456789U, 77, 5, 2};
  for (std::uint64_t first = 0; first < 400; first += row_length) {
    const stochastic_rounding<rounding_source<Rule>> how{rounding_source<Rule>{key}, first};
    for (std::uint32_t position = 0; position < row_length; ++position) {
      const float value = support::tame(first + position);
      const auto expected = cm::round_stochastic<cm::bf16>(value, bits_of(key, first + position));
      REQUIRE(how.template rounded<cm::bf16>(value, position).bits() == expected.bits());
    }
  }
}

}  // namespace

TEST_CASE("rows cover every element of a tensor once", "[optimizer]")
{
  covers_each_element_once();
}

TEST_CASE("rows keep what they load, whole or at the end, aligned or not", "[optimizer]")
{
  for (const dtype type : real_types)
    for (const std::uint64_t elements : {1U, 8U, 13U, 128U, 300U})
      for (const bool is_aligned : {true, false}) keeps_what_it_loads(type, elements, is_aligned);
}

TEST_CASE("rows round by the random bits of their elements, those of each version", "[optimizer]")
{
  rounds_by_the_bits_of_its_elements<numerics::version_3>(
      [](const cm::rounding_key& key, std::uint64_t element) { return cm::rounding_bits(key, element); });
  rounds_by_the_bits_of_its_elements<numerics::version_2>(
      [](const cm::rounding_key& key, std::uint64_t element) { return cm::random_bits(key, element); });
}

}  // namespace element_rows_test

namespace update_kernel_test {

using namespace kernels;
using cm::dtype;
using opt::step_decision;

namespace {

using work = opt::detail::adam_work<false>;
using factors = opt::adam::device_factors;
using body = opt::update_kernel<work, factors>;
static_assert(opt::element_kernel<body>);

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

}  // namespace device_parameter_test

namespace cast_kernel_test {

namespace cm = chunkmem;
using cm::dtype;
using namespace chunkmem::optimizer;

namespace {

template <class Element>
cast_kernel::run_of_elements run_of(std::vector<Element>& all, std::size_t first = 0)
{
  return {reinterpret_cast<std::byte*>(all.data() + first), cm::dtype_of<Element>};
}

template <class Element>
std::vector<std::uint16_t> bits_of(const std::vector<Element>& all)
{
  std::vector<std::uint16_t> bits;
  for (const Element it : all) bits.push_back(it.bits());
  return bits;
}

template <class Element>
void casts(std::size_t count, std::size_t shift)
{
  std::vector<float> wide = support::hostile_numbers(count + shift, 3);
  std::vector<Element> nearest(count + shift), random(count + shift), expected(count + shift), drawn(count + shift);
  const cm::rounding_key key{1, 2, 3, 4};
  for (std::size_t index = shift; index < count + shift; ++index) {
    expected[index] = cm::round_to<Element>(wide[index]);
    drawn[index] = cm::round_stochastic<Element>(wide[index], cm::rounding_bits(key, 1000 + index - shift));
  }
  loop_launcher::run(cast_kernel{run_of(nearest, shift), run_of(wide, shift), count});
  loop_launcher::run(cast_kernel{run_of(random, shift), run_of(wide, shift), count, key, 1000});
  CHECK(bits_of(nearest) == bits_of(expected));
  CHECK(bits_of(random) == bits_of(drawn));
  std::vector<float> again(count + shift), widened(count + shift);
  for (std::size_t index = shift; index < count + shift; ++index) widened[index] = cm::to_float(nearest[index]);
  loop_launcher::run(cast_kernel{run_of(again, shift), run_of(nearest, shift), count});
  CHECK(support::same_bits(again, widened));
}

}  // namespace

TEST_CASE("casts have the bits of the conversions, to nearest and by random bits", "[optimizer]")
{
  for (const std::size_t count : {0U, 1U, 8U, 9U, 10'007U})
    for (const std::size_t shift : {0U, 1U, 4U, 8U}) {
      INFO(count << " elements, " << shift << " further");
      casts<cm::bf16>(count, shift);
      casts<cm::fp16>(count, shift);
    }
}

TEST_CASE("between the two types of 16 bits a number is rounded once, in its own bytes too", "[optimizer]")
{
  std::vector<cm::bf16> from(1 << 16);
  for (std::size_t index = 0; index < from.size(); ++index)
    from[index] = cm::bf16::from_bits(static_cast<std::uint16_t>(index));
  std::vector<cm::fp16> to(from.size()), expected(from.size());
  for (std::size_t index = 0; index < from.size(); ++index)
    expected[index] = cm::round_to<cm::fp16>(cm::to_float(from[index]));
  loop_launcher::run(cast_kernel{run_of(to), run_of(from), from.size()});
  CHECK(bits_of(to) == bits_of(expected));
  loop_launcher::run(
      cast_kernel{{reinterpret_cast<std::byte*>(from.data()), dtype::float16}, run_of(from), from.size()});
  CHECK(bits_of(from) == bits_of(expected));
}

TEST_CASE("single precision is copied bit by bit", "[optimizer]")
{
  std::vector<float> from = support::hostile_numbers(1000, 9);
  std::vector<float> to(from.size());
  loop_launcher::run(cast_kernel{run_of(to), run_of(from), from.size(), {1, 2, 3, 4}, 0});
  CHECK(support::same_bits(from, to));
}

}  // namespace cast_kernel_test
