// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/update_site.hpp>

#include <chunkmem/optimizer/thread_pool.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <bit>
#include <limits>
#include <vector>

namespace measure_parameter_test {

using namespace chunkmem;

namespace {

template <class Element>
std::vector<Element> random_elements(std::size_t count, std::uint64_t seed)
{
  support::dice dice{seed};
  std::vector<Element> all(count);
  for (Element& it : all) it = round_to<Element>((static_cast<float>(dice.below(2'000'001)) - 1e6F) * 1e-5F);
  return all;
}

template <class Element>
gradient_measure measured(const std::vector<Element>& all, auto& workers)
{
  return optimizer::measure_parameter(reinterpret_cast<const std::byte*>(all.data()), dtype_of<Element>, all.size(),
                                      workers);
}

bool same_bits(const gradient_measure& left, const gradient_measure& right)
{
  return std::bit_cast<std::uint64_t>(left.squares) == std::bit_cast<std::uint64_t>(right.squares) &&
         std::bit_cast<std::uint64_t>(left.magnitudes) == std::bit_cast<std::uint64_t>(right.magnitudes) &&
         std::bit_cast<std::uint32_t>(left.largest) == std::bit_cast<std::uint32_t>(right.largest) &&
         left.finite == right.finite;
}

}  // namespace

TEMPLATE_TEST_CASE("norms of a gradient do not depend on who takes them", "[optimizer]", float, bf16, fp16)
{
  optimizer::thread_pool two{2}, three{3};
  const serial one;
  for (const std::size_t count : {1UL, 4'095UL, 4'097UL, 32'768UL, 32'769UL, 600'001UL, 4'300'000UL}) {
    INFO(count << " elements");
    const auto all = random_elements<TestType>(count, count);
    const gradient_measure expected = measure(std::span<const TestType>{all});
    CHECK(expected.squares > 0.0);
    CHECK(same_bits(measured(all, one), expected));
    CHECK(same_bits(measured(all, two), expected));
    CHECK(same_bits(measured(all, three), expected));
  }
}

TEST_CASE("one infinity or NaN anywhere is found by every number of threads", "[optimizer]")
{
  optimizer::thread_pool three{3};
  for (const std::size_t where : {0UL, 40'000UL, 524'288UL, 700'000UL - 1}) {
    auto all = random_elements<float>(700'000, 1);
    all[where] = where % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
    CHECK_FALSE(measured(all, three).finite);
    all[where] = 0.0F;
    CHECK(measured(all, three).finite);
  }
}

}  // namespace measure_parameter_test
