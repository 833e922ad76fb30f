// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/workload/machine.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <limits>
#include <string>

namespace machine_test {

using namespace chunkmem;
using namespace chunkmem::workload;
using Catch::Matchers::ContainsSubstring;

namespace {

machine good()
{
  return {"two nodes", 2, 4, bytes{1000}, bytes{9000}, {1e12, 2e9, 1e9, 3e9, 5e8, 8e9, 1e8, 1e9}};
}

}  // namespace

TEST_CASE("a machine adds up", "[workload]")
{
  CHECK(good().problem().member.empty());
  CHECK_NOTHROW(good().check());
  CHECK(good().ranks() == 8);
  CHECK(good().memory() == bytes{2 * (4 * 1000 + 9000)});
  machine huge = good();
  huge.host_bytes = bytes{UINT64_MAX - 1000};
  CHECK_THROWS_AS(huge.memory(), size_overflow);
  huge.nodes = huge.devices = UINT32_MAX;
  CHECK(huge.ranks() == std::uint64_t{UINT32_MAX} * UINT32_MAX);
}

TEST_CASE("what cannot be is named: a machine without parts", "[workload]")
{
  const auto check = [](const machine& it, const std::string& member) {
    CAPTURE(member);
    CHECK(it.problem().member == member);
    CHECK_THROWS_AS(it.check(), config_error);
    CHECK_THROWS_WITH(it.check(),
                      ContainsSubstring("cannot be: " + member + " is") && ContainsSubstring("(change it)"));
  };
  machine it = good();
  it.name.clear();
  check(it, "name");
  it = good(), it.nodes = 0;
  check(it, "nodes");
  it = good(), it.devices = 0;
  check(it, "devices");
  it = good(), it.device_bytes = bytes{};
  check(it, "device_bytes");
  it = good(), it.host_bytes = bytes{};
  check(it, "host_bytes");
}

TEST_CASE("a machine of more ranks than are counted is refused by its member", "[workload]")
{
  machine it = good();
  it.nodes = static_cast<std::uint32_t>(machine::most_ranks) / it.devices;
  CHECK(it.problem().member.empty());
  ++it.nodes;
  CHECK(it.problem().member == "devices");
  CHECK_THROWS_WITH(it.check(), ContainsSubstring("devices makes more than 2^20 ranks with all nodes"));
  it.nodes = UINT32_MAX, it.devices = UINT32_MAX;
  CHECK(it.problem().member == "nodes");
  CHECK_THROWS_WITH(it.check(), ContainsSubstring("nodes is above 2^20"));
}

TEST_CASE("each rate is a number above 0, or 0 where it leads nowhere", "[workload]")
{
  struct rate {
    double machine_rates::*member;
    std::string name;
  };
  const rate all[] = {{&machine_rates::device_flops_per_second, "device_flops_per_second"},
                      {&machine_rates::to_device_bytes_per_second, "to_device_bytes_per_second"},
                      {&machine_rates::to_host_bytes_per_second, "to_host_bytes_per_second"},
                      {&machine_rates::peer_bytes_per_second, "peer_bytes_per_second"},
                      {&machine_rates::network_bytes_per_second, "network_bytes_per_second"},
                      {&machine_rates::host_memory_bytes_per_second, "host_memory_bytes_per_second"},
                      {&machine_rates::host_updates_per_second, "host_updates_per_second"},
                      {&machine_rates::device_updates_per_second, "device_updates_per_second"}};
  for (const rate& which : all) {
    for (const double wrong :
         {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      machine it = good();
      it.rates.*which.member = wrong;
      CAPTURE(which.name, wrong);
      CHECK(it.problem().member == which.name);
      CHECK_THROWS_AS(it.check(), config_error);
    }
  }
  machine alone = good();
  alone.devices = 1;
  CHECK(alone.problem().member == "peer_bytes_per_second");
  alone.rates.peer_bytes_per_second = 0;
  CHECK(alone.problem().member.empty());
  alone.nodes = 1;
  CHECK(alone.problem().member == "network_bytes_per_second");
  alone.rates.network_bytes_per_second = 0;
  CHECK(alone.problem().member.empty());
}

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

TEST_CASE("a share that nobody could have is refused", "[workload]")
{
  const machine_rates rates{1, 1, 1, 1, 0, 1, 1, 1};
  CHECK_NOTHROW(rank_share{2, 2, bytes{1}, bytes{1}, rates}.check());
  CHECK_NOTHROW(share_of_rank({"two", 2, 1, bytes{1}, bytes{1}, {1, 1, 1, 0, 1, 1, 1, 1}}).check());
  CHECK_THROWS_AS((rank_share{0, 2, bytes{1}, bytes{1}, rates}.check()), config_error);
  CHECK_THROWS_AS((rank_share{2, 0, bytes{1}, bytes{1}, rates}.check()), config_error);
  using Catch::Matchers::ContainsSubstring;
  CHECK_NOTHROW(rank_share{machine::most_ranks, 2, rank_share::most_bytes, rank_share::most_bytes, rates}.check());
  CHECK_THROWS_WITH((rank_share{machine::most_ranks + 1, 2, bytes{1}, bytes{1}, rates}.check()),
                    ContainsSubstring("ranks is above 2^20"));
  CHECK_THROWS_WITH((rank_share{UINT64_MAX, 2, bytes{1}, bytes{1}, rates}.check()),
                    ContainsSubstring("ranks is above 2^20"));
  CHECK_THROWS_WITH((rank_share{1, 1, rank_share::most_bytes + bytes{1}, bytes{1}, rates}.check()),
                    ContainsSubstring("device_bytes is above 2^60"));
  CHECK_THROWS_WITH((rank_share{1, 1, bytes{1}, bytes{UINT64_MAX}, rates}.check()),
                    ContainsSubstring("host_bytes is above 2^60"));
  for (double machine_rates::*which :
       {&machine_rates::device_flops_per_second, &machine_rates::to_device_bytes_per_second,
        &machine_rates::to_host_bytes_per_second, &machine_rates::peer_bytes_per_second,
        &machine_rates::host_memory_bytes_per_second, &machine_rates::host_updates_per_second,
        &machine_rates::device_updates_per_second})
    for (const double wrong :
         {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      rank_share share{2, 2, bytes{1}, bytes{1}, rates};
      share.rates.*which = wrong;
      CHECK_THROWS_AS(share.check(), config_error);
    }
}

}  // namespace machine_test
