// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/dtype.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace dtype_test {

using namespace chunkmem;

namespace {

template <class Element, dtype Type>
constexpr bool stands_for = element<Element> && dtype_of<Element> == Type && size_of(Type) == sizeof(Element);

static_assert(stands_for<float, dtype::float32> && stands_for<bf16, dtype::bfloat16> &&
              stands_for<fp16, dtype::float16>);
static_assert(stands_for<std::int32_t, dtype::int32> && stands_for<std::int64_t, dtype::int64>);
static_assert(stands_for<std::uint8_t, dtype::uint8>);
static_assert(!element<double> && !element<bool> && !element<const float> && !element<float&> && !element<void>);
static_assert(!std::is_same_v<bf16, fp16>);

}  // namespace

TEST_CASE("each element type has its size and a name of its own", "[tensor]")
{
  CHECK(size_of(dtype::float32) == 4);
  CHECK(size_of(dtype::bfloat16) == 2);
  CHECK(size_of(dtype::float16) == 2);
  CHECK(size_of(dtype::int32) == 4);
  CHECK(size_of(dtype::int64) == 8);
  CHECK(size_of(dtype::uint8) == 1);
  std::set<std::string> names;
  for (int type = 0; type < 6; ++type) names.emplace(name_of(static_cast<dtype>(type)));
  CHECK(names == std::set<std::string>{"bfloat16", "float16", "float32", "int32", "int64", "uint8"});
}

}  // namespace dtype_test

namespace half_test {

using namespace chunkmem;

namespace {

static_assert(real_element<float> && real_element<bf16> && real_element<fp16>);
static_assert(!real_element<std::int32_t> && !real_element<double> && !real_element<const float>);
static_assert(is_16_bit(dtype::bfloat16) && is_16_bit(dtype::float16) && !is_16_bit(dtype::float32) &&
              !is_16_bit(dtype::int32));
static_assert(to_float(bf16::from_bits(0x3f80)) == 1.0F && to_float(fp16::from_bits(0x3c00)) == 1.0F &&
              to_float(fp16::from_bits(0x0001)) == 0x1p-24F);
static_assert(round_to<bf16>(1.0F).bits() == 0x3f80 && round_to<fp16>(-2.0F).bits() == 0xc000 &&
              round_to<float>(3.0F) == 3.0F);
static_assert(round_stochastic<bf16>(1.0F, 0xffff).bits() == 0x3f80 &&
              round_stochastic<fp16>(1.0F, 0x1fff).bits() == 0x3c00);
static_assert(sizeof(bf16) == 2 && sizeof(fp16) == 2 && std::is_trivially_copyable_v<bf16> &&
              std::is_trivially_copyable_v<fp16>);
static_assert(std::is_standard_layout_v<bf16> && std::is_standard_layout_v<fp16>);

/// `Element x = from` compiles.
template <class From, class To>
concept implicit = std::is_convertible_v<From, To>;
template <class Element>
constexpr bool is_made_from_float_alone =
    std::is_nothrow_constructible_v<Element, float> && !implicit<float, Element> &&
    !std::is_constructible_v<Element, double> && !std::is_constructible_v<Element, int> &&
    !std::is_constructible_v<Element, unsigned> && !std::is_constructible_v<Element, std::uint16_t> &&
    !std::is_constructible_v<Element, bool> &&
    !std::is_constructible_v<Element, std::conditional_t<std::is_same_v<Element, bf16>, fp16, bf16>>;
template <class Element>
constexpr bool becomes_float_alone = std::is_nothrow_constructible_v<float, Element> && !implicit<Element, float> &&
                                     !std::is_constructible_v<double, Element> &&
                                     !std::is_constructible_v<int, Element> && !std::is_constructible_v<bool, Element>;
static_assert(is_made_from_float_alone<bf16> && is_made_from_float_alone<fp16>);
static_assert(becomes_float_alone<bf16> && becomes_float_alone<fp16>);
static_assert(flush(1e-39F) == 0.0F && flush(0x1p-126F) == 0x1p-126F);

/// The value of the bits of a format, in double and by its definition.
struct format {
  int fraction_bits;
  int bias;
  std::uint32_t infinity;  ///< its bits
  [[nodiscard]] double value(std::uint32_t magnitude) const
  {
    const auto exponent = static_cast<int>(magnitude >> fraction_bits);
    const auto fraction = static_cast<double>(magnitude & ((1U << fraction_bits) - 1U));
    if (exponent == 0) return std::ldexp(fraction, 1 - bias - fraction_bits);
    return std::ldexp(std::ldexp(1.0, fraction_bits) + fraction, exponent - bias - fraction_bits);
  }
};

template <class Element>
constexpr format format_of = std::is_same_v<Element, bf16> ? format{7, 127, 0x7f80} : format{10, 15, 0x7c00};

std::uint32_t bits_of(float value)
{
  return std::bit_cast<std::uint32_t>(value);
}
float from_bits(std::uint32_t bits)
{
  return std::bit_cast<float>(bits);
}
float lowered(float value)
{
  return from_bits(bits_of(value) - 1);
}
float raised(float value)
{
  return from_bits(bits_of(value) + 1);
}

/// The magnitude that a number at or between two neighbours (`below` and the next one) rounds to.
std::uint32_t nearest(const format& it, std::uint32_t below, double number)
{
  const double middle =
      (it.value(below) + it.value(below + 1)) / 2;  // exact; one ulp beyond the largest stands for infinity
  return number > middle || (number == middle && below % 2 == 1) ? below + 1 : below;
}

template <class Element>
bool rounds_to(float number, std::uint32_t magnitude)
{
  return round_to<Element>(number).bits() == magnitude && round_to<Element>(-number).bits() == (magnitude | 0x8000U);
}

/// Both neighbours, the tie, the singles next to these, and seven more between them.
template <class Element>
bool all_between_are_right(std::uint32_t below)
{
  const format it = format_of<Element>;
  const auto low = static_cast<float>(it.value(below));
  const double high = it.value(below + 1);
  const auto middle = static_cast<float>((it.value(below) + high) / 2);
  std::vector<float> numbers = {low, raised(low), middle, raised(middle)};
  if (middle > 0) numbers.push_back(lowered(middle));
  if (high <= static_cast<double>(std::numeric_limits<float>::max()))
    numbers.push_back(lowered(static_cast<float>(high)));
  const std::uint32_t steps = (bits_of(numbers.back()) - bits_of(low)) / 7 + 1;
  for (std::uint32_t index = 0; index < 7; ++index) numbers.push_back(from_bits(bits_of(low) + index * steps));
  bool right = true;
  for (const float number : numbers) {
    const auto exact = static_cast<double>(number);
    if (exact > high) continue;
    right = right && rounds_to<Element>(number, nearest(it, below, exact));
  }
  return right;
}

/// For every random value: how often the magnitude became `below + 1`; -1 where it became anything else than the two.
template <class Element>
int ups(float number, std::uint32_t below, std::uint32_t randoms)
{
  int count = 0;
  for (std::uint32_t random = 0; random < randoms; ++random) {
    const std::uint32_t up = round_stochastic<Element>(number, random).bits();
    const std::uint32_t down = round_stochastic<Element>(-number, random | 0xabcd0000U).bits();
    if (down != (up | 0x8000U) || (up != below && up != below + 1)) return -1;
    count += up == below + 1 ? 1 : 0;
  }
  return count;
}

/// The exact share of `randoms` that the distance from the lower neighbour in ulps asks for, cut to a whole number.
int expected_ups(const format& it, std::uint32_t below, float number, std::uint32_t randoms)
{
  const double ulp = it.value(below + 1) - it.value(below);
  return static_cast<int>(std::floor((static_cast<double>(number) - it.value(below)) / ulp * randoms));
}

/// The first magnitude of a single that is not rounded to the nearest; that of infinity where there is none.
template <class Element>
std::uint32_t first_wrong()
{
  const format it = format_of<Element>;
  std::uint32_t below = 0;
  double next = it.value(1);
  for (std::uint32_t magnitude = 0; magnitude < 0x7f800000U; ++magnitude) {
    const float number = from_bits(magnitude);
    while (below + 1 < it.infinity && static_cast<double>(number) >= next) next = it.value(++below + 1);
    const std::uint32_t expected =
        static_cast<double>(number) >= next ? it.infinity : nearest(it, below, static_cast<double>(number));
    if (!rounds_to<Element>(number, expected)) return magnitude;
  }
  return 0x7f800000U;
}

}  // namespace

TEMPLATE_TEST_CASE("every spelling of a 16-bit value made from a float gives the nearest one", "[tensor]", bf16, fp16)
{
  for (const float value : {0.0F, -0.0F, 1.0F, 1.5F, -2.25F, 0.1F, 3.14159274F, 65504.0F, 1e-6F, 1e9F, -1e-30F}) {
    const std::uint16_t right = round_to<TestType>(value).bits();
    CHECK(TestType{value}.bits() == right);
    CHECK(TestType(value).bits() == right);
    CHECK(static_cast<TestType>(value).bits() == right);
    std::vector<TestType> grown;
    grown.emplace_back(value);
    CHECK(grown[0].bits() == right);
    CHECK(static_cast<float>(TestType{value}) == to_float(TestType{value}));
  }
  CHECK(bf16(1.5F).bits() == 0x3fc0);
  CHECK(fp16(1.5F).bits() == 0x3e00);
  CHECK(TestType{}.bits() == 0);
  CHECK(std::vector<TestType>(3)[2].bits() == 0);
}

TEMPLATE_TEST_CASE("bits of a 16-bit value go in and out as they are", "[tensor]", bf16, fp16)
{
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits)
    if (TestType::from_bits(static_cast<std::uint16_t>(bits)).bits() != bits) ++wrong;
  CHECK(wrong == 0);
  CHECK(static_cast<float>(bf16::from_bits(0x3f80)) == 1.0F);
  CHECK(static_cast<float>(fp16::from_bits(0x3c00)) == 1.0F);
}

TEMPLATE_TEST_CASE("every 16-bit number becomes the single of the same value and comes back", "[tensor]", bf16, fp16)
{
  const format it = format_of<TestType>;
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const std::uint32_t magnitude = bits & 0x7fffU;
    const float single = to_float(TestType::from_bits(static_cast<std::uint16_t>(bits)));
    const std::uint32_t back = round_to<TestType>(single).bits();
    const std::uint32_t quiet = 1U << (it.fraction_bits - 1);
    if (std::signbit(single) != (bits >= 0x8000U)) ++wrong;
    if (magnitude > it.infinity) {
      if (!std::isnan(single) || back != (bits | quiet)) ++wrong;
    } else if (magnitude == it.infinity) {
      if (!std::isinf(single) || back != bits) ++wrong;
    } else if (std::fabs(static_cast<double>(single)) != it.value(magnitude) || back != bits) {
      ++wrong;
    }
  }
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("between all neighbours a number becomes the nearer one, and at the tie the even one", "[tensor]",
                   bf16, fp16)
{
  int wrong = 0;
  for (std::uint32_t below = 0; below < format_of<TestType>.infinity; ++below)
    wrong += all_between_are_right<TestType>(below) ? 0 : 1;
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("from half an ulp above the largest number on all is infinite, and NaN stays NaN", "[tensor]", bf16,
                   fp16)
{
  const format it = format_of<TestType>;
  const double largest = it.value(it.infinity - 1);
  const auto edge = static_cast<float>(largest + (largest - it.value(it.infinity - 2)) / 2);
  CHECK(rounds_to<TestType>(lowered(edge), it.infinity - 1));
  for (const float number :
       {edge, raised(edge), std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()})
    CHECK(rounds_to<TestType>(number, it.infinity));
  for (const std::uint32_t nan : {0x7f800001U, 0x7fbfffffU, 0x7fc00000U, 0x7fffffffU, 0xff800001U, 0xffffffffU}) {
    for (const std::uint32_t random : {0U, 0x1fffU, 0xffffU}) {
      const auto rounded =
          random == 0 ? round_to<TestType>(from_bits(nan)) : round_stochastic<TestType>(from_bits(nan), random);
      CHECK((rounded.bits() & 0x7fffU) > it.infinity);
      CHECK((rounded.bits() & 1U << (it.fraction_bits - 1)) != 0);
      CHECK((rounded.bits() >= 0x8000U) == (nan >= 0x80000000U));
    }
  }
  CHECK(rounds_to<TestType>(from_bits(1), 0));
}

TEST_CASE("stochastic rounding to bf16 goes up as often as the remainder says, exactly", "[tensor]")
{
  for (const std::uint32_t below : {0U, 1U, 0x7fU, 0x80U, 0x3f80U, 0x3fffU, 0x4001U, 0x7f7eU}) {
    for (const std::uint32_t remainder : {0U, 1U, 2U, 0x1234U, 0x7fffU, 0x8000U, 0x8001U, 0xfffeU, 0xffffU}) {
      const float number = from_bits(below << 16U | remainder);
      CHECK(ups<bf16>(number, below, 0x10000U) == static_cast<int>(remainder));
      CHECK(expected_ups(format_of<bf16>, below, number, 0x10000U) == static_cast<int>(remainder));
    }
  }
}

TEST_CASE("stochastic rounding to fp16 goes up as often as the remainder says, exactly", "[tensor]")
{
  for (const std::uint32_t below : {0x400U, 0x401U, 0x7ffU, 0x3c00U, 0x3fffU, 0x5555U, 0x7bfeU}) {
    const std::uint32_t low = bits_of(static_cast<float>(format_of<fp16>.value(below)));
    for (const std::uint32_t remainder : {0U, 1U, 2U, 0x123U, 0xfffU, 0x1000U, 0x1001U, 0x1ffeU, 0x1fffU}) {
      CHECK(ups<fp16>(from_bits(low + remainder), below, 0x2000U) == static_cast<int>(remainder));
      CHECK(ups<fp16>(from_bits(low + remainder), below, 0x10000U) == 8 * static_cast<int>(remainder));
    }
  }
}

TEST_CASE("stochastic rounding to a denormal fp16 has sixteen bits, which is exact above their grid", "[tensor]")
{
  for (const std::uint32_t below : {0U, 1U, 2U, 3U, 0x1ffU, 0x200U, 0x3feU, 0x3ffU}) {
    for (const double part : {0.0, 0.5, 0.25, 0.75, 0x1p-16, 0x3p-16, 1 - 0x1p-13, 0.3, 0.7, 0x1p-17, 0x1.8p-16}) {
      const auto number = static_cast<float>(std::ldexp(below + part, -24));
      if (static_cast<double>(number) >= format_of<fp16>.value(below + 1)) continue;
      CHECK(ups<fp16>(number, below, 0x10000U) == expected_ups(format_of<fp16>, below, number, 0x10000U));
    }
  }
  CHECK(ups<fp16>(0x1.fffffep-41F, 0, 0x10000U) == 0);
  CHECK(ups<fp16>(0x1p-40F, 0, 0x10000U) == 1);
  CHECK(ups<fp16>(from_bits(1), 0, 0x10000U) == 0);
  CHECK(ups<fp16>(from_bits(0x7fffffU), 0, 0x10000U) == 0);
}

TEMPLATE_TEST_CASE("stochastic rounding keeps what fits and rounds to nearest above the largest", "[tensor]", bf16,
                   fp16)
{
  const format it = format_of<TestType>;
  int wrong = 0;
  for (std::uint32_t magnitude = 0; magnitude <= it.infinity; ++magnitude)
    for (const std::uint32_t random : {0U, 1U, 0x1fffU, 0x8000U, 0xffffU, 0xffffffffU}) {
      const float number = to_float(TestType::from_bits(static_cast<std::uint16_t>(magnitude)));
      if (round_stochastic<TestType>(number, random).bits() != magnitude) ++wrong;
      if (round_stochastic<TestType>(-number, random).bits() != (magnitude | 0x8000U)) ++wrong;
    }
  const std::uint32_t largest = bits_of(static_cast<float>(it.value(it.infinity - 1)));
  for (std::uint32_t bits = largest; bits < largest + 0x10000U && bits <= 0x7f800000U; bits += 0x3fU)
    for (const std::uint32_t random : {0U, 1U, 0x1fffU, 0xffffU})
      if (round_stochastic<TestType>(from_bits(bits), random).bits() != round_to<TestType>(from_bits(bits)).bits())
        ++wrong;
  CHECK(wrong == 0);
}

TEST_CASE("flush makes signed zeros of denormals and leaves the rest, bit by bit", "[tensor]")
{
  for (const std::uint32_t sign : {0U, 0x80000000U}) {
    for (const std::uint32_t bits : {0U, 1U, 0x1234U, 0x7fffffU}) CHECK(bits_of(flush(from_bits(sign | bits))) == sign);
    for (const std::uint32_t bits :
         {0x800000U, 0x800001U, 0x3f800000U, 0x7f7fffffU, 0x7f800000U, 0x7f800001U, 0x7fc00000U})
      CHECK(bits_of(flush(from_bits(sign | bits))) == (sign | bits));
  }
}

TEST_CASE("no rounding mode of the caller changes a conversion", "[tensor]")
{
  const auto all = [](std::vector<std::uint32_t>& out) {
    for (std::uint32_t bits = 0; bits < 0x10000U; ++bits)
      out.push_back(bits_of(to_float(fp16::from_bits(static_cast<std::uint16_t>(bits)))));
    for (std::uint32_t bits = 0x30000000U; bits < 0x48000000U; bits += 0x1abcU) {
      const float number = from_bits(bits);
      out.push_back(round_to<fp16>(number).bits() | static_cast<std::uint32_t>(round_to<bf16>(-number).bits()) << 16U);
      out.push_back(round_stochastic<fp16>(-number, bits >> 3U).bits());
    }
  };
  std::vector<std::uint32_t> expected;
  all(expected);
  const int before = std::fegetround();
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    REQUIRE(std::fesetround(mode) == 0);
    std::vector<std::uint32_t> found;
    all(found);
    std::fesetround(before);
    CHECK(found == expected);
  }
}

TEMPLATE_TEST_CASE("every single is rounded to the nearest", "[tensor][.slow]", bf16, fp16)
{
  CHECK(first_wrong<TestType>() == 0x7f800000U);
}

}  // namespace half_test

namespace widen_test {

using namespace chunkmem;

namespace {

/// Every number of 16 bits, from any place on and of any length.
template <class Element>
void check()
{
  std::vector<Element> from(65'536);
  std::vector<float> expected(from.size());
  for (std::size_t bits = 0; bits < from.size(); ++bits) {
    from[bits] = Element::from_bits(static_cast<std::uint16_t>(bits));
    expected[bits] = to_float(from[bits]);
  }
  std::vector<float> all(from.size());
  widen<Element>(from, all);
  CHECK(support::same_bits(all, expected));
  for (const std::size_t count : {0U, 1U, 63U, 64U, 65U, 200U}) {
    std::vector<float> seen(count + 1, 7.0F);
    widen(std::span<const Element>{from}.subspan(31'700, count), std::span{seen}.first(count));
    const std::vector<float> some{expected.begin() + 31'700, expected.begin() + 31'700 + static_cast<long>(count)};
    CHECK(seen.back() == 7.0F);
    seen.pop_back();
    CHECK(support::same_bits(seen, some));
  }
}

}  // namespace

TEST_CASE("numbers of 16 bits are widened in rows as each by itself", "[tensor]")
{
  check<bf16>();
  check<fp16>();
}

}  // namespace widen_test
