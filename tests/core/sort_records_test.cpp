// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/containers.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace sort_records_test {

namespace {

struct wide {
  std::uint64_t padding[6] = {};
  std::uint32_t key = 0;
  std::uint32_t number = 0;
};
static_assert(sizeof(wide) == 56);

bool comes_first(const wide& left, const wide& right)
{
  return left.key != right.key ? left.key < right.key : left.number < right.number;
}

/// Lists of this length: random, with few different keys, sorted already, and falling.
std::vector<wide> list_of(std::uint32_t length, std::uint32_t kind, support::dice& dice)
{
  std::vector<wide> list(length);
  for (std::uint32_t index = 0; index < length; ++index) {
    const std::uint32_t keys[] = {dice.below(1U << 30), dice.below(3), index / 2, length - index};
    list[index].key = keys[kind];
    list[index].number = index;
    list[index].padding[5] = 3 * std::uint64_t{index};
  }
  return list;
}

}  // namespace

TEST_CASE("records are sorted as std::sort sorts them", "[core]")
{
  support::dice dice{5};
  for (std::uint32_t length = 0; length < 70; ++length)
    for (std::uint32_t kind = 0; kind < 4; ++kind) {
      INFO("length " << length << ", kind " << kind);
      std::vector<wide> ours = list_of(length, kind, dice);
      std::vector<wide> expected = ours;
      chunkmem::sort_records(std::span{ours},
                             [](const wide& left, const wide& right) { return comes_first(left, right); });
      std::sort(expected.begin(), expected.end(), comes_first);
      REQUIRE(std::equal(ours.begin(), ours.end(), expected.begin(), [](const wide& left, const wide& right) {
        return left.number == right.number && left.key == right.key && left.padding[5] == right.padding[5];
      }));
    }
}

TEST_CASE("sorting many records takes about n log n comparisons, whatever their order", "[core]")
{
  support::dice dice{6};
  const std::uint32_t kind = GENERATE(0U, 1U, 2U, 3U);
  std::vector<wide> list = list_of(1U << 16, kind, dice);
  std::uint64_t comparisons = 0;
  chunkmem::sort_records(std::span{list}, [&](const wide& left, const wide& right) {
    ++comparisons;
    return comes_first(left, right);
  });
  CHECK(std::is_sorted(list.begin(), list.end(), comes_first));
  CHECK(comparisons < 2 * 16 * (std::uint64_t{1} << 16));
}

}  // namespace sort_records_test
