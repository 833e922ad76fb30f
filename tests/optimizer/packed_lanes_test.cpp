// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/packed_lanes.hpp>

#include <chunkmem/optimizer/element_streams.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace packed_lanes_test {

using namespace chunkmem;
using namespace chunkmem::optimizer;
using namespace chunkmem::optimizer::detail;

namespace {

/// The results of the functions for vectors of one size, called by code that is compiled for them.
struct calls {
  void (*load)(float* to, const std::byte* from, dtype type, std::size_t count);
  void (*store)(std::byte* to, const float* from, dtype type, std::size_t count, bool has_bf16);
  void (*round)(std::byte* to, const float* from, dtype type, const random_group* random, std::size_t count);
  void (*draw)(random_group* to, const stream_words* stream, std::uint64_t number);
  void (*hash)(std::uint32_t* to, const chunkmem::detail::rounding_hash& source, std::uint64_t element);
};

#define CHUNKMEM_CALLS(NAME, COUNT, TARGET)                                                                        \
  TARGET void load_##NAME(float* to, const std::byte* from, dtype type, std::size_t count)                         \
  {                                                                                                                \
    for (std::size_t index = 0; index < count; index += COUNT) {                                                   \
      lanes<COUNT> value;                                                                                          \
      load_lanes(value, from, type, index);                                                                        \
      std::memcpy(to + index, &value, sizeof value);                                                               \
    }                                                                                                              \
  }                                                                                                                \
  TARGET void store_##NAME(std::byte* to, const float* from, dtype type, std::size_t count, bool has_bf16)         \
  {                                                                                                                \
    for (std::size_t index = 0; index < count; index += COUNT) {                                                   \
      lanes<COUNT> value;                                                                                          \
      std::memcpy(&value, from + index, sizeof value);                                                             \
      store_lanes(to, type, index, value, has_bf16);                                                               \
    }                                                                                                              \
  }                                                                                                                \
  TARGET void round_##NAME(std::byte* to, const float* from, dtype type, const random_group* random,               \
                           std::size_t count)                                                                      \
  {                                                                                                                \
    for (std::size_t index = 0; index < count; index += COUNT) {                                                   \
      lanes<COUNT> value;                                                                                          \
      std::memcpy(&value, from + index, sizeof value);                                                             \
      lane_bits<COUNT> bits;                                                                                       \
      load_random(bits, random[index / 128], index % 128);                                                         \
      store_lanes(to, type, index, value, bits);                                                                   \
    }                                                                                                              \
  }                                                                                                                \
  TARGET void draw_##NAME(random_group* to, const stream_words* stream, std::uint64_t number)                      \
  {                                                                                                                \
    draw_group<COUNT>(*to, *stream, number);                                                                       \
  }                                                                                                                \
  TARGET void hash_##NAME(std::uint32_t* to, const chunkmem::detail::rounding_hash& source, std::uint64_t element) \
  {                                                                                                                \
    lane_bits<COUNT> places, drawn, bits;                                                                          \
    find_places(places, source, element);                                                                          \
    draw_lanes(drawn, source, places);                                                                             \
    for (std::uint32_t list = 0; list < chunkmem::detail::rounding_lists; ++list, to += 16) {                      \
      bits_of_list(bits, drawn, list);                                                                             \
      std::memcpy(to, &bits, sizeof bits);                                                                         \
    }                                                                                                              \
  }                                                                                                                \
  constexpr calls NAME{load_##NAME, store_##NAME, round_##NAME, draw_##NAME, hash_##NAME};

CHUNKMEM_CALLS(of_4, 4, )
#if defined(__x86_64__)
CHUNKMEM_CALLS(of_8, 8, [[gnu::target("avx2,fma,f16c")]])
CHUNKMEM_CALLS(of_16, 16, [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]])
#endif
#undef CHUNKMEM_CALLS

template <class Check>
void for_each_size(Check check)
{
  check(of_4);
#if defined(__x86_64__)
  if (is_available(instruction_set::avx2)) check(of_8);
  if (is_available(instruction_set::avx512)) check(of_16);
#endif
}

constexpr std::size_t all_halves = 65'536;

float widened(dtype type, std::uint16_t half)
{
  return type == dtype::bfloat16 ? to_float(bf16::from_bits(half)) : to_float(fp16::from_bits(half));
}

/// What updates store, from the least numbers to the largest.
std::vector<float> stored_numbers()
{
  std::vector<float> all = support::hostile_numbers(all_halves, 5);
  for (std::uint32_t index = 0; index < all.size(); index += 2)
    all[index] = std::bit_cast<float>(static_cast<std::uint32_t>(support::scrambled(index)));
  for (float& it : all) it = settled(it);
  return all;
}

}  // namespace

TEST_CASE("every number of 16 bits is widened as one is", "[optimizer]")
{
  std::vector<std::uint16_t> halves(all_halves);
  for (std::size_t index = 0; index < all_halves; ++index) halves[index] = static_cast<std::uint16_t>(index);
  for (const dtype type : {dtype::bfloat16, dtype::float16})
    for_each_size([&](const calls& call) {
      std::vector<float> seen(all_halves), expected(all_halves);
      for (std::size_t index = 0; index < all_halves; ++index) expected[index] = widened(type, halves[index]);
      call.load(seen.data(), reinterpret_cast<const std::byte*>(halves.data()), type, all_halves);
      const bool same = support::same_bits(seen, expected);
      CHECK(same);
    });
}

TEST_CASE("settled numbers are rounded as one is, to nearest and by random bits", "[optimizer]")
{
  const std::vector<float> numbers = stored_numbers();
  const chunkmem::detail::rounding_stream stream{{42, 7, 3, 1}};
  std::vector<random_group> random(all_halves / 128);
  for (std::size_t group = 0; group < random.size(); ++group) draw_group<4>(random[group], stream_words{stream}, group);
  const auto bits_of = [](dtype type, float value) {
    return type == dtype::bfloat16 ? bf16{value}.bits() : fp16{value}.bits();
  };
  const auto random_bits_of = [](dtype type, float value, std::uint16_t bits) {
    return type == dtype::bfloat16 ? round_stochastic<bf16>(value, bits).bits()
                                   : round_stochastic<fp16>(value, bits).bits();
  };
  for (const dtype type : {dtype::bfloat16, dtype::float16})
    for_each_size([&](const calls& call) {
      std::vector<std::uint16_t> nearest(all_halves), either(all_halves), expected(all_halves), drawn(all_halves);
      for (std::size_t index = 0; index < all_halves; ++index) {
        expected[index] = bits_of(type, numbers[index]);
        drawn[index] = random_bits_of(type, numbers[index], stream.bits_of(index));
      }
      call.store(reinterpret_cast<std::byte*>(nearest.data()), numbers.data(), type, all_halves, false);
      CHECK(nearest == expected);
      nearest.assign(all_halves, 0);
      call.store(reinterpret_cast<std::byte*>(nearest.data()), numbers.data(), type, all_halves,
                 is_available(instruction_set::avx512_bf16));
      call.round(reinterpret_cast<std::byte*>(either.data()), numbers.data(), type, random.data(), all_halves);
      CHECK(nearest == expected);
      CHECK(either == drawn);
    });
}

TEST_CASE("a group has the random bits of its elements, whatever its number", "[optimizer]")
{
  const chunkmem::detail::rounding_stream stream{{1ULL << 40U, 1ULL << 33U, 9, 2}};
  const stream_words words{stream};
  for (const std::uint64_t number : {0ULL, 1ULL, 77ULL, (1ULL << 28U) - 1, 1ULL << 28U, (1ULL << 32U) + 5, 1ULL << 50U})
    for_each_size([&](const calls& call) {
      random_group group;
      call.draw(&group, &words, number);
      bool same = true;
      for (std::size_t element = 0; element < 128; ++element) {
        const std::uint32_t word = group.word[element / 32][element % 16];
        const auto half = static_cast<std::uint16_t>(element / 16 % 2 == 0 ? word : word >> 16U);
        same = same && half == stream.bits_of(number * 128 + element);
      }
      CHECK(same);
    });
}

TEST_CASE("lanes draw the random bits of their elements, for each list and in any block of a tensor", "[optimizer]")
{
  using chunkmem::detail::rounding_hash;
  constexpr std::uint32_t lists = chunkmem::detail::rounding_lists;
  const rounding_hash source{{1ULL << 40U, 1ULL << 33U, 9, 0}};
  for (const std::uint64_t first : {0ULL, 256ULL, (1ULL << 32U) - 64, 1ULL << 32U, (1ULL << 50U) + 128})
    for_each_size([&](const calls& call) {
      std::uint32_t drawn[lists][16];
      std::fill_n(&drawn[0][0], 16 * lists, ~0U);
      call.hash(&drawn[0][0], source.in_block_of(first), first);
      for (std::uint32_t list = 0; list < lists; ++list) {
        const rounding_hash of_list{{1ULL << 40U, 1ULL << 33U, 9, list}};
        for (std::size_t lane = 0; lane < 16; ++lane)
          CHECK((drawn[list][lane] == of_list.bits_of(first + lane) || (lane >= 4 && drawn[list][lane] == ~0U)));
      }
    });
}

namespace {

struct results {
  std::vector<float> settled, cut, roots, sums;
};

#pragma GCC diagnostic ignored "-Wpsabi"  // as in packed_lanes.hpp

template <class Real>
[[gnu::always_inline]] inline void multiply(Real& square, Real& part, const Real& value)
{
  square = strict_fp::product(value, value);
  part = strict_fp::product(value, Real{} + 0x1p-24F);
}
template <class Real>
[[gnu::always_inline]] inline void cut(Real& result, const Real& value)
{
  result = strict_fp::stored(value, in_all_lanes<Real>(0x1p-100F));
}
template <class Real>
[[gnu::always_inline]] inline void settle(Real& value)
{
  value = settled(value);
}

// One text for each set, as in element_pass.
#define CHUNKMEM_TRY(SET, TARGET)                                                    \
  TARGET void try_##SET(const std::vector<float>& numbers, results& out)             \
  {                                                                                  \
    using real = SET::real;                                                          \
    for (std::size_t index = 0; index < numbers.size(); index += sizeof(real) / 4) { \
      real value, stored, root, square, part;                                        \
      std::memcpy(&value, numbers.data() + index, sizeof value);                     \
      SET::root(root, value);                                                        \
      cut(stored, value);                                                            \
      multiply(square, part, value);                                                 \
      SET::add(square, part);                                                        \
      settle(value);                                                                 \
      settle(root);                                                                  \
      settle(square);                                                                \
      std::memcpy(out.settled.data() + index, &value, sizeof value);                 \
      std::memcpy(out.cut.data() + index, &stored, sizeof stored);                   \
      std::memcpy(out.roots.data() + index, &root, sizeof root);                     \
      std::memcpy(out.sums.data() + index, &square, sizeof square);                  \
    }                                                                                \
  }
CHUNKMEM_TRY(baseline_lanes, )
#if defined(__x86_64__)
CHUNKMEM_TRY(avx2_lanes, [[gnu::target("avx2,fma,f16c")]])
CHUNKMEM_TRY(avx512_lanes, [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]])
#endif
#undef CHUNKMEM_TRY

template <class Check>
void for_each_set(Check check)
{
  check(try_baseline_lanes);
#if defined(__x86_64__)
  if (is_available(instruction_set::avx2)) check(try_avx2_lanes);
  if (is_available(instruction_set::avx512)) check(try_avx512_lanes);
#endif
}

constexpr std::size_t count = 4096;

void check_singles(const std::vector<float>& numbers)
{
  results expected{numbers, numbers, numbers, numbers};
  for (std::size_t index = 0; index < numbers.size(); ++index) {
    expected.settled[index] = settled(numbers[index]);
    const float magnitude = std::fabs(numbers[index]);
    expected.cut[index] = std::isnan(magnitude)   ? std::bit_cast<float>(0x7fc00000U)
                          : magnitude < 0x1p-100F ? 0.0F
                                                  : numbers[index];
    expected.roots[index] = settled(std::sqrt(numbers[index]));
    const volatile float square = numbers[index] * numbers[index], part = numbers[index] * 0x1p-24F;
    expected.sums[index] = settled(square + part);
  }
  for_each_set([&](auto* work) {
    results seen{numbers, numbers, numbers, numbers};
    work(numbers, seen);
    const bool same = support::same_bits(seen.settled, expected.settled) &&
                      support::same_bits(seen.cut, expected.cut) && support::same_bits(seen.roots, expected.roots) &&
                      support::same_bits(seen.sums, expected.sums);
    if (!same) FAIL("other bits from " << numbers.front() << " on");
  });
  SUCCEED();
}

}  // namespace

TEST_CASE("each set settles and cuts numbers, takes roots and adds products as it is done for one", "[optimizer]")
{
  std::vector<float> numbers = support::hostile_numbers(count, 1);
  for (std::size_t index = 0; index < numbers.size(); index += 3) numbers[index] = std::fabs(numbers[index]);
  check_singles(numbers);
}

TEST_CASE("so it does with every pattern of bits", "[optimizer][.slow]")
{
  std::vector<float> numbers(count);
  for (std::uint64_t first = 0; first < std::uint64_t{1} << 32U; first += count) {
    for (std::size_t index = 0; index < count; ++index)
      numbers[index] = std::bit_cast<float>(static_cast<std::uint32_t>(first + index));
    check_singles(numbers);
  }
}

}  // namespace packed_lanes_test
