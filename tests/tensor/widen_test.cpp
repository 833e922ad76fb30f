// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/dtype.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>

#include <vector>

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
