// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/element_streams.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace element_streams_test {

namespace cm = chunkmem;
using namespace cm::optimizer::detail;
using cm::optimizer::gradient_transform;
using cm::optimizer::instruction_set;

namespace {

constexpr std::size_t counts[] = {0, 1, 2, 127, 128, 129, 255, 256, 1000};

/// Counts each element that it is given.
struct counting_work {
  template <std::size_t Count>
  [[gnu::always_inline]] void run(std::size_t first, int* times, const int* added) const noexcept
  {
    for (std::size_t step = 0; step < Count; ++step) times[first + step] += added[first + step];
  }
};

template <class Check>
void for_each_set(Check check)
{
  for (const instruction_set set : cm::optimizer::instruction_sets) {
    INFO(name_of(set));
    if (cm::optimizer::is_available(set)) check(set);
  }
}

}  // namespace

TEST_CASE("every element is worked on once, whatever the count", "[optimizer]")
{
  for_each_set([](instruction_set set) {
    for (const std::size_t count : counts) {
      std::vector<int> times(count + 200, 0);
      const std::vector<int> ones(count + 200, 1);
      for_elements(set, counting_work{}, count, times.data(), ones.data());
      for (std::size_t index = 0; index < times.size(); ++index) REQUIRE(times[index] == (index < count ? 1 : 0));
    }
  });
}

TEST_CASE("what is stored has no denormals and one NaN", "[optimizer]")
{
  const auto bits_of = [](std::uint32_t bits) {
    return std::bit_cast<std::uint32_t>(settled(std::bit_cast<float>(bits)));
  };
  for (const std::uint32_t nan : {0x7fc00000U, 0xffc00000U, 0x7f800001U, 0xff800001U, 0x7fffffffU, 0xffffffffU})
    CHECK(bits_of(nan) == 0x7fc00000U);
  for (const std::uint32_t small : {0x00000000U, 0x00000001U, 0x007fffffU}) {
    CHECK(bits_of(small) == 0U);
    CHECK(bits_of(small | 0x80000000U) == 0x80000000U);
  }
  for (const std::uint32_t kept : {0x00800000U, 0x80800000U, 0x3f800000U, 0x7f7fffffU, 0x7f800000U, 0xff800000U})
    CHECK(bits_of(kept) == kept);
}

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
      for_elements(set, random_work<cm::optimizer::numerics::version_3>{key, first}, random.size(), random.data());
      for (std::size_t index = 0; index < random.size(); ++index)
        REQUIRE(random[index] == cm::rounding_bits(key, first + index));
      for_elements(set, random_work<cm::optimizer::numerics::version_2>{key, first}, random.size(), random.data());
      for (std::size_t index = 0; index < random.size(); ++index)
        REQUIRE(random[index] == cm::random_bits(key, first + index));
    }
  });
}

}  // namespace element_streams_test
