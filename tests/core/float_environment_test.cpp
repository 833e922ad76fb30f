// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/float_environment.hpp>

#include <support/catch.hpp>

#include <cfenv>
#include <type_traits>

namespace float_environment_test {

using chunkmem::float_environment;

namespace {

static_assert(!std::is_copy_constructible_v<float_environment> && !std::is_copy_assignable_v<float_environment>);
static_assert(std::is_nothrow_default_constructible_v<float_environment>);

// Volatile operands: computed here and now, and not by the compiler.
[[gnu::noinline]] float product(float left, float right)
{
  const volatile float first = left;
  const volatile float second = right;
  return first * second;
}
[[gnu::noinline]] float third()
{
  const volatile float one = 1.0F;
  const volatile float three = 3.0F;
  return one / three;
}

}  // namespace

TEST_CASE("the rounding mode of the caller is put aside and comes back", "[core]")
{
  if (!float_environment::is_supported) SKIP("nothing is known of this processor's floating-point settings");
  const float nearest = third();
  const int before = std::fegetround();
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    REQUIRE(std::fesetround(mode) == 0);
    const float outside = third();
    float inside = 0;
    float nested_inside = 0;
    float inside_again = 0;
    {
      const float_environment standard;
      inside = third();
      {
        const float_environment nested;
        nested_inside = third();
      }
      inside_again = third();
    }
    const int after = std::fegetround();
    const float again = third();
    std::fesetround(before);
    CHECK(inside == nearest);
    CHECK(nested_inside == nearest);
    CHECK(inside_again == nearest);
    CHECK(after == mode);
    CHECK(again == outside);
  }
}

TEST_CASE("flags that were up stay up, and those of the work inside do not come out", "[core]")
{
  if (!float_environment::is_supported) SKIP("nothing is known of this processor's floating-point settings");
  std::feclearexcept(FE_ALL_EXCEPT);
  std::feraiseexcept(FE_DIVBYZERO);
  int inside = 0;
  {
    const float_environment standard;
    inside = std::fetestexcept(FE_ALL_EXCEPT);
    (void)product(1e30F, 1e30F);
    (void)product(1e-30F, 1e-30F);
  }
  const int after = std::fetestexcept(FE_ALL_EXCEPT);
  std::feclearexcept(FE_ALL_EXCEPT);
  CHECK(after == FE_DIVBYZERO);
#if defined(__SSE__)
  CHECK((inside & (FE_OVERFLOW | FE_UNDERFLOW)) == 0);
#else
  (void)inside;
#endif
}

#if defined(__SSE__)
TEST_CASE("a caller who flushes denormals gets them inside, and his settings back bit by bit", "[core]")
{
  const unsigned before = __builtin_ia32_stmxcsr();
  for (const unsigned extra :
       {0x8000U, 0x0040U, 0x8040U, 0xe040U, 0x0021U}) {  // flush to zero, denormals are zero, modes, flags
    __builtin_ia32_ldmxcsr(0x1f80U | extra);
    float made = 0;
    float taken = 0;
    unsigned inside = 0;
    {
      const float_environment standard;
      inside = __builtin_ia32_stmxcsr();
      made = product(0x1p-100F, 0x1p-40F);
      taken = product(0x1p-140F, 0x1p40F);
    }
    const unsigned after = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before);
    CHECK(inside == 0x1f80U);
    CHECK(made == 0x1p-140F);
    CHECK(taken == 0x1p-100F);
    CHECK(after == (0x1f80U | extra));
  }
}
#endif

TEST_CASE("denormals are zeros in flush mode, and the mode of before comes back", "[core]")
{
  if (!float_environment::is_supported) SKIP("nothing is known of this processor's floating-point settings");
  using settings = float_environment::settings;
  const settings before = settings::of_this_thread();
  float made[3] = {1, 1, 1};
  float taken[3] = {1, 1, 1};
  const auto compute = [&](int which) {
    made[which] = product(0x1p-100F, 0x1p-40F);
    taken[which] = product(0x1p-140F, 0x1p40F);
  };
  bool is_flushing = false;
  {
    const float_environment fast{settings::flushing()};
    compute(0);
    {
      const float_environment standard;
      compute(1);
    }
    is_flushing = settings::of_this_thread() == settings::flushing();
    compute(2);
  }
  for (const int which : {0, 2}) {
    CHECK(made[which] == 0.0F);
    CHECK(taken[which] == 0.0F);
  }
  CHECK(made[1] == 0x1p-140F);
  CHECK(taken[1] == 0x1p-100F);
  CHECK(is_flushing);
  CHECK(settings::of_this_thread() == before);
}

}  // namespace float_environment_test
