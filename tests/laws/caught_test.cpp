// SPDX-License-Identifier: Apache-2.0
#include <support/count_allocations.hpp>

#include <support/catch.hpp>
#include <support/figures.hpp>

#include "verdict.hpp"

#include <algorithm>
#include <cstddef>
#include <iomanip>
#include <iostream>
#include <string_view>

std::uint64_t laws::allocations_so_far()
{
  return support::allocations_so_far().all();
}

namespace caught_test {

namespace {

struct family {
  std::string_view name;
  const laws::verdicts& (*judged)();
};

constexpr family families[] = {
    {"eviction", laws::wrong_evictions},
    {"transfer", laws::wrong_transfers},
    {"placement", laws::wrong_placements},
    {"layout", laws::wrong_layouts},
    {"rules", laws::wrong_rules},
    {"gradient", laws::wrong_gradients},
    {"mover", laws::wrong_movers},
    {"sink", laws::wrong_sinks},
    {"ownership", laws::wrong_ownerships},
    {"communicator", laws::wrong_communicators},
    {"activation", laws::wrong_activations},
    {"pipeline", laws::wrong_schedules},
};

constexpr std::size_t least_of_family = 8;

void write_figure(double percent)
{
  support::write_figures("test_laws", "build/bench/bin/test_laws",
                         {{"edge.wrong_policies_caught_percent", percent, "%", "==", 100}});
}

}  // namespace

TEST_CASE("each family has eight wrong policies or more, and its laws name the mistake of each", "[laws]")
{
  REQUIRE(support::counts_allocations);
  std::size_t caught = 0;
  std::size_t total = 0;
  for (const family& each : families) {
    INFO("family " << each.name);
    const laws::verdicts& all = each.judged();
    const auto of_family = static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [](const laws::verdict& one) { return one.is_caught(); }));
    std::cout << std::left << std::setw(13) << each.name << std::right << std::setw(3) << of_family << " of "
              << std::setw(2) << all.size() << " wrong policies are caught\n";
    for (const laws::verdict& one : all) {
      CAPTURE(one.policy, one.law, one.said);
      CHECK(one.is_caught());
      std::cout << "  " << one.policy << ": " << one.said.substr(0, one.said.find('\n')) << '\n';
    }
    CHECK(all.size() >= least_of_family);
    caught += of_family;
    total += all.size();
  }
  CHECK(caught == total);
  write_figure(100.0 * static_cast<double>(caught) / static_cast<double>(total));
}

TEST_CASE("no two wrong policies of a family have one name", "[laws]")
{
  for (const family& each : families)
    for (const laws::verdict& one : each.judged()) {
      CAPTURE(each.name, one.policy);
      const laws::verdicts& all = each.judged();
      CHECK(std::count_if(all.begin(), all.end(),
                          [&](const laws::verdict& other) { return other.policy == one.policy; }) == 1);
    }
}

}  // namespace caught_test
