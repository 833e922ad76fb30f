// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/tier_ledger.hpp>

#include <support/catch.hpp>

#include <array>

namespace tier_ledger_test {

using namespace chunkmem;

TEST_CASE("the books know what is live, where it lies and what is left", "[backend]")
{
  std::array<std::byte, 64> memory{};
  backend::tier_ledger books{bytes{40}, bytes{100}};
  books.require(tier::device, bytes{40});
  books.add(tier::device, memory.data(), bytes{30});
  CHECK(books.live(tier::device) == bytes{30});
  CHECK(books.live(tier::host) == bytes{0});
  CHECK_NOTHROW(books.require(tier::device, bytes{10}));
  CHECK_THROWS_AS(books.require(tier::device, bytes{11}), out_of_memory);

  CHECK(books.holding(memory.data(), bytes{30}) != nullptr);
  CHECK(books.holding(memory.data() + 29, bytes{1}) != nullptr);
  CHECK(books.holding(memory.data() + 29, bytes{2}) == nullptr);
  CHECK(books.holding(memory.data() + 30, bytes{1}) == nullptr);
  CHECK(books.holding(memory.data() + 1, bytes{UINT64_MAX}) == nullptr);

  CHECK(books.remove(tier::host, memory.data()) == bytes{0});  // the wrong tier
  CHECK(books.remove(tier::device, memory.data() + 1) == bytes{0});
  CHECK(books.unknown_releases() == 2);
  CHECK(books.remove(tier::device, nullptr) == bytes{0});
  CHECK(books.unknown_releases() == 2);
  CHECK(books.remove(tier::device, memory.data()) == bytes{30});
  CHECK(books.live(tier::device) == bytes{0});
  CHECK(books.allocations().empty());
}

TEST_CASE("a refusal says what would have been needed and never wraps", "[backend]")
{
  std::byte memory{};
  backend::tier_ledger books{bytes{10}, bytes{UINT64_MAX}};
  books.require(tier::host, bytes{5});
  books.add(tier::host, &memory, bytes{5});
  try {
    books.require(tier::host, bytes{UINT64_MAX});
    FAIL("not refused");
  } catch (const out_of_memory& refused) {
    CHECK(refused.shortage().needed == UINT64_MAX);
    CHECK(refused.shortage().pinned == 5);
    CHECK(refused.shortage().taken == 5);
  }
}

}  // namespace tier_ledger_test
