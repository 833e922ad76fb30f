// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/retention_exchange.hpp>

#include <support/catch.hpp>
#include <support/oracles/fewest_moved_bytes.hpp>
#include <support/oracles/retention_trace.hpp>

#include <cstdint>

namespace retention_exchange_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::kept_gaps;
using transfer::retention_exchange;
using transfer::retention_problem;
using transfer::row_prices;
using transfer::use_kind;

TEST_CASE("an exchange drops what is in the way of something better", "[transfer]")
{
  // Room for one of two: the chunk of 2 saves more than the chunk of 1 that is there.
  retention_trace what{{1, 2, 1}, {}, std::vector<std::uint64_t>(8, 3), false};
  what.use(0, 0, use_kind::read);
  what.use(1, 1, use_kind::read);
  what.use(2, 3, use_kind::read);
  what.use(1, 5, use_kind::read);
  what.use(0, 7, use_kind::read);
  const retention_problem problem{what.input()};
  REQUIRE(problem.gaps().size() == 2);
  kept_gaps choice{problem};
  choice.keep(0);
  retention_exchange exchange{problem, row_prices{problem.room().size()}};
  CHECK(exchange.improve(choice, 0) == 0);
  CHECK(choice.is_kept(0));
  CHECK(exchange.improve(choice, 100) > 0);
  CHECK_FALSE(choice.is_kept(0));
  CHECK(choice.is_kept(1));
}

TEST_CASE("exchanges never move more, and what they leave fits", "[transfer]")
{
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice random{seed};
    const retention_trace what = support::roll_small_trace(random, {seed % 2 == 0, true, seed % 3 == 0});
    const transfer::retention_input input = what.input();
    const retention_problem problem{input};
    kept_gaps choice{problem};
    for (std::uint32_t which = 0; which < problem.gaps().size(); ++which)  // badly: in the order of chunks
      if (choice.fits(which)) choice.keep(which);
    before += choice.moved_bytes();
    const std::uint64_t had = choice.moved_bytes();
    retention_exchange{problem, row_prices{problem.room().size()}}.improve(choice, 1'000);
    after += choice.moved_bytes();
    CHECK(choice.moved_bytes() <= had);
    CHECK(problem.constant_bytes() + choice.moved_bytes() >= support::fewest_moved_bytes{input}());
    for (std::uint32_t which = 0; which < problem.gaps().size(); ++which) CHECK(choice.room_over(which) >= 0);
  }
  CHECK(after < before * 9 / 10);
}

}  // namespace retention_exchange_test
