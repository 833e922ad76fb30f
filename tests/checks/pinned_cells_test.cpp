// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checks/full_checks.hpp>

#include <support/catch.hpp>

#include <array>

namespace pinned_cells_test {

using chunkmem::checks::call_place;
using chunkmem::checks::pinned_cells;
using finding = pinned_cells::finding;

namespace {

struct cells {
  pinned_cells all;
  std::array<std::byte, 32> content{};

  cells() { all.reset(3); }
  void pin(bool writes, unsigned line = 1) { all.pinned(1, content, writes, call_place{"a.cpp", line}); }
  [[nodiscard]] finding end(bool retained = true) { return all.released(1, content, retained); }
  [[nodiscard]] finding look() { return all.compare(1, content); }
};

}  // namespace

TEST_CASE("a change under a pin that reads is found once", "[checks]")
{
  cells it;
  it.pin(false);
  it.content[5] = std::byte{1};
  CHECK(it.end() == finding::written_through_read);
  CHECK(it.look() == finding::fine);
  it.pin(false);
  CHECK(it.end() == finding::fine);
}

TEST_CASE("a pin that writes makes every change right, also of pins beside it", "[checks]")
{
  cells it;
  it.pin(false);
  it.pin(true);
  it.content[5] = std::byte{1};
  CHECK(it.end() == finding::fine);
  it.content[6] = std::byte{1};
  CHECK(it.end() == finding::fine);
  CHECK(it.look() == finding::fine);
}

TEST_CASE("a change without a pin is found once, with the place of the last pin", "[checks]")
{
  cells it;
  CHECK(it.look() == finding::fine);  // nothing is known yet
  it.pin(true, 7);
  it.content[0] = std::byte{1};
  CHECK(it.look() == finding::fine);  // pinned
  CHECK_FALSE(it.all.is_watched(1));
  CHECK(it.end() == finding::fine);
  CHECK(it.all.is_watched(1));
  CHECK(it.all.last_pin(1).line == 7);
  it.content[31] = std::byte{2};
  CHECK(it.look() == finding::written_unpinned);
  CHECK(it.look() == finding::fine);
}

TEST_CASE("nothing is said of bytes that others change by right", "[checks]")
{
  cells it;
  it.pin(false);
  CHECK(it.end(false) == finding::fine);
  it.content[2] = std::byte{1};
  CHECK(it.look() == finding::fine);
  it.pin(true);
  CHECK(it.end() == finding::fine);
  it.all.forget(1);
  it.content[2] = std::byte{2};
  CHECK(it.look() == finding::fine);
  it.pin(true);
  CHECK(it.end() == finding::fine);
  it.all.forget_all();
  it.content[2] = std::byte{3};
  CHECK(it.look() == finding::fine);
}

}  // namespace pinned_cells_test
