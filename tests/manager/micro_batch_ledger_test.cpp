// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/owner_link.hpp>

#include <support/catch.hpp>

#include <cstdint>

namespace micro_batch_ledger_test {

using Catch::Matchers::ContainsSubstring;
using chunkmem::micro_batch_ledger;

TEST_CASE("an iteration is complete when each of its micro-batches was named, in any order and as often as it is",
          "[manager]")
{
  for (const std::uint32_t count : {2U, 3U, 64U, 65U, 65535U}) {
    micro_batch_ledger it;
    it.reserve(count);
    it.begin(count);
    for (std::uint32_t index = count; index-- > 1;) {
      it.name(index);
      it.name(index);
    }
    CHECK_FALSE(it.is_complete());
    CHECK_THROWS_WITH(it.expect_complete(),
                      ContainsSubstring("an iteration of " + std::to_string(count) + " micro-batches ended after " +
                                        std::to_string(count - 1) + " of them"));
    it.name(0);
    CHECK(it.is_complete());
    it.expect_complete();
    it.begin(count);
    CHECK_FALSE(it.is_complete());
  }
}

TEST_CASE("moments tell iterations and their micro-batches apart", "[manager]")
{
  micro_batch_ledger it;
  CHECK(it.moment() == 1);
  CHECK_FALSE(it.expects_more());
  it.reserve(65'535);
  it.begin(65'535);
  const std::uint64_t first = it.moment();
  CHECK(first >> 16 != 0);
  it.name(65'534);
  CHECK(it.moment() == first + 65'534);
  CHECK(it.moment() >> 16 == first >> 16);
  CHECK(it.expects_more());
  CHECK_THROWS_WITH(it.expect_no_more(first),
                    ContainsSubstring("an optimizer step after 1 of the 65535 micro-batches"));
  it.expect_no_more(1);  // the gradients are of another iteration
  it.end();
  CHECK_FALSE(it.expects_more());
  it.expect_no_more(first);
  it.begin(2);
  it.expect_no_more(it.moment());  // before the first micro-batch
  it.begin(1);
  CHECK(it.moment() >> 16 == (first >> 16) + 2);
  CHECK_FALSE(it.expects_more());
}

TEST_CASE("an iteration of one micro-batch need not name it", "[manager]")
{
  micro_batch_ledger it;
  CHECK(it.is_complete());
  it.reserve(1);
  it.begin(1);
  CHECK(it.is_complete());
  it.name(0);
  CHECK(it.is_complete());
}

TEST_CASE("what an iteration's end could not say is said once", "[manager]")
{
  micro_batch_ledger it;
  it.expect_told();
  it.reserve(4);
  it.begin(4);
  it.name(2);
  it.expect_told();
  it.keep();
  it.reserve(9);
  it.begin(9);  // the one after it
  CHECK_THROWS_WITH(it.expect_told(), ContainsSubstring("an iteration of 4 micro-batches ended after 1 of them"));
  it.expect_told();
}

}  // namespace micro_batch_ledger_test
