// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "node_places.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace probe_links {

/// Rounds in which each of `players` meets each other player once, many pairs at the same time.
[[nodiscard]] constexpr std::uint32_t rounds_among(std::uint32_t players) noexcept
{
  return players < 2 ? 0 : players + players % 2 - 1;
}

/// The opponent of a player in a round. Of an odd number of players, one has no opponent.
/// Source: the circle method of round-robin tournaments: one player stays, the others turn around it.
[[nodiscard]] constexpr std::optional<std::uint32_t> opponent_of(std::uint32_t player, std::uint32_t players,
                                                                 std::uint32_t round) noexcept
{
  const std::uint32_t rounds = rounds_among(players);
  if (round >= rounds) return {};
  const std::uint32_t staying = rounds;  // the last player, or nobody
  std::uint32_t other = player == staying ? round : (2 * round + rounds - player) % rounds;
  if (other == player) other = staying;
  return other < players ? std::optional{other} : std::nullopt;
}

/// A meeting of two ranks from the side of one of them. Either this rank sends, or its peer does.
struct meeting {
  std::uint32_t from_node = 0;
  std::uint32_t to_node = 0;
  std::uint32_t peer = 0;  ///< the rank at the other end
  bool sends = false;
};

/// The meetings of one rank, phase by phase. In a phase without a meeting the rank has no partner.
///
/// All ranks have the same number of phases. A phase has disjoint pairs of nodes, and one direction of each pair. The
/// first devices of both nodes take part, so that a flow has its link alone. The last phases have the pairs of devices
/// inside of each node.
[[nodiscard]] inline std::vector<std::optional<meeting>> meetings_of(const node_places& places, std::uint32_t rank)
{
  const std::uint32_t node = places.node_of[rank];
  const std::uint32_t place = rank - places.first_of[node];
  std::vector<std::optional<meeting>> all;
  const auto add = [&](std::optional<std::uint32_t> other_node, std::uint32_t other_place) {
    for (const bool upwards : {true, false}) {
      all.emplace_back();
      if (!other_node || other_place >= places.devices[*other_node]) continue;
      const std::uint32_t peer = places.first_of[*other_node] + other_place;
      const bool sends = (rank < peer) == upwards;
      all.back() = {sends ? node : *other_node, sends ? *other_node : node, peer, sends};
    }
  };
  for (std::uint32_t round = 0; round < rounds_among(places.nodes()); ++round)
    add(place == 0 ? opponent_of(node, places.nodes(), round) : std::nullopt, 0);
  for (std::uint32_t round = 0; round < rounds_among(places.most_devices()); ++round) {
    const std::optional<std::uint32_t> other = opponent_of(place, places.devices[node], round);
    add(other ? std::optional{node} : std::nullopt, other.value_or(0));
  }
  return all;
}

}  // namespace probe_links
