// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/gradients.hpp>

#include <support/catch.hpp>
#include <support/count_allocations.hpp>

#include <vector>

namespace update_order_test {

namespace {

std::vector<std::uint32_t> numbers(const chunkmem::update_order& it)
{
  return {it.all().begin(), it.all().end()};
}

}  // namespace

TEST_CASE("parameters come as declared until an order is arranged, which stays until it is reset", "[manager]")
{
  chunkmem::update_order it;
  it.reset(5);
  CHECK(numbers(it) == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
  const auto before = support::allocations_so_far();
  const std::uint64_t keys[] = {7, 3, UINT64_MAX, 3, 0};
  it.arrange([&](std::uint32_t index) { return keys[index]; });
  if (support::counts_allocations) CHECK((support::allocations_so_far() - before).all() == 0);
  CHECK(numbers(it) == std::vector<std::uint32_t>{4, 1, 3, 0, 2});
  it.arrange([](std::uint32_t) { return std::uint64_t{1}; });
  CHECK(numbers(it) == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
  it.arrange([](std::uint32_t index) { return 9 - index; });
  CHECK(numbers(it) == std::vector<std::uint32_t>{4, 3, 2, 1, 0});
  it.reset();
  CHECK(numbers(it) == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
}

}  // namespace update_order_test
