// SPDX-License-Identifier: Apache-2.0
// check_cluster <file> <nodes> [<from> <to>]: checks the file of a cluster of <nodes> nodes, whose ports have rates.
// With two more numbers: the link <from> <to> is the slowest of all, and the opposite link is at least three times as
// fast. With -1 for <to>: each other port is at least three times as fast as the one out of <from>, and a lone flow
// gets the whole rate of that one.
#include <chunkmem/configurator/cluster_file.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

namespace {

using chunkmem::configurator::cluster;

int failures = 0;

void expect(bool holds, const char* what)
{
  if (holds) return;
  std::fprintf(stderr, "check_cluster: %s\n", what);
  ++failures;
}

void check_square(const cluster& whole, std::uint32_t nodes)
{
  expect(whole.nodes.size() == nodes, "there are more nodes, or fewer");
  expect(whole.spread.size() == std::size_t{nodes} * nodes, "the spread is not that of each link");
}

void check_ports(const cluster& whole)
{
  for (const chunkmem::configurator::cluster_node& it : whole.nodes)
    expect(it.port_out_bytes_per_second > 0 && it.port_in_bytes_per_second > 0, "a node has no rate of its port");
}

void check_slow_port(const cluster& whole, std::uint32_t slow)
{
  const double rate = whole.nodes[slow].port_out_bytes_per_second;
  for (std::uint32_t node = 0; node < whole.nodes.size(); ++node) {
    if (node == slow) continue;
    expect(whole.nodes[node].port_out_bytes_per_second > 3 * rate, "another port is not three times as fast");
    const double lone = whole.link(slow, node).bytes_per_second;
    expect(lone > 0.8 * rate && lone < 1.25 * rate, "a lone flow has not the rate of the port");
  }
}

void check_slow_link(const cluster& whole, std::uint32_t slow_from, std::uint32_t slow_to)
{
  const double slow = whole.link(slow_from, slow_to).bytes_per_second;
  for (std::uint32_t from = 0; from < whole.nodes.size(); ++from)
    for (std::uint32_t to = 0; to < whole.nodes.size(); ++to)
      if (from != to && (from != slow_from || to != slow_to))
        expect(whole.link(from, to).bytes_per_second > slow, "another link is slower than the slow one");
  expect(whole.link(slow_to, slow_from).bytes_per_second >= 3 * slow, "the other way is not three times as fast");
}

}  // namespace

int main(int count, char** arguments)
try {
  if (count != 3 && count != 5) throw std::runtime_error{"give <file> <nodes> [<from> <to>]"};
  const cluster whole = chunkmem::configurator::read_cluster(arguments[1]);
  const auto number = [&](int index) { return static_cast<std::uint32_t>(std::stoul(arguments[index])); };
  check_square(whole, number(2));
  check_ports(whole);
  if (count == 5 && failures == 0) {
    if (std::string{arguments[4]} == "-1")
      check_slow_port(whole, number(3));
    else
      check_slow_link(whole, number(3), number(4));
  }
  return failures == 0 ? 0 : 1;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "check_cluster: %s\n", failure.what());
  return 1;
}
