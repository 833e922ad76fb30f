// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/max_tree.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <vector>

namespace max_tree_test {

using namespace chunkmem;

TEST_CASE("a tree of maxima finds what a walk over the row finds", "[chunk]")
{
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    support::dice dice{seed};
    max_tree tree;
    std::vector<std::uint64_t> row;
    for (int step = 0; step < 300; ++step) {
      if (row.empty() || dice.one_in(4)) {
        row.push_back(dice.below(40));
        tree.push_back(row.back());
      } else if (dice.one_in(60)) {
        row.clear();
        tree.clear();
      } else {
        const std::uint32_t index = dice.below(static_cast<std::uint32_t>(row.size()));
        row[index] = dice.below(40);
        tree.set(index, row[index]);
      }
      const std::uint32_t from = dice.below(static_cast<std::uint32_t>(row.size()) + 2);
      const std::uint64_t need = dice.between(1, 45);
      const auto begin = row.begin() + std::min<std::ptrdiff_t>(from, static_cast<std::ptrdiff_t>(row.size()));
      const auto found = std::find_if(begin, row.end(), [&](std::uint64_t value) { return value >= need; });
      const std::size_t expected = found == row.end() ? max_tree::none : static_cast<std::size_t>(found - row.begin());
      if (tree.first(from, need) != expected) FAIL("seed " << seed << ", step " << step << ": first with " << need);
      const auto end = begin + dice.below(static_cast<std::uint32_t>(row.end() - begin) + 1);
      const std::uint64_t largest = begin == end ? 0 : *std::max_element(begin, end);
      if (tree.largest(static_cast<std::size_t>(begin - row.begin()), static_cast<std::size_t>(end - row.begin())) !=
          largest)
        FAIL("seed " << seed << ", step " << step << ": largest");
      if (tree.size() != row.size() || (!row.empty() && tree.at(row.size() - 1) != row.back())) FAIL("seed " << seed);
    }
  }
}

TEST_CASE("a tree of nothing has nothing", "[chunk]")
{
  const max_tree empty;
  CHECK(empty.size() == 0);
  CHECK(empty.first(0, 1) == max_tree::none);
  CHECK(empty.largest(0, 0) == 0);
}

}  // namespace max_tree_test
