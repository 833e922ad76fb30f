// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace probe_links {

/// True for a link with two ends: a node of one device has no link to itself.
[[nodiscard]] inline bool is_measured(const chunkmem::configurator::cluster& whole, std::uint32_t from,
                                      std::uint32_t to)
{
  return from != to || whole.nodes[from].devices > 1;
}

/// A table of all links: a row for each sending node.
template <class Number>
void print_square(std::FILE* out, const char* title, const chunkmem::configurator::cluster& whole, Number number)
{
  const auto nodes = static_cast<std::uint32_t>(whole.nodes.size());
  std::fprintf(out, "\n%s\n%9s", title, "from, to");
  for (std::uint32_t to = 0; to < nodes; ++to) std::fprintf(out, " %9u", to);
  for (std::uint32_t from = 0; from < nodes; ++from) {
    std::fprintf(out, "\n%9u", from);
    for (std::uint32_t to = 0; to < nodes; ++to)
      if (is_measured(whole, from, to))
        std::fprintf(out, " %9.4g", number(from, to));
      else
        std::fprintf(out, " %9s", "-");
  }
  std::fprintf(out, "\n");
}

/// The links and how much they vary.
inline void print_links(std::FILE* out, const chunkmem::configurator::cluster& whole)
{
  const auto nodes = static_cast<std::uint32_t>(whole.nodes.size());
  std::fprintf(out, "%s, nodes: %u, devices: %u\n", whole.name.c_str(), nodes, whole.ranks());
  print_square(out, "rate of a lone flow, median [MB/s]", whole,
               [&](std::uint32_t from, std::uint32_t to) { return whole.links(from, to).bytes_per_second * 1e-6; });
  print_square(out, "latency: half of a round trip, median [us]", whole,
               [&](std::uint32_t from, std::uint32_t to) { return whole.links(from, to).latency * 1e6; });
  std::fprintf(out, "\narithmetic that messages take from a device: of each [us], of 1 MB [ms]\n");
  for (std::uint32_t node = 0; node < nodes; ++node)
    std::fprintf(out, "%9u %9.4g %9.4g\n", node, whole.nodes[node].message_work.seconds_per_message * 1e6,
                 whole.nodes[node].message_work.seconds_per_byte * 1e9);
  std::fprintf(out, "\nport of each node, with all its flows: out, in [MB/s]\n");
  for (std::uint32_t node = 0; node < nodes; ++node)
    std::fprintf(out, "%9u %9.4g %9.4g\n", node, whole.nodes[node].port_out_bytes_per_second * 1e-6,
                 whole.nodes[node].port_in_bytes_per_second * 1e-6);
  print_square(out, "spread of the rates: largest less smallest, as a part of the median [%]", whole,
               [&](std::uint32_t from, std::uint32_t to) { return whole.spread[from * nodes + to] * 100; });
}

/// One sentence on the links whose rate varied by more than 20 %; empty where there is none.
[[nodiscard]] inline std::string warning_of(const chunkmem::configurator::cluster& whole)
{
  const auto nodes = static_cast<std::uint32_t>(whole.nodes.size());
  const auto count = std::ranges::count_if(whole.spread, [](double part) { return part > 0.2; });
  if (count == 0) return {};
  const auto worst = static_cast<std::size_t>(std::ranges::max_element(whole.spread) - whole.spread.begin());
  return "the rate of " + std::to_string(count) + (count == 1 ? " link" : " links") +
         " varied by more than 20 %, most from node " + std::to_string(worst / nodes) + " to node " +
         std::to_string(worst % nodes) + ": " + std::to_string(static_cast<long>(whole.spread[worst] * 100)) +
         " % (measure while the cluster is idle, or with more --rounds)";
}

}  // namespace probe_links
