#include <chunkmem/workload/rank_share.hpp>

#include <support/catch.hpp>

#include <cstdint>

namespace rank_share_test {

using namespace chunkmem;
using namespace chunkmem::workload;

TEST_CASE("a rank has a device and its links whole, and a part of the host", "[workload]")
{
  const machine whole{"two nodes", 2, 8, bytes{1000}, bytes{9007}, {1e12, 2e9, 1e9, 3e9, 5e8, 8e9, 4e8, 1e9}};
  const rank_share share = share_of_rank(whole);
  CHECK(share.ranks == 16);
  CHECK(share.of_node == 8);
  CHECK(share.device_bytes == bytes{1000});
  CHECK(share.host_bytes == bytes{1125});  // rounded down: eight of them fit
  CHECK(share.rates == machine_rates{1e12, 2e9, 1e9, 3e9, 5e8, 1e9, 5e7, 1e9});
}

TEST_CASE("one device has all of its machine", "[workload]")
{
  const machine whole{"one", 1, 1, bytes{1000}, bytes{9007}, {1e12, 2e9, 1e9, 0, 0, 8e9, 4e8, 1e9}};
  CHECK(share_of_rank(whole) == rank_share{1, 1, bytes{1000}, bytes{9007}, whole.rates});
}

TEST_CASE("all shares together are never more than the machine", "[workload]")
{
  for (std::uint32_t devices = 1; devices <= 16; ++devices)
    for (std::uint64_t host = 1; host < 50; ++host) {
      const machine whole{"any", 1, devices, bytes{7}, bytes{host}, {1, 1, 1, devices > 1 ? 1.0 : 0.0, 0, 1, 1, 1}};
      const rank_share share = share_of_rank(whole);
      REQUIRE(share.host_bytes * devices <= whole.host_bytes);
      REQUIRE((share.host_bytes + bytes{1}) * devices > whole.host_bytes);
    }
}

TEST_CASE("a machine that cannot be has no shares", "[workload]")
{
  CHECK_THROWS_AS(share_of_rank(machine{}), config_error);
  CHECK_THROWS_AS(share_of_rank({"no devices", 1, 0, bytes{1}, bytes{1}, {1, 1, 1, 0, 0, 1, 1, 1}}), config_error);
}

}  // namespace rank_share_test
