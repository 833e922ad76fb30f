// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/element_streams.hpp>

#include <support/catch.hpp>

#include <bit>
#include <cstdint>
#include <vector>

namespace element_blocks_test {

namespace cm = chunkmem;
using namespace cm::optimizer::detail;
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

}  // namespace element_blocks_test
