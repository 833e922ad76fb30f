// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/stays.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/record_builder.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lease_tide_test {

using namespace chunkmem;
using namespace chunkmem::literals;

TEST_CASE("the tide comes down as far as the leases of a moment do", "[transfer]")
{
  support::record_builder build;
  const std::uint32_t all = build.lease(entry_kind::lease_device, 2048);  // access 0: two of eight frames
  const std::uint32_t more = build.lease(entry_kind::lease_device, 256);  // access 1: a part of a third
  build.release(all);
  // access 2: the third alone, but it is the lowest
  build.brief(0);
  build.release(more);
  build.brief(0);  // access 3: none
  transfer::lease_tide tide;
  REQUIRE(tide.read(build.finish({0}, 1), 8_KiB, 1_KiB));
  CHECK(tide.dry_frames(0) == 6);
  CHECK(tide.dry_frames(1) == 5);
  CHECK(tide.dry_frames(2) == 5);
  CHECK(tide.dry_frames(3) == 8);
  CHECK(tide.least_dry(0, 1) == 6);
  CHECK(tide.least_dry(3, 1) == 6);  // around the end
  CHECK(tide.least_dry(3, 3) == 5);  // all the way
}

TEST_CASE("leases that do not fit are told", "[transfer]")
{
  support::record_builder build;
  build.lease(entry_kind::lease_device, 4096);
  build.lease(entry_kind::lease_device, 4352);
  transfer::lease_tide tide;
  CHECK_FALSE(tide.read(build.finish({}, 0), 8_KiB, 1_KiB));
  CHECK(tide.read(build.finish({}, 0), 16_KiB, 1_KiB));
}

TEST_CASE("the least of a stretch is that of its moments", "[transfer]")
{
  support::dice dice{7};
  for (int round = 0; round < 100; ++round) {
    support::record_builder build;
    std::vector<std::uint32_t> open;
    for (std::uint32_t index = dice.between(2, 40); index > 0; --index) {
      while (!open.empty() && dice.one_in(2)) {
        std::swap(dice.pick(open), open.back());
        build.release(open.back());
        open.pop_back();
      }
      if (dice.one_in(2))
        open.push_back(build.lease(entry_kind::lease_device, 256 * std::uint64_t{dice.between(1, 9)}));
      else
        build.brief(0);
    }
    const access_record record = build.finish({0}, 1);
    transfer::lease_tide tide;
    REQUIRE(tide.read(record, 256_KiB, 1_KiB));
    const std::uint32_t begin = dice.below(record.size());
    const std::uint32_t end = dice.below(record.size());
    std::uint32_t least = UINT32_MAX;
    for (std::uint32_t now = begin; least == UINT32_MAX || now != end; now = (now + 1) % record.size())
      least = std::min(least, tide.dry_frames(now));
    REQUIRE(tide.least_dry(begin, end) == least);
  }
}

}  // namespace lease_tide_test
