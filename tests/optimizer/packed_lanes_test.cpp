// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/packed_lanes.hpp>

#include <chunkmem/optimizer/element_streams.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>
#include <support/oracles/dice.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace packed_lanes_test {

using namespace chunkmem;
using namespace chunkmem::optimizer;
using namespace chunkmem::optimizer::detail;

namespace {

/// What the functions do with vectors of one size, called by code that is compiled for them.
struct calls {
  void (*load)(float* to, const std::byte* from, dtype type, std::size_t count);
  void (*store)(std::byte* to, const float* from, dtype type, std::size_t count, bool has_bf16);
  void (*round)(std::byte* to, const float* from, dtype type, const random_group* random, std::size_t count);
  void (*draw)(random_group* to, const stream_words* stream, std::uint64_t number);
};

#define CHUNKMEM_CALLS(NAME, COUNT, TARGET)                                                                \
  TARGET void load_##NAME(float* to, const std::byte* from, dtype type, std::size_t count)                 \
  {                                                                                                        \
    for (std::size_t index = 0; index < count; index += COUNT) {                                           \
      lanes<COUNT> value;                                                                                  \
      load_lanes(value, from, type, index);                                                                \
      std::memcpy(to + index, &value, sizeof value);                                                       \
    }                                                                                                      \
  }                                                                                                        \
  TARGET void store_##NAME(std::byte* to, const float* from, dtype type, std::size_t count, bool has_bf16) \
  {                                                                                                        \
    for (std::size_t index = 0; index < count; index += COUNT) {                                           \
      lanes<COUNT> value;                                                                                  \
      std::memcpy(&value, from + index, sizeof value);                                                     \
      store_lanes(to, type, index, value, has_bf16);                                                       \
    }                                                                                                      \
  }                                                                                                        \
  TARGET void round_##NAME(std::byte* to, const float* from, dtype type, const random_group* random,       \
                           std::size_t count)                                                              \
  {                                                                                                        \
    for (std::size_t index = 0; index < count; index += COUNT) {                                           \
      lanes<COUNT> value;                                                                                  \
      std::memcpy(&value, from + index, sizeof value);                                                     \
      store_lanes(to, type, index, value, random[index / 128], index % 128);                               \
    }                                                                                                      \
  }                                                                                                        \
  TARGET void draw_##NAME(random_group* to, const stream_words* stream, std::uint64_t number)              \
  {                                                                                                        \
    draw_group<COUNT>(*to, *stream, number);                                                               \
  }                                                                                                        \
  constexpr calls NAME{load_##NAME, store_##NAME, round_##NAME, draw_##NAME};

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

namespace {

struct results {
  std::vector<float> settled, roots, steps;
};

/// What a quotient is added to, what is divided, by what, and by which factor the quotient is multiplied.
struct quotients {
  std::vector<float> kept, over, under;
  float factor;
};

#pragma GCC diagnostic ignored "-Wpsabi"  // as in packed_lanes.hpp
template <class Real>
[[gnu::always_inline]] inline void add_quotient(Real& result, const Real& over, const Real& under, const Real& kept,
                                                float factor)
{
  const auto lost = strict_fp::lost_quotients_of(factor);
  const Real quotient = strict_fp::quotient_unless_lost(
      over, under, kept,
      strict_fp::lost_quotients<Real>{in_all_lanes<Real>(lost.distance), in_all_lanes<Real>(lost.least)});
  result = strict_fp::fused(-(Real{} + factor), quotient, kept);
}

// One text for each set, as in element_pass.
#define CHUNKMEM_TRY(SET, TARGET)                                                                            \
  TARGET void try_##SET(const std::vector<float>& numbers, const quotients& of, bool has_bf16, results& out) \
  {                                                                                                          \
    using real = SET::real;                                                                                  \
    for (std::size_t index = 0; index < numbers.size(); index += sizeof(real) / 4) {                         \
      real value, root;                                                                                      \
      std::memcpy(&value, numbers.data() + index, sizeof value);                                             \
      SET::root(root, value);                                                                                \
      SET::settle(value, has_bf16);                                                                          \
      SET::settle(root, has_bf16);                                                                           \
      std::memcpy(out.settled.data() + index, &value, sizeof value);                                         \
      std::memcpy(out.roots.data() + index, &root, sizeof root);                                             \
      real kept, over, under;                                                                                \
      std::memcpy(&kept, of.kept.data() + index, sizeof kept);                                               \
      std::memcpy(&over, of.over.data() + index, sizeof over);                                               \
      std::memcpy(&under, of.under.data() + index, sizeof under);                                            \
      real step;                                                                                             \
      add_quotient(step, over, under, kept, of.factor);                                                      \
      SET::settle(step, has_bf16);                                                                           \
      std::memcpy(out.steps.data() + index, &step, sizeof step);                                             \
    }                                                                                                        \
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
  check(try_baseline_lanes, false);
#if defined(__x86_64__)
  if (is_available(instruction_set::avx2)) check(try_avx2_lanes, false);
  if (is_available(instruction_set::avx512)) check(try_avx512_lanes, false);
  if (is_available(instruction_set::avx512_bf16)) check(try_avx512_lanes, true);
#endif
}

constexpr std::size_t count = 4096;

/// Quotients of all sizes beside numbers that just feel them or do not, and wild ones.
quotients hostile_quotients(std::uint64_t seed, float factor)
{
  quotients all{support::hostile_numbers(count, seed), support::hostile_numbers(count, seed + 1),
                support::hostile_numbers(count, seed + 2), factor};
  support::dice random{seed};
  for (std::size_t index = 0; index < count; ++index) {
    if (index % 2 == 0) {
      const int exponent = static_cast<int>(random.below(120));
      all.over[index] = std::ldexp(all.over[index], -exponent);
      all.under[index] = std::ldexp(1.0F + static_cast<float>(random.below(1000)) * 1e-3F, exponent);
      const double step = static_cast<double>(all.over[index]) / all.under[index] * factor;
      all.kept[index] = static_cast<float>(std::ldexp(step, static_cast<int>(random.below(40)) - 5));
      if (index % 6 == 0) all.kept[index] = index % 12 == 0 ? 0.0F : -0.0F;
      if (index % 6 == 2)  // less far away from its smaller neighbour
        all.kept[index] = std::copysign(std::ldexp(1.0F, std::ilogb(all.kept[index])), all.over[index]);
    } else if (index % 10 == 1) {
      all.over[index] = index % 20 == 1 ? INFINITY : std::nanf("");
      all.under[index] = std::ldexp(1.0F, 40 + static_cast<int>(random.below(80)));
      all.kept[index] = std::ldexp(1.0F, 40 + static_cast<int>(random.below(80)));
    }
    all.over[index] = settled(all.over[index]);
    all.under[index] = std::fabs(settled(all.under[index])) + 0x1p-126F;
  }
  return all;
}

void check_singles(const std::vector<float>& numbers)
{
  results expected{numbers, numbers, numbers};
  for (std::size_t index = 0; index < numbers.size(); ++index) {
    expected.settled[index] = settled(numbers[index]);
    expected.roots[index] = settled(std::sqrt(numbers[index]));
  }
  const quotients none{numbers, numbers, numbers, 1.0F};
  for_each_set([&](auto* work, bool has_bf16) {
    results seen{numbers, numbers, numbers};
    work(numbers, none, has_bf16, seen);
    const bool same =
        support::same_bits(seen.settled, expected.settled) && support::same_bits(seen.roots, expected.roots);
    if (!same) FAIL("other bits from " << numbers.front() << " on");
  });
  SUCCEED();
}

}  // namespace

TEST_CASE("each set settles numbers and takes roots as it is done for one", "[optimizer]")
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

TEST_CASE("a quotient that is left out changes no sum", "[optimizer]")
{
  for (const float factor : {1e-2F, 1.0F, 0.0F, 1e-30F, 0x1p-6F, 40.0F, 0x1.9p99F, 0x1p100F, 0x1p127F, INFINITY})
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const quotients of = hostile_quotients(seed, factor);
      results expected{of.kept, of.kept, of.kept};
      for (std::size_t index = 0; index < count; ++index)
        expected.steps[index] = settled(std::fma(-factor, of.over[index] / of.under[index], of.kept[index]));
      for_each_set([&](auto* work, bool has_bf16) {
        results seen{of.kept, of.kept, of.kept};
        work(of.kept, of, has_bf16, seen);
        INFO("factor " << factor);
        const bool same = support::same_bits(seen.steps, expected.steps);
        CHECK(same);
      });
    }
}

}  // namespace packed_lanes_test
