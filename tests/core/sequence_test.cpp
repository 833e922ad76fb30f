// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/containers.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
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
