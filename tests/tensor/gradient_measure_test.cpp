// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/gradient_measure.hpp>

#include <support/catch.hpp>

#include <array>
#include <cfenv>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace gradient_measure_test {

using namespace chunkmem;

namespace {

constexpr std::size_t sizes[] = {0, 1, 2, 31, 32, 33, 100, 1023, 1024, 1025, 4095, 4096, 4097, 3 * 4096 + 17, 40000};

/// The magnitude by the definition of the format; less than the least normal single counts as zero.
double magnitude_of(float value)
{
  const double exact = std::fabs(static_cast<double>(value));
  return exact < static_cast<double>(FLT_MIN) ? 0.0 : exact;
}
double magnitude_of(bf16 value)
{
  return magnitude_of(std::bit_cast<float>(static_cast<std::uint32_t>(value.bits()) * 65536U));
}
double magnitude_of(fp16 value)
{
  const int exponent = value.bits() >> 10 & 31;
  const int fraction = value.bits() & 1023;
  if (exponent == 31) return fraction == 0 ? HUGE_VAL : std::nan("");
  return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
}

/// Every step of the pattern as the comment in the header says it, on plain doubles.
template <class Element>
gradient_measure slowly(std::span<const Element> values)
{
  gradient_measure all;
  bool has_nan = false;
  for (std::size_t begin = 0; begin < values.size(); begin += 4096) {
    std::array<double, 32> squares{};
    std::array<double, 32> magnitudes{};
    for (std::size_t index = begin; index < values.size() && index < begin + 4096; ++index) {
      const double magnitude = magnitude_of(values[index]);
      const volatile double square = magnitude * magnitude;
      squares[(index - begin) % 32] += square;
      magnitudes[(index - begin) % 32] += magnitude;
      all.finite = all.finite && std::isfinite(magnitude);
      has_nan = has_nan || std::isnan(magnitude);
      all.largest = std::max(all.largest, static_cast<float>(magnitude));
    }
    for (const std::size_t distance : {16U, 8U, 4U, 2U, 1U})
      for (std::size_t lane = 0; lane < distance; ++lane) {
        squares[lane] += squares[lane + distance];
        magnitudes[lane] += magnitudes[lane + distance];
      }
    all.squares += squares[0];
    all.magnitudes += magnitudes[0];
  }
  if (!all.finite) all = {HUGE_VAL, HUGE_VAL, has_nan ? NAN : HUGE_VALF, false};
  return all;
}

bool same_bits(const gradient_measure& left, const gradient_measure& right)
{
  const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
  return bits(left.squares) == bits(right.squares) && bits(left.magnitudes) == bits(right.magnitudes) &&
         std::bit_cast<std::uint32_t>(left.largest) == std::bit_cast<std::uint32_t>(right.largest) &&
         left.finite == right.finite;
}

/// Pseudo-random values over many exponents, denormals among them, both signs.
template <class Element>
std::vector<Element> some(std::size_t count, std::uint32_t seed)
{
  std::vector<Element> values(count);
  std::uint32_t state = seed;
  for (Element& value : values) {
    state = state * 1664525U + 1013904223U;
    if constexpr (std::is_same_v<Element, float>) {
      value = std::bit_cast<float>((state & 0xbfffffffU) | (state >> 9U & 0x20000000U));
      if (!std::isfinite(value)) value = 1.0F;
    } else {
      const std::uint32_t infinity = std::is_same_v<Element, bf16> ? 0x7f80U : 0x7c00U;
      value = Element::from_bits(static_cast<std::uint16_t>(state >> 16U));
      if ((value.bits() & infinity) == infinity) value = Element::from_bits(0x0001);
    }
  }
  return values;
}

template <class Element>
gradient_measure plainly(std::span<const Element> values)
{
  detail::measure_rows rows;
  rows.add(values.data(), values.size());
  return rows.folded();
}

}  // namespace

TEMPLATE_TEST_CASE("a measure has the bits of the pattern, whatever the length", "[tensor]", float, bf16, fp16)
{
  for (const std::size_t size : sizes) {
    const auto values = some<TestType>(size, 7 + static_cast<std::uint32_t>(size));
    const std::span<const TestType> all{values};
    INFO("elements " << size);
    CHECK(same_bits(measure(all), slowly(all)));
    if (size > 4 && size <= measure_block)
      CHECK(same_bits(measure_one_block(all.subspan(1, size - 4)), slowly(all.subspan(1, size - 4))));
  }
}

TEMPLATE_TEST_CASE("all instruction sets of this processor give the same bits", "[tensor]", float, bf16, fp16)
{
  for (const std::size_t size : sizes) {
    if (size > measure_block) continue;
    auto values = some<TestType>(size, 99);
    const std::span<const TestType> all{values};
    CHECK(same_bits(plainly(all), measure_one_block(all)));
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
      detail::measure_rows rows;
      detail::add_with_avx2(rows, all.data(), all.size());
      CHECK(same_bits(plainly(all), rows.folded()));
    }
#endif
  }
}

TEST_CASE("simple sums are what one expects", "[tensor]")
{
  const std::vector<float> values = {3.0F, -4.0F, 0.0F, -0.0F};
  const gradient_measure found = measure(std::span<const float>{values});
  CHECK(found.squares == 25.0);
  CHECK(found.magnitudes == 7.0);
  CHECK(found.largest == 4.0F);
  CHECK(found.finite);
  const gradient_measure none = measure(std::span<const bf16>{});
  CHECK(same_bits(none, gradient_measure{}));
}

TEST_CASE("denormal singles count as zero, denormal halves as what they are", "[tensor]")
{
  const std::vector<float> singles(100, -FLT_MIN / 2);
  CHECK(same_bits(measure(std::span<const float>{singles}), gradient_measure{}));
  const std::vector<bf16> brains(100, bf16::from_bits(0x807f));
  CHECK(same_bits(measure(std::span<const bf16>{brains}), gradient_measure{}));
  const std::vector<fp16> halves(100, fp16::from_bits(0x8001));
  CHECK(measure(std::span<const fp16>{halves}).magnitudes == 100 * 0x1p-24);
  CHECK(measure(std::span<const fp16>{halves}).largest == 0x1p-24F);
}

TEST_CASE("the largest gradients do not overflow the sums", "[tensor]")
{
  const std::vector<float> values(100000, -FLT_MAX);
  const gradient_measure found = measure(std::span<const float>{values});
  CHECK(found.finite);
  CHECK(found.largest == FLT_MAX);
  CHECK(found.magnitudes == Catch::Approx(1e5 * static_cast<double>(FLT_MAX)));
  CHECK(std::isfinite(found.squares));
}

TEMPLATE_TEST_CASE("one infinity or NaN makes the sums infinite, and is the largest", "[tensor]", float, bf16, fp16)
{
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const std::size_t index : {0U, 5U, 31U, 32U, 4095U, 4096U, 5000U, 8199U}) {
    for (const float hostile : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
      auto values = some<TestType>(8200, 3);
      values[index] = round_to<TestType>(hostile);
      const std::span<const TestType> all{values};
      const float largest = std::isnan(hostile) ? NAN : HUGE_VALF;
      CHECK(same_bits(measure(all), {HUGE_VAL, HUGE_VAL, largest, false}));
      CHECK(same_bits(slowly(all), measure(all)));
    }
  }
}

TEST_CASE("measures join in order", "[tensor]")
{
  gradient_measure all{1.0, 2.0, 3.0F, true};
  all.add({10.0, 20.0, 2.0F, true});
  CHECK(same_bits(all, {11.0, 22.0, 3.0F, true}));
  all.add({HUGE_VAL, HUGE_VAL, HUGE_VALF, false});
  all.add({1.0, 1.0, 1.0F, true});
  CHECK(same_bits(all, {HUGE_VAL, HUGE_VAL, HUGE_VALF, false}));
}

TEMPLATE_TEST_CASE("no rounding mode of the caller changes a measure", "[tensor]", float, bf16, fp16)
{
  if (!float_environment::is_supported) SKIP("nothing is known of this processor's floating-point settings");
  const auto values = some<TestType>(9000, 11);
  const gradient_measure expected = measure(std::span<const TestType>{values});
  const int before = std::fegetround();
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    REQUIRE(std::fesetround(mode) == 0);
    const gradient_measure found = measure(std::span<const TestType>{values});
    std::fesetround(before);
    CHECK(same_bits(found, expected));
  }
}

}  // namespace gradient_measure_test
