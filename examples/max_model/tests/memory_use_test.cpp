// SPDX-License-Identifier: Apache-2.0
#include "memory_use.hpp"

#include <support/catch.hpp>

namespace memory_use_test {

using max_model::bytes;
using max_model::memory_use;
using max_model::taker;
using max_model::tier_use;

TEST_CASE("model data goes where room is, values first", "[max_model]")
{
  memory_use use;
  use.device = tier_use{bytes{100}};
  use.host = tier_use{bytes{50}};
  use.device.take(taker::activations, bytes{30});
  use.spread(bytes{40}, bytes{60});
  CHECK(use.device.of(taker::values) == bytes{40});
  CHECK(use.device.of(taker::states) == bytes{30});
  CHECK(use.host.of(taker::values) == bytes{});
  CHECK(use.host.of(taker::states) == bytes{30});
  CHECK(use.fits());
  CHECK(use.room() == bytes{20});
  use.spread(bytes{5}, bytes{16});
  CHECK(use.host.of(taker::values) == bytes{5});
  CHECK_FALSE(use.fits());
  CHECK(use.missing() == bytes{1});
  CHECK(use.room() == bytes{});
}

TEST_CASE("a tier that is too full has no room, and says what it misses", "[max_model]")
{
  tier_use tier{bytes{10}};
  tier.take(taker::program, bytes{7});
  CHECK(tier.room() == bytes{3});
  CHECK(tier.missing() == bytes{});
  tier.take(taker::set_aside, bytes{7});
  CHECK(tier.room() == bytes{});
  CHECK(tier.missing() == bytes{4});
  CHECK(tier.taken() == bytes{14});
}

TEST_CASE("a refusal is none of bytes", "[max_model]")
{
  memory_use use;
  CHECK(use.fits());
  use.refusal = "because";
  CHECK_FALSE(use.fits());
}

TEST_CASE("parts of bytes", "[max_model]")
{
  CHECK(max_model::part_of(bytes{1000}, 0.9) == bytes{900});
  CHECK(max_model::share_of(bytes{10}, 4) == bytes{3});
  CHECK(max_model::share_of(bytes{8}, 4) == bytes{2});
}

}  // namespace memory_use_test
