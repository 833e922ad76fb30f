// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/retention_problem.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace room_tree_test {

using chunkmem::transfer::room_tree;

TEST_CASE("a room tree adds and finds what a plain row does", "[transfer]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice random{seed};
    std::vector<std::int64_t> plain(random.between(1, 40));
    for (std::int64_t& it : plain) it = random.below(100);
    room_tree tree{plain};
    for (int step = 0; step < 60; ++step) {
      const std::size_t size = plain.size();
      const std::size_t begin = random.below(static_cast<std::uint32_t>(size) + 1);
      const std::size_t end = begin + random.below(static_cast<std::uint32_t>(size - begin) + 1);
      const auto first = plain.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = plain.begin() + static_cast<std::ptrdiff_t>(end);
      const std::int64_t value = static_cast<std::int64_t>(random.below(21)) - 10;
      tree.add(begin, end, value);
      std::for_each(first, last, [&](std::int64_t& it) { it += value; });
      const std::size_t from = random.below(static_cast<std::uint32_t>(size));
      const std::size_t to = from + 1 + random.below(static_cast<std::uint32_t>(size - from));
      const auto least = std::min_element(plain.begin() + static_cast<std::ptrdiff_t>(from),
                                          plain.begin() + static_cast<std::ptrdiff_t>(to));
      if (tree.least(from, to) != *least)
        FAIL("seed " << seed << ", step " << step << ": " << tree.least(from, to) << " for " << *least);
    }
  }
}

TEST_CASE("no numbers have an endless room", "[transfer]")
{
  const room_tree none{{}};
  CHECK(none.least(0, 0) == room_tree::endless);
  const std::vector<std::int64_t> one{3};
  CHECK(room_tree{one}.least(0, 0) == room_tree::endless);
  CHECK(room_tree{one}.least(0, 1) == 3);
}

}  // namespace room_tree_test
