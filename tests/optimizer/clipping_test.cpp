// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/step_options.hpp>

#include <support/catch.hpp>

#include <cmath>
#include <limits>
#include <vector>

namespace clipping_test {

using namespace chunkmem;
using namespace chunkmem::optimizer;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

static_assert(clipping{}.norm == 0.0F && clipping{}.value == 0.0F && clipping{}.order == norm_order::l2);
static_assert(clip_factor(0.0, 1.0F) == 1.0F);

}  // namespace

TEST_CASE("the three norms of a measured gradient", "[optimizer]")
{
  const std::vector<float> values = {3.0F, -4.0F, 12.0F};
  const gradient_measure found = measure(std::span<const float>{values});
  CHECK(norm_of(found, norm_order::l1) == 19.0);
  CHECK(norm_of(found, norm_order::l2) == 13.0);
  CHECK(norm_of(found, norm_order::linf) == 12.0);
  for (const norm_order order : {norm_order::l1, norm_order::l2, norm_order::linf}) CHECK(norm_of({}, order) == 0.0);
}

TEST_CASE("a gradient with an infinity has an infinite norm of each order, and one with a NaN none", "[optimizer]")
{
  constexpr float infinite = std::numeric_limits<float>::infinity();
  for (const norm_order order : {norm_order::l1, norm_order::l2, norm_order::linf}) {
    for (const std::vector<float>& values : {std::vector{1.0F, infinite}, std::vector{-infinite, infinite}})
      CHECK(norm_of(measure(std::span{values}), order) == infinite);
    for (const std::vector<float>& values : {std::vector{1.0F, not_a_number}, std::vector{-infinite, -not_a_number}})
      CHECK(std::isnan(norm_of(measure(std::span{values}), order)));
  }
}

TEST_CASE("a norm that is infinite clips to nothing, and one that is NaN to NaN, as in PyTorch", "[optimizer]")
{
  constexpr double infinite = std::numeric_limits<double>::infinity();
  CHECK(clip_factor(infinite, 1.0F) == 0.0F);
  CHECK(std::isnan(clip_factor(std::numeric_limits<double>::quiet_NaN(), 1.0F)));
  CHECK(clip_factor(1e30, std::numeric_limits<float>::infinity()) == 1.0F);
  CHECK(std::isnan(clip_factor(infinite, std::numeric_limits<float>::infinity())));  // inf / inf
}

TEST_CASE("the clip factor is one below the limit and brings larger norms to just below it", "[optimizer]")
{
  CHECK(clip_factor(0.5, 1.0F) == 1.0F);
  CHECK(clip_factor(1.0 - 1e-6, 1.0F) == 1.0F);
  CHECK(clip_factor(1.0, 1.0F) == static_cast<float>(1.0 / (1.0 + 1e-6)));
  CHECK(clip_factor(4.0, 1.0F) == static_cast<float>(1.0 / (4.0 + 1e-6)));
  CHECK(clip_factor(1e300, 1.0F) == 0.0F);
  for (const double norm : {1.0, 1.5, 7.0, 1234.5, 1e9, 1e30})
    for (const float limit : {1e-3F, 1.0F, 10.0F}) {
      const double clipped = norm * static_cast<double>(clip_factor(norm, limit));
      CHECK(clipped <= static_cast<double>(limit) * (1 + 1e-7));
      if (norm > static_cast<double>(limit)) CHECK(clipped == Catch::Approx(limit).epsilon(2e-6));
    }
}

TEST_CASE("limits that are negative or no number are refused", "[optimizer]")
{
  CHECK_NOTHROW(check(clipping{}));
  CHECK_NOTHROW(
      check(clipping{.norm = 1.0F, .order = norm_order::l1, .value = std::numeric_limits<float>::infinity()}));
  for (const float wrong : {-1.0F, not_a_number}) {
    CHECK_THROWS_AS(check(clipping{.norm = wrong}), usage_error);
    CHECK_THROWS_AS(check(clipping{.value = wrong}), usage_error);
  }
}

}  // namespace clipping_test
