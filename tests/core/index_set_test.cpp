// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/containers.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <iterator>
#include <set>

namespace index_set_test {

using namespace chunkmem;

namespace {

std::uint32_t first_from(const std::set<std::uint32_t>& model, std::uint32_t start)
{
  const auto found = model.lower_bound(start);
  return found == model.end() ? index_set::none : *found;
}
std::uint32_t last_before(const std::set<std::uint32_t>& model, std::uint32_t end)
{
  const auto found = model.lower_bound(end);
  return found == model.begin() ? index_set::none : *std::prev(found);
}

bool agree_at(const index_set& set, const std::set<std::uint32_t>& model, std::uint32_t index)
{
  return set.first_from(index) == first_from(model, index) && set.last_before(index) == last_before(model, index);
}

/// Random operations; `spread` small keeps the members in few words.
void compare(std::uint32_t universe, std::uint32_t spread, int operations, std::uint64_t seed)
{
  INFO("seed " << seed << ", universe " << universe);
  support::dice dice{seed};
  index_set set;
  std::set<std::uint32_t> model;
  set.reset(universe);
  for (int step = 0; step < operations; ++step) {
    const std::uint32_t member = dice.below(dice.one_in(3) ? universe : std::min(spread, universe));
    if (dice.below(100) < 48) {
      set.insert(member);
      model.insert(member);
    } else {
      set.erase(member);
      model.erase(member);
    }
    const std::uint32_t asked = dice.below(universe + 2);
    if (!agree_at(set, model, asked) || !agree_at(set, model, member) || !agree_at(set, model, 0) ||
        !agree_at(set, model, index_set::none) || set.empty() != model.empty() ||
        set.contains(member) != model.contains(member))
      FAIL("step " << step << ", member " << member << ", asked " << asked);
  }
  for (const std::uint32_t member : std::set<std::uint32_t>{model}) {
    set.erase(member);
    model.erase(member);
    if (set.empty() != model.empty() || set.first_from(0) != first_from(model, 0)) FAIL("erasing " << member);
  }
  REQUIRE(set.empty());
}

}  // namespace

TEST_CASE("an index set finds the neighbours that an ordered set finds", "[core]")
{
  for (const std::uint32_t universe : {1u, 2u, 63u, 64u, 65u, 127u, 128u, 4'095u, 4'096u, 4'097u, 262'144u, 262'145u})
    for (const std::uint64_t seed : {1u, 2u}) compare(universe, 100, 2'000, seed * 1'000 + universe);
  compare(1u << 20, 5'000, 5'000, 11);
}

TEST_CASE("an index set finds each neighbour in every small universe", "[core]")
{
  for (std::uint32_t universe = 0; universe <= 9; ++universe)
    for (std::uint32_t bits = 0; bits < 1u << universe; ++bits) {
      index_set set;
      set.reset(universe);
      std::set<std::uint32_t> model;
      for (std::uint32_t index = 0; index < universe; ++index)
        if ((bits >> index & 1) != 0) {
          set.insert(index);
          model.insert(index);
        }
      for (std::uint32_t index = 0; index <= universe + 1; ++index)
        if (!agree_at(set, model, index)) FAIL("universe " << universe << ", members " << bits << ", at " << index);
    }
}

TEST_CASE("an index set finds the ends of words and levels", "[core]")
{
  index_set set;
  set.reset(300'000);
  for (const std::uint32_t member : {0u, 63u, 64u, 4'095u, 4'096u, 262'143u, 262'144u, 299'999u}) {
    set.insert(member);
    CHECK(set.first_from(0) == member);
    CHECK(set.first_from(member) == member);
    CHECK(set.first_from(member + 1) == index_set::none);
    CHECK(set.last_before(300'000) == member);
    CHECK(set.last_before(member + 1) == member);
    CHECK(set.last_before(member) == index_set::none);
    set.erase(member);
    CHECK(set.empty());
  }
}

TEST_CASE("an index set that is reset forgets all and can grow and shrink", "[core]")
{
  index_set set;
  CHECK(set.empty());
  for (const std::uint32_t universe : {10u, 100'000u, 1u, 0u, 64u}) {
    set.reset(universe);
    CHECK(set.empty());
    CHECK(set.first_from(0) == index_set::none);
    CHECK(set.last_before(index_set::none) == index_set::none);
    for (std::uint32_t index = 0; index < universe; ++index) set.insert(index);
    CHECK(set.last_before(index_set::none) == (universe == 0 ? index_set::none : universe - 1));
  }
}

TEST_CASE("inserting twice and erasing twice is once", "[core]")
{
  index_set set;
  index_set other;
  set.reset(200);
  other.reset(200);
  set.insert(130);
  set.insert(130);
  other.insert(130);
  CHECK(set == other);
  set.erase(130);
  set.erase(130);
  CHECK(set.empty());
  CHECK_FALSE(set == other);
}

}  // namespace index_set_test
