// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/update_kernel.hpp>

#include <chunkmem/optimizer/device_kernel.hpp>
#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <cstring>
#include <vector>

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
    drawn[index] = cm::round_stochastic<Element>(wide[index], cm::random_bits(key, 1000 + index - shift));
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
