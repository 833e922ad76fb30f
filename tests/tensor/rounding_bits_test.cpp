// SPDX-License-Identifier: Apache-2.0
// The random bits of rounding: their definition, and a battery of statistical tests.
#include <chunkmem/tensor/rounding_bits.hpp>

#include <chunkmem/tensor/dtype.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace rounding_bits_test {

using namespace chunkmem;

namespace {

constexpr rounding_key of_list(std::uint32_t list)
{
  return {0x0123456789abcdefU, 17, 5, list};
}
constexpr rounding_key key = of_list(2);

// Worked out by a program in another language.
static_assert(rounding_bits({0, 0, 0, 0}, 0) == 0xa9a8);
static_assert(rounding_bits(key, 0) == 0xe58b && rounding_bits(key, 12'345'678) == 0xb823);
static_assert(rounding_bits(key, (1ULL << 32U) + 1) == 0x77c1 && rounding_bits(key, ~0ULL) == 0xca3a);
static_assert(rounding_bits(of_list(0), 12'345'678) == 0xe31d && rounding_bits(of_list(1), 12'345'678) == 0xd942);
static_assert(rounding_bits(of_list(3), 12'345'678) == 0x01a3 && rounding_bits(of_list(4), 12'345'678) == 0x3d03);
static_assert(rounding_bits(of_list(5), 12'345'678) == 0x5dab);

/// The sixteen bits of an element by the words of docs/numerics.md.
std::uint16_t by_definition(const rounding_key& of, std::uint64_t element)
{
  const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  const auto keys =
      philox({low(of.step), low(of.step >> 32U), of.tensor, of.list / 5}, {low(of.seed), low(of.seed >> 32U)});
  std::uint32_t x = low(element) + keys[0];
  x ^= x >> 17U;
  x *= 0xed5ad4bbU;
  x += keys[1] + low(element >> 32U) * (keys[2] | 1U);
  x ^= x >> 11U;
  x *= 0xac4c1b51U;
  x ^= x >> 15U;
  x *= 0x31848babU;
  constexpr std::uint32_t multipliers[] = {0x896d3737U, 0xf8629523U, 0xe14cd8dfU, 0x86eef98dU};
  if (of.list % 5 != 4) {
    x ^= x >> 14U;
    x *= multipliers[of.list % 5];
  }
  return static_cast<std::uint16_t>(x >> 16U);
}

using sequence = std::vector<std::uint16_t>;

/// Draws of one key. @param stride   between the elements
sequence of_elements(const rounding_key& of, std::size_t count, std::uint64_t stride = 1)
{
  const detail::rounding_hash source{of};
  sequence all(count);
  for (std::size_t index = 0; index < count; ++index) all[index] = source.bits_of(index * stride);
  return all;
}
/// Draws of one element. @param change   of the key, by the number of the draw
template <class Change>
sequence of_keys(std::size_t count, rounding_key begin, Change change)
{
  sequence all(count);
  for (std::size_t index = 0; index < count; ++index) {
    rounding_key of = begin;
    change(of, static_cast<std::uint32_t>(index));
    all[index] = rounding_bits(of, 77);
  }
  return all;
}

/// A sum of squares less its mean, in standard deviations. @param freedom   number of cells, less one
double deviations(double chi_square, double freedom)
{
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

/// Frequencies: of the upper and of the lower byte.
double frequencies(const sequence& all, unsigned shift)
{
  std::array<double, 256> seen{};
  for (const std::uint16_t bits : all) ++seen[bits >> shift & 0xffU];
  const double expected = static_cast<double>(all.size()) / 256;
  double sum = 0;
  for (const double count : seen) sum += (count - expected) * (count - expected) / expected;
  return deviations(sum, 255);
}
/// Pairs: four bits of one draw with four bits of the other.
double pairs(const sequence& left, const sequence& right, std::size_t lag, unsigned shift)
{
  std::array<double, 256> seen{};
  const std::size_t count = left.size() - lag;
  for (std::size_t index = 0; index < count; ++index)
    ++seen[(left[index] >> shift & 15U) * 16 + (right[index + lag] >> shift & 15U)];
  const double expected = static_cast<double>(count) / 256;
  double sum = 0;
  for (const double found : seen) sum += (found - expected) * (found - expected) / expected;
  return deviations(sum, 255);
}
/// Triples: four bits of each of three draws.
double triples(const sequence& first, const sequence& second, const sequence& third, unsigned shift)
{
  std::vector<double> seen(4096);
  for (std::size_t index = 0; index < first.size(); ++index)
    ++seen[(first[index] >> shift & 15U) * 256U + (second[index] >> shift & 15U) * 16U + (third[index] >> shift & 15U)];
  const double expected = static_cast<double>(first.size()) / 4096;
  double sum = 0;
  for (const double found : seen) sum += (found - expected) * (found - expected) / expected;
  return deviations(sum, 4095);
}
/// Correlation of the draws as numbers, in standard deviations.
double correlation(const sequence& left, const sequence& right, std::size_t lag)
{
  const auto centred = [](std::uint16_t bits) { return (static_cast<double>(bits) - 32767.5) / 65536; };
  double sum = 0;
  const std::size_t count = left.size() - lag;
  for (std::size_t index = 0; index < count; ++index) sum += centred(left[index]) * centred(right[index + lag]);
  return sum * 12 / std::sqrt(static_cast<double>(count));
}
/// Agreement of every bit of one draw with every bit of the other: the largest, in standard deviations.
double agreement(const sequence& left, const sequence& right, std::size_t lag)
{
  const std::size_t count = left.size() - lag;
  double largest = 0;
  for (unsigned turn = 0; turn < 16; ++turn) {
    std::array<std::int64_t, 16> same{};
    for (std::size_t index = 0; index < count; ++index) {
      const std::uint32_t unlike = left[index] ^ std::rotl(right[index + lag], static_cast<int>(turn));
      for (unsigned bit = 0; bit < 16; ++bit) same[bit] += 1 - 2 * static_cast<std::int64_t>(unlike >> bit & 1U);
    }
    for (const std::int64_t sum : same)
      largest = std::max(largest, std::fabs(static_cast<double>(sum)) / std::sqrt(static_cast<double>(count)));
  }
  return largest;
}

constexpr double usual = 5;  // standard deviations that chance does not reach in the tests of this file

void check_sequence(const sequence& all)
{
  for (const unsigned shift : {0U, 3U, 8U}) CHECK(std::fabs(frequencies(all, shift)) < usual);
}
void check_pair(const sequence& left, const sequence& right, std::size_t lag = 0)
{
  CAPTURE(lag);
  CHECK(std::fabs(correlation(left, right, lag)) < usual);
  for (const unsigned shift : {0U, 6U, 9U, 12U}) CHECK(std::fabs(pairs(left, right, lag, shift)) < usual);
  CHECK(agreement(left, right, lag) < usual + 1);  // the largest of 256
}

/// The battery of one list, on so many draws of each sequence.
void run_battery(std::size_t count, const rounding_key& own)
{
  CAPTURE(own.list);
  const sequence all = of_elements(own, count);
  {
    INFO("elements");
    check_sequence(all);
    for (const std::size_t lag : {1U, 2U, 3U, 4U, 8U, 16U, 128U, 4096U}) check_pair(all, all, lag);
  }
  for (const std::uint64_t stride : {16ULL, 4096ULL, 1ULL << 16U, 1ULL << 20U, 1ULL << 32U}) {
    INFO("elements " << stride << " apart");
    const std::uint64_t of_block = (std::uint64_t{1} << 32U) / stride;  // so many have one second key
    const sequence apart =
        of_elements(own, stride >> 32U == 0 ? std::min<std::size_t>(count, of_block) : count, stride);
    check_sequence(apart);
    check_pair(apart, apart, 1);
  }
  for (const auto& [name, other] :
       std::vector<std::pair<const char*, rounding_key>>{{"steps", {own.seed, own.step + 1, own.tensor, own.list}},
                                                         {"tensors", {own.seed, own.step, own.tensor + 1, own.list}},
                                                         {"lists", {own.seed, own.step, own.tensor, own.list + 1}},
                                                         {"seeds", {own.seed + 1, own.step, own.tensor, own.list}}}) {
    INFO("neighbouring " << name);
    check_pair(all, of_elements(other, count));
  }
  const auto check_keys = [&](const char* name, const sequence& of) {
    INFO("one element, in the order of " << name);
    check_sequence(of);
    check_pair(of, of, 1);
  };
  check_keys("steps", of_keys(count / 4, own, [](rounding_key& of, std::uint32_t index) { of.step = index; }));
  check_keys("tensors", of_keys(count / 4, own, [](rounding_key& of, std::uint32_t index) { of.tensor = index; }));
  check_keys("lists", of_keys(count / 4, own, [](rounding_key& of, std::uint32_t index) { of.list = index; }));
}

constexpr std::uint32_t lists = detail::rounding_lists;

/// The lists of one tensor, whose bits come from one word: each two of them, in one element and in neighbours, and the
/// three of Adam together, but for their lowest bits.
void run_battery_of_lists(std::size_t count)
{
  std::vector<sequence> all;
  for (std::uint32_t list = 0; list < lists; ++list) all.push_back(of_elements(of_list(list), count));
  for (std::uint32_t left = 0; left < lists; ++left)
    for (std::uint32_t right = 0; right < lists; ++right) {
      if (left == right) continue;
      INFO("lists " << left << " and " << right);
      if (left < right) check_pair(all[left], all[right]);
      for (const std::size_t lag : {1U, 16U}) check_pair(all[left], all[right], lag);
    }
  for (const unsigned shift : {4U, 8U, 12U}) CHECK(std::fabs(triples(all[0], all[1], all[lists - 1], shift)) < usual);
}

/// Mean error of a rounding in units of the last place, in standard deviations. @param remainder   of a unit
template <class Element>
double mean_error(const sequence& random, float value, double unit, double remainder)
{
  double sum = 0;
  for (const std::uint16_t bits : random)
    sum += (static_cast<double>(to_float(round_stochastic<Element>(value, bits))) - static_cast<double>(value)) / unit;
  return sum / std::sqrt(static_cast<double>(random.size()) * remainder * (1 - remainder));
}

}  // namespace

TEST_CASE("the bits that round an element are those of the definition, far out too", "[tensor]")
{
  for (const std::uint64_t element :
       {0ULL, 1ULL, 4095ULL, 0xffffffffULL, 0x100000000ULL, 0x7ffffffffULL, 0x1234567890abcdefULL, ~0ULL})
    for (std::uint32_t list = 0; list < 12; ++list) {
      CHECK(rounding_bits(of_list(list), element) == by_definition(of_list(list), element));
    }
}

TEST_CASE("every part of the key changes the bits that round", "[tensor]")
{
  std::set<sequence> streams;
  for (const rounding_key& of : std::vector<rounding_key>{key,
                                                          {key.seed + 1, 17, 5, 2},
                                                          {key.seed ^ 1ULL << 63U, 17, 5, 2},
                                                          {key.seed, 18, 5, 2},
                                                          {key.seed, 17 | 1ULL << 32U, 5, 2},
                                                          {key.seed, 17, 6, 2},
                                                          {key.seed, 17, 5, 3},
                                                          {key.seed, 17, 2, 5},
                                                          {key.seed, 5, 17, 2}})
    streams.insert(of_elements(of, 64));
  CHECK(streams.size() == 9);
}

TEST_CASE("the bits that round pass frequencies, pairs, correlations and agreement of bits", "[tensor]")
{
  for (const std::uint32_t list : {2U, lists - 1}) run_battery(std::size_t{1} << 16U, of_list(list));
}

TEST_CASE("so they do in sixteen million draws of each sequence", "[tensor][.slow]")
{
  for (const std::uint32_t list : {2U, lists - 1}) run_battery(std::size_t{1} << 24U, of_list(list));
}

TEST_CASE("each two lists of a tensor, and the three of Adam, are rounded by bits that pass the same tests", "[tensor]")
{
  run_battery_of_lists(std::size_t{1} << 16U);
}

TEST_CASE("so they are in sixteen million draws of each list", "[tensor][.slow]")
{
  run_battery_of_lists(std::size_t{1} << 24U);
}

TEST_CASE("a number is rounded without a mean error, over elements and over steps", "[tensor]")
{
  constexpr std::size_t count = 1U << 16U;
  const sequence elements = of_elements(key, count);
  const sequence steps = of_keys(count / 4, key, [](rounding_key& of, std::uint32_t index) { of.step = index; });
  for (const sequence* const random : {&elements, &steps})
    for (const double part : {0x1p-13, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 1 - 0x1p-13}) {
      CAPTURE(part);
      const float of_bf16 = static_cast<float>(1 + std::floor(part * 0x1p16) * 0x1p-23);
      const float of_fp16 = static_cast<float>(1 + std::floor(part * 0x1p13) * 0x1p-23);
      const float denormal = static_cast<float>(0x1p-20 + part * 0x1p-24);
      CHECK(std::fabs(mean_error<bf16>(*random, of_bf16, 0x1p-7, part)) < usual);
      CHECK(std::fabs(mean_error<fp16>(*random, of_fp16, 0x1p-10, part)) < usual);
      CHECK(std::fabs(mean_error<fp16>(*random, denormal, 0x1p-24, part)) < usual);
    }
}

TEST_CASE("the mean over all random bits is the number, less at most 2^-40 where fp16 is a denormal", "[tensor]")
{
  const auto mean = []<class Element>(Element, float value) {
    double sum = 0;
    for (std::uint32_t bits = 0; bits < 1U << 16U; ++bits)
      sum += static_cast<double>(to_float(round_stochastic<Element>(value, bits)));
    return sum / 0x1p16;
  };
  for (const float value : {1.0F + 0x1p-23F, 1.0F + 0x1.2468p-8F, 0x1.fffffep-3F, 0x1.234566p-14F}) {
    CAPTURE(value);
    CHECK(mean(bf16{}, value) == static_cast<double>(value));
    CHECK(mean(fp16{}, value) == static_cast<double>(value));  // of 16 bits, 13 are used
  }
  for (const float value : {0x1.234566p-15F, 0x1.fffffep-16F, 0x1.234566p-20F, 0x1.fffffep-26F, 0x1p-41F}) {
    CAPTURE(value);
    const double lost = static_cast<double>(value) - mean(fp16{}, value);
    CHECK(lost >= 0);
    CHECK(lost < 0x1p-40);
  }
}

}  // namespace rounding_bits_test
