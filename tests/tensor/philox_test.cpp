// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/philox.hpp>

#include <support/catch.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

namespace philox_test {

using namespace chunkmem;

namespace {

using words = std::array<std::uint32_t, 4>;

// Known answers of Random123, the authors' library: counter, key, result.
static_assert(philox({0, 0, 0, 0}, {0, 0}) == words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
              words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
static_assert(random_bits({1, 2, 3, 4}, 5) == random_bits({1, 2, 3, 4}, 5));

constexpr rounding_key key{0x0123456789abcdefU, 17, 5, 2};

std::vector<std::uint16_t> bits_of(const rounding_key& of, std::uint64_t first, std::size_t count)
{
  std::vector<std::uint16_t> out(count);
  random_bits(of, first, out);
  return out;
}

/// The sixteen bits of an element by the words of the comments in philox.hpp.
std::uint16_t by_definition(const rounding_key& of, std::uint64_t element)
{
  const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const words stream =
      philox({low(of.step), low(of.step >> 32), of.tensor, of.list}, {low(of.seed), low(of.seed >> 32)});
  const std::uint64_t counter = (element / 128) * 16 + element % 16;
  const words drawn = philox({low(counter), low(counter >> 32), stream[2], stream[3]}, {stream[0], stream[1]});
  const std::uint64_t place = element % 128 / 16;
  return static_cast<std::uint16_t>((drawn[place / 2] >> (place % 2 == 0 ? 0 : 16)) & 0xffffU);
}

}  // namespace

TEST_CASE("the bits of an element are those of the definition, far out too", "[tensor]")
{
  for (const std::uint64_t element : {0ULL, 1ULL, 15ULL, 16ULL, 127ULL, 128ULL, 4095ULL, 0x7ffffffffULL, 0x800000000ULL,
                                      0x800000001ULL, 0xfffffffffffffffeULL})
    CHECK(random_bits(key, element) == by_definition(key, element));
}

TEST_CASE("a run gives the same bits however it is cut", "[tensor]")
{
  for (const std::uint64_t first : {0ULL, 1ULL, 100ULL, 128ULL, 0x7ffffffffULL - 300}) {
    const auto all = bits_of(key, first, 700);
    for (std::size_t index = 0; index < all.size(); ++index) {
      INFO("element " << first + index);
      REQUIRE(all[index] == random_bits(key, first + index));
    }
    for (const std::size_t cut : {0U, 1U, 27U, 28U, 127U, 128U, 129U, 300U, 699U}) {
      const auto rest = bits_of(key, first + cut, all.size() - cut);
      CHECK(std::equal(rest.begin(), rest.end(), all.begin() + static_cast<std::ptrdiff_t>(cut)));
    }
  }
  CHECK(bits_of(key, 5, 0).empty());
}

TEST_CASE("every part of the key changes the bits", "[tensor]")
{
  std::set<std::vector<std::uint16_t>> streams;
  for (const rounding_key& of : std::vector<rounding_key>{key,
                                                          {key.seed + 1, 17, 5, 2},
                                                          {key.seed ^ 1ULL << 63U, 17, 5, 2},
                                                          {key.seed, 18, 5, 2},
                                                          {key.seed, 17 | 1ULL << 32U, 5, 2},
                                                          {key.seed, 17, 6, 2},
                                                          {key.seed, 17, 5, 3},
                                                          {key.seed, 17, 2, 5},
                                                          {key.seed, 5, 17, 2}})
    streams.insert(bits_of(of, 0, 64));
  CHECK(streams.size() == 9);
}

TEST_CASE("the bits look uniform and neighbours, steps and tensors independent", "[tensor]")
{
  constexpr std::size_t count = 1U << 18U;
  const auto all = bits_of(key, 0, count);
  const auto later = bits_of({key.seed, key.step + 1, key.tensor, key.list}, 0, count);
  const auto beside = bits_of({key.seed, key.step, key.tensor + 1, key.list}, 0, count);
  std::array<double, 256> high{};
  std::array<double, 256> low{};
  double products[4] = {};
  const auto centred = [](std::uint16_t value) { return (static_cast<double>(value) - 32767.5) / 65536.0; };
  for (std::size_t index = 0; index + 16 < count; ++index) {
    ++high[all[index] >> 8U];
    ++low[all[index] & 0xffU];
    products[0] += centred(all[index]) * centred(all[index + 1]);
    products[1] += centred(all[index]) * centred(all[index + 16]);
    products[2] += centred(all[index]) * centred(later[index]);
    products[3] += centred(all[index]) * centred(beside[index]);
  }
  const double expected = static_cast<double>(count - 16) / 256;
  double chi[2] = {};
  for (std::size_t index = 0; index < 256; ++index) {
    chi[0] += (high[index] - expected) * (high[index] - expected) / expected;
    chi[1] += (low[index] - expected) * (low[index] - expected) / expected;
  }
  for (const double found : chi) CHECK(std::fabs(found - 255) < 5 * std::sqrt(2 * 255.0));  // five standard deviations
  for (const double sum : products) CHECK(std::fabs(sum) < 5 * std::sqrt(static_cast<double>(count)) / 12);
}

}  // namespace philox_test
