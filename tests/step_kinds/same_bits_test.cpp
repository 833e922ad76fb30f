// SPDX-License-Identifier: Apache-2.0
// Steps of every kind have the bits of one rank with a step at once: every three values of all axes together.
#include "kind.hpp"

#include <support/catch.hpp>
#include <support/figures.hpp>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

namespace same_bits_test {

using step_kinds::extents;
using step_kinds::is_legal;
using step_kinds::kind;
using point = support::point<kind::axes>;

namespace {

const std::vector<point>& legal_kinds()
{
  static const std::vector<point> all = support::legal_points(extents, is_legal);
  return all;
}

/// @return   how many have other bits
std::uint64_t differing(const std::vector<point>& rows)
{
  std::uint64_t wrong = 0;
  for (const point& row : rows) {
    const std::string complaint = step_kinds::train(kind{row});
    if (complaint.empty()) continue;
    ++wrong;
    UNSCOPED_INFO(kind{row}.name() << ": " << complaint);
  }
  return wrong;
}

}  // namespace

TEST_CASE("a covering array has every three values that any legal kind of step has", "[step_kinds]")
{
  support::combinations<kind::axes, 3> wanted{extents}, found{extents};
  for (const point& each : legal_kinds()) wanted.add(each);
  const std::vector<point> rows = support::covering<3>(extents, legal_kinds());
  for (const point& row : rows) {
    CHECK(is_legal(row));
    found.add(row);
  }
  CHECK(found.count() == wanted.count());
  CHECK(rows.size() < 200);
  for (const point& each : legal_kinds())
    if (found.fresh(each) != 0) FAIL(kind{each}.name());
}

TEST_CASE("steps of every time, place and owner have the bits of one rank with a step at once", "[step_kinds]")
{
  const std::vector<point> rows = support::covering<3>(extents, legal_kinds());
  const std::uint64_t wrong = differing(rows);
  CHECK(wrong == 0);
  std::cout << rows.size() - wrong << " of " << rows.size() << " kinds of steps have the bits of one rank; of "
            << legal_kinds().size() << " kinds that exist they have every three values\n";
  support::write_figures(
      "test_step_kinds", "build/test/bin/test_step_kinds",
      {{"sharding.step_kinds_identical_percent", 100 * (rows.size() - wrong) / rows.size(), "%", "==", 100}});
}

TEST_CASE("so do all kinds of steps", "[step_kinds][.slow]")
{
  std::vector<point> rows;
  for (const point& each : legal_kinds()) {
    std::size_t sum = 0;
    for (std::size_t axis = 0; axis < kind::decided; ++axis) sum += each[axis];
    if (sum % extents[kind::decided] == each[kind::decided]) rows.push_back(each);  // decisions take turns
  }
  CHECK(differing(rows) == 0);
}

}  // namespace same_bits_test
