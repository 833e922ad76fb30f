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

}  // namespace machine_test
