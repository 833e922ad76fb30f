// SPDX-License-Identifier: Apache-2.0
#include <support/catch.hpp>

#include "meetings.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace meetings_test {

using namespace probe_links;
using Catch::Matchers::ContainsSubstring;

namespace {

using pair_of_ranks = std::pair<std::uint32_t, std::uint32_t>;

/// The first rank on the node of each rank, for nodes with these numbers of devices.
std::vector<std::uint32_t> ranks_of(const std::vector<std::uint32_t>& devices)
{
  std::vector<std::uint32_t> firsts;
  for (const std::uint32_t count : devices)
    firsts.insert(firsts.end(), count, static_cast<std::uint32_t>(firsts.size()));
  return firsts;
}
node_places places_with(const std::vector<std::uint32_t>& devices)
{
  return places_of(ranks_of(devices), false);
}

/// The number of sends from each rank to each other one. Checks that both ends agree on each phase.
std::map<pair_of_ranks, int> sends_of(const node_places& places)
{
  const auto ranks = static_cast<std::uint32_t>(places.node_of.size());
  std::vector<std::vector<std::optional<meeting>>> all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) all.push_back(meetings_of(places, rank));
  std::map<pair_of_ranks, int> sends;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    REQUIRE(all[rank].size() == all[0].size());
    for (std::size_t phase = 0; phase < all[rank].size(); ++phase) {
      if (!all[rank][phase]) continue;
      const meeting& mine = *all[rank][phase];
      REQUIRE(mine.peer < ranks);
      REQUIRE(mine.peer != rank);
      REQUIRE(all[mine.peer][phase]);
      const meeting& theirs = *all[mine.peer][phase];
      CHECK(theirs.peer == rank);
      CHECK(theirs.sends != mine.sends);
      CHECK(places.node_of[rank] == (mine.sends ? mine.from_node : mine.to_node));
      CHECK(theirs.from_node == mine.from_node);
      CHECK(theirs.to_node == mine.to_node);
      if (mine.sends) ++sends[{rank, mine.peer}];
    }
  }
  return sends;
}

/// In each phase, all senders of a node send to one node, and that node sends nothing.
void check_directions(const node_places& places)
{
  std::map<std::size_t, std::map<std::uint32_t, std::set<pair_of_ranks>>> ends;  // of a phase and a node
  for (std::uint32_t rank = 0; rank < places.node_of.size(); ++rank) {
    const auto all = meetings_of(places, rank);
    for (std::size_t phase = 0; phase < all.size(); ++phase)
      if (all[phase]) ends[phase][places.node_of[rank]].emplace(all[phase]->from_node, all[phase]->to_node);
  }
  for (const auto& [phase, nodes] : ends)
    for (const auto& [node, links] : nodes) CHECK(links.size() == 1);
}

}  // namespace

TEST_CASE("every pair meets once, and as many pairs as can be meet at once", "[probe_links]")
{
  for (std::uint32_t players = 0; players <= 17; ++players) {
    std::set<pair_of_ranks> met;
    for (std::uint32_t round = 0; round < rounds_among(players); ++round) {
      std::uint32_t alone = 0;
      for (std::uint32_t player = 0; player < players; ++player) {
        const auto other = opponent_of(player, players, round);
        if (!other) {
          ++alone;
          continue;
        }
        CHECK(*other != player);
        CHECK(opponent_of(*other, players, round) == player);
        CHECK(met.emplace(player, *other).second);
      }
      CHECK(alone == players % 2);
    }
    CHECK(met.size() == std::size_t{players} * (players == 0 ? 0 : players - 1));
    CHECK_FALSE(opponent_of(0, players, rounds_among(players)));
  }
}

TEST_CASE("the first device sends to that of every other node, and each device to all of its own", "[probe_links]")
{
  for (const std::vector<std::uint32_t>& devices :
       std::vector<std::vector<std::uint32_t>>{{1, 1}, {1, 1, 1, 1, 1}, {4}, {3, 3}, {2, 4, 1}, {5, 2, 2, 3}}) {
    const node_places places = places_with(devices);
    const std::map<pair_of_ranks, int> sends = sends_of(places);
    std::size_t expected = 0;
    for (std::uint32_t from = 0; from < places.node_of.size(); ++from)
      for (std::uint32_t to = 0; to < places.node_of.size(); ++to) {
        const bool same_node = places.node_of[from] == places.node_of[to];
        const auto place = [&](std::uint32_t rank) { return rank - places.first_of[places.node_of[rank]]; };
        const bool meets = from != to && (same_node || (place(from) == 0 && place(to) == 0));
        const auto found = sends.find({from, to});
        CHECK((found == sends.end() ? 0 : found->second) == (meets ? 1 : 0));
        expected += meets ? 1 : 0;
      }
    CHECK(sends.size() == expected);
    check_directions(places);
  }
}

TEST_CASE("nodes are runs of ranks that share memory", "[probe_links]")
{
  const node_places places = places_with({2, 1, 3});
  CHECK(places.node_of == std::vector<std::uint32_t>{0, 0, 1, 2, 2, 2});
  CHECK(places.first_of == std::vector<std::uint32_t>{0, 2, 3});
  CHECK(places.devices == std::vector<std::uint32_t>{2, 1, 3});
  CHECK(places.sharing == std::vector<std::uint32_t>{2, 1, 3});
  CHECK(places.most_devices() == 3);
}

TEST_CASE("each rank is a node where the user says so, and shares its memory all the same", "[probe_links]")
{
  const node_places places = places_of({0, 1, 0}, true);
  CHECK(places.node_of == std::vector<std::uint32_t>{0, 1, 2});
  CHECK(places.devices == std::vector<std::uint32_t>{1, 1, 1});
  CHECK(places.sharing == std::vector<std::uint32_t>{2, 1, 2});
}

TEST_CASE("a node whose ranks are not in a row is refused", "[probe_links]")
{
  CHECK_THROWS_WITH(places_of({0, 1, 0, 1}, false),
                    ContainsSubstring("rank 2 is on the node of rank 0, and rank 1 is not"));
}

}  // namespace meetings_test
