// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/element_streams.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <cmath>
#include <limits>
#include <vector>

namespace element_streams_test {

namespace cm = chunkmem;
using namespace cm::optimizer::detail;
using cm::optimizer::gradient_transform;
using cm::optimizer::instruction_set;

namespace {

constexpr std::size_t count = 1000;  // whole blocks and a rest

template <class Element>
std::vector<Element> stored_numbers(std::uint64_t key)
{
  std::vector<Element> all(count);
  for (std::size_t index = 0; index < count; ++index) {
    all[index] = cm::round_to<Element>(support::hostile(key + index));
    if constexpr (sizeof(Element) == 2)
      all[index] = Element::from_bits(support::hostile_16_bits(key + index, all[index].bits()));
  }
  return all;
}

template <class Check>
void for_each_set(Check check)
{
  for (const instruction_set set : cm::optimizer::instruction_sets) {
    INFO(name_of(set));
    if (cm::optimizer::is_available(set)) check(set);
  }
}

float transformed(float gradient, const gradient_transform& how)
{
  const volatile float scaled = cm::flush(gradient) * how.factor;
  const float flushed = cm::flush(scaled);
  if (!(how.limit > 0.0F) || std::isnan(flushed)) return flushed;
  return std::fmin(std::fmax(flushed, -how.limit), how.limit);
}

}  // namespace

TEMPLATE_TEST_CASE("streams are widened and rounded alike on every instruction set", "[optimizer]", float, cm::bf16,
                   cm::fp16)
{
  const std::vector<TestType> stored = stored_numbers<TestType>(1);
  const std::vector<float> numbers = support::hostile_numbers(count, 2);
  std::vector<std::uint16_t> random(count);
  for (std::size_t index = 0; index < count; ++index)
    random[index] = static_cast<std::uint16_t>(support::scrambled(index));
  for_each_set([&](instruction_set set) {
    std::vector<float> wide(count);
    std::vector<TestType> nearest(count);
    std::vector<TestType> either(count);
    for_elements(set, widen_work{}, count, wide.data(), stored.data());
    for_elements(set, narrow_work{}, count, nearest.data(), numbers.data());
    for_elements(set, stochastic_work{}, count, either.data(), numbers.data(),
                 static_cast<const std::uint16_t*>(random.data()));
    std::vector<float> wide_twin;
    std::vector<TestType> nearest_twin;
    std::vector<TestType> either_twin;
    for (std::size_t index = 0; index < count; ++index) {
      wide_twin.push_back(cm::to_float(stored[index]));
      nearest_twin.push_back(cm::round_to<TestType>(numbers[index]));
      either_twin.push_back(cm::round_stochastic<TestType>(numbers[index], random[index]));
    }
    REQUIRE(support::same_bits(wide, wide_twin));
    REQUIRE(support::same_bits(nearest, nearest_twin));
    REQUIRE(support::same_bits(either, either_twin));
  });
}

TEMPLATE_TEST_CASE("a gradient is flushed, multiplied, flushed and cut", "[optimizer]", float, cm::bf16, cm::fp16)
{
  const std::vector<TestType> stored = stored_numbers<TestType>(3);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const gradient_transform how :
       {gradient_transform{}, {0.5F, 0.0F}, {1e-30F, 0.25F}, {3e7F, 1.0F}, {1.0F, infinity}}) {
    for_each_set([&](instruction_set set) {
      std::vector<float> gradient(count);
      cm::optimizer::detail::transform(set, how, count, gradient.data(), stored.data());
      for (std::size_t index = 0; index < count; ++index) {
        const float expected = transformed(cm::to_float(stored[index]), how);
        if (std::isnan(expected))
          REQUIRE(std::isnan(gradient[index]));
        else
          REQUIRE(std::bit_cast<std::uint32_t>(gradient[index]) == std::bit_cast<std::uint32_t>(expected));
      }
    });
  }
}

TEST_CASE("random bits come in runs as they come one by one", "[optimizer]")
{
  const cm::rounding_key key{11, 5, 3, 2};
  for_each_set([&](instruction_set set) {
    std::vector<std::uint16_t> random(4 * elements_per_block);
    for (const std::uint64_t first : {0ULL, 128ULL, 0xffffff80ULL, 0x1234567800ULL}) {
      for_elements(set, random_work{key, first}, random.size(), random.data());
      for (std::size_t index = 0; index < random.size(); ++index)
        REQUIRE(random[index] == cm::random_bits(key, first + index));
    }
  });
}

}  // namespace element_streams_test
