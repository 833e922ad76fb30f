// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/containers.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <new>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace sequence_test {

using chunkmem::sequence;

namespace {

struct record {
  std::uint64_t key = 7;
  std::uint32_t value = 9;
  bool operator==(const record&) const = default;
};

record fresh(support::dice& dice)
{
  return {dice.below(50), dice.below(50)};
}

bool same(const sequence<record>& ours, const std::vector<record>& model)
{
  return ours.size() == model.size() && ours.empty() == model.empty() && ours.capacity() >= ours.size() &&
         std::equal(ours.begin(), ours.end(), model.begin(), model.end());
}

/// One random operation on both.
void change(sequence<record>& ours, std::vector<record>& model, support::dice& dice)
{
  const auto place = [&] { return dice.below(static_cast<std::uint32_t>(model.size()) + 1); };
  const record given = fresh(dice);
  const std::uint32_t at = place(), other = place();
  const std::uint32_t first = std::min(at, other), last = std::max(at, other);
  switch (dice.below(12)) {
    case 0: ours.reserve(at + 3); return model.reserve(at + 3);
    case 1: ours.resize(other + 2, given); return model.resize(other + 2, given);
    case 2: ours.resize(other); return model.resize(other);
    case 3: ours.assign(at, given); return model.assign(at, given);
    case 4: {
      const std::vector<record> values(model.begin() + first, model.begin() + last);
      ours.assign(values);
      return model.assign(values.begin(), values.end());
    }
    case 5: {
      const std::vector<record> values(at % 5, given);
      ours.append(values);
      model.insert(model.end(), values.begin(), values.end());
      return;
    }
    case 6:
      CHECK(*ours.insert(ours.begin() + at, given) == given);
      model.insert(model.begin() + at, given);
      return;
    case 7:
      CHECK(ours.erase(ours.begin() + first, ours.begin() + last) == ours.begin() + first);
      model.erase(model.begin() + first, model.begin() + last);
      return;
    case 8: {
      const auto is_out = [&](const record& it) { return it.value < given.value / 2; };
      erase_if(ours, is_out);
      std::erase_if(model, is_out);
      return;
    }
    case 9:
      if (model.empty()) return;
      ours.pop_back();
      return model.pop_back();
    default: ours.push_back(given); model.push_back(given);
  }
}

}  // namespace

TEST_CASE("a sequence does what a vector does, in 20,000 random operations", "[core]")
{
  const std::uint64_t seed = GENERATE(1U, 2U, 3U, 4U);
  INFO("seed " << seed);
  support::dice dice{seed};
  sequence<record> ours;
  std::vector<record> model;
  for (int step = 0; step < 5'000; ++step) {
    change(ours, model, dice);
    if (!same(ours, model)) FAIL("step " << step);
    if (!model.empty()) {
      REQUIRE(ours.front() == model.front());
      REQUIRE(ours.back() == model.back());
    }
    if (dice.one_in(50)) {
      const sequence<record> copy = ours;
      REQUIRE(copy == ours);
      sequence<record> moved = std::move(ours);
      REQUIRE(moved == copy);
      REQUIRE(ours.empty());
      sequence<record> other(3);
      other = std::move(moved);
      REQUIRE(other == copy);
      REQUIRE(moved.empty());
      moved = other;
      ours = copy;
      REQUIRE(same(ours, model));
      ours.push_back(fresh(dice));
      REQUIRE_FALSE(ours == copy);
      moved.swap(ours);
      REQUIRE(same(ours, model));
    }
  }
}

TEST_CASE("an element of a sequence can be given to the sequence itself", "[core]")
{
  sequence<std::uint32_t> values{1, 2, 3, 4};
  REQUIRE(values.capacity() == 4);
  values.push_back(values.front());  // the memory changes while the value is read
  values.resize(9, values[1]);
  values.insert(values.begin(), values.back());
  CHECK(values == sequence<std::uint32_t>{2, 1, 2, 3, 4, 1, 2, 2, 2, 2});
  values.assign(3, values[3]);
  CHECK(values == sequence<std::uint32_t>{3, 3, 3});
}

TEST_CASE("a sequence that grows by one element at a time is copied a few times only", "[core]")
{
  const bool pushes = GENERATE(false, true);
  sequence<std::uint32_t> values;
  std::size_t growths = 0;
  for (std::uint32_t next = 0; next < 100'000; ++next) {
    const std::size_t before = values.capacity();
    if (pushes)
      values.push_back(next);
    else
      values.resize(next + 1, next);
    growths += values.capacity() != before;
  }
  CHECK(growths < 20);
  CHECK(values.back() == 99'999);
}

TEST_CASE("a sequence that cannot have its memory is as it was", "[core]")
{
  sequence<record> values(3);
  CHECK(values.back() == record{});
  CHECK_THROWS_AS(values.reserve(std::numeric_limits<std::size_t>::max() / sizeof(record)), std::bad_alloc);
  CHECK_THROWS_AS(values.resize(std::numeric_limits<std::size_t>::max() / 4), std::bad_alloc);
  CHECK(values == sequence<record>(3));
}

}  // namespace sequence_test

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
