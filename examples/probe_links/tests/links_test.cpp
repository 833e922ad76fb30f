// SPDX-License-Identifier: Apache-2.0
#include <support/catch.hpp>

#include "link_probe.hpp"
#include "message_probe.hpp"
#include "node_probe.hpp"
#include "port_probe.hpp"

#include <optional>
#include <vector>

namespace links_test {

using namespace probe_links;
using Catch::Matchers::ContainsSubstring;

namespace {

node_places two_nodes()
{
  return places_of({0, 0, 2, 2}, false);
}

/// The measured numbers of four devices.
std::vector<double> words_of(double flops_of_second_node)
{
  std::vector<double> words;
  for (int rank = 0; rank < 4; ++rank) {
    const double rate = rank < 2 ? 1e10 : flops_of_second_node;
    const device_numbers it{
        .flops = {rate / 4, rate / 2, rate * 3 / 4, rate * 2, rate}, .copies = 4e9, .updates = 1e8, .memory = 16e9};
    const std::vector<double> mine = it.words();
    words.insert(words.end(), mine.begin(), mine.end());
  }
  return words;
}

}  // namespace

TEST_CASE("a link is as fast as the slowest device, and has the median of its rounds", "[probe_links]")
{
  // from, to, phase, round trip, three rounds: two devices send together
  const std::vector<double> records{0, 1, 0, 2e-6, 1.0, 2.0, 4.0,  //
                                    0, 1, 0, 4e-6, 2.0, 1.0, 1.0,  //
                                    1, 0, 1, 6e-6, 0.5, 0.5, 0.5,  //
                                    1, 1, 2, 1e-6, 0.1, 0.1, 0.1,  // the devices of one node, in two phases
                                    1, 1, 3, 1e-6, 0.2, 0.2, 0.2};
  const measured_links found = links_of(records, 2, 8, 3);
  CHECK(found.links(0, 1).bytes_per_second == 4.0);  // of 2, 2 and 4 s
  CHECK(found.links(0, 1).latency == 2e-6);
  CHECK(found.spread[1] == 0.5);
  CHECK(found.links(1, 0).bytes_per_second == 16.0);
  CHECK(found.links(1, 0).latency == 3e-6);
  CHECK(found.spread[2] == 0.0);
  CHECK(found.links(1, 1).bytes_per_second == 80.0);
  CHECK(found.spread[3] == 0.5);
}

TEST_CASE("a port has the bytes of all flows until the first one ends", "[probe_links]")
{
  // node, direction, then 16 pieces of one round: a fast flow and a slow one, of pieces of 4 B
  std::vector<double> records{0, 1};
  for (int piece = 1; piece <= 16; ++piece) records.push_back(piece * 0.5);
  records.insert(records.end(), {0, 1});
  for (int piece = 1; piece <= 16; ++piece) records.push_back(piece * 2.0);
  records.insert(records.end(), {1, 0});
  for (int piece = 1; piece <= 16; ++piece) records.push_back(piece * 0.25);
  const std::vector<port_rates> found = port_rates_of(records, 2, 64, 1);
  CHECK(found[0].out == 4 * (16 + 4) / 8.0);  // 16 pieces of the one and 4 of the other, in 8 s
  CHECK(found[0].in == 0);
  CHECK(found[1].in == 16.0);
}

TEST_CASE("flows that load a port are those of each device, to all other nodes in turn", "[probe_links]")
{
  const node_places places = places_of({0, 0, 0, 3, 4, 4}, false);  // three devices, one, two
  CHECK(flows_of_port(places, 0, true) == std::vector<port_flow>{{0, 3}, {1, 4}, {2, 3}});
  CHECK(flows_of_port(places, 1, true) == std::vector<port_flow>{{3, 4}, {3, 0}});
  CHECK(flows_of_port(places, 2, false) == std::vector<port_flow>{{0, 4}, {3, 5}});
  const node_places many = places_of({0, 1, 2, 3, 4, 5, 6}, false);
  CHECK(flows_of_port(many, 5, true) == std::vector<port_flow>{{5, 6}, {5, 0}, {5, 1}, {5, 2}});
}

TEST_CASE("nodes whose ports differ by more than a tenth are of different kinds", "[probe_links]")
{
  const std::vector<cluster_node> nodes(4, cluster_node{.kind = "node"});
  const auto made = with_ports(nodes, {{100, 90}, {105, 88}, {50, 90}, {52, 93}});
  CHECK(made[0] == made[1]);
  CHECK(made[2] == made[3]);
  CHECK(made[0].kind == "node");
  CHECK(made[2].kind == "node-port-2");
  CHECK(made[2].port_out_bytes_per_second == 50);
}

TEST_CASE("a measured node adds what its devices share, and halves its memory", "[probe_links]")
{
  const std::vector<cluster_node> nodes = measured_nodes(two_nodes(), words_of(2e10), {});
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0].kind == "node-0");
  CHECK(nodes[1].kind == "node-1");
  CHECK(nodes[1].devices == 2);
  CHECK(nodes[1].device_flops_per_second == 2e10);
  CHECK(nodes[1].to_device_bytes_per_second == 4e9);
  CHECK(nodes[1].host_memory_bytes_per_second == 16e9);
  CHECK(nodes[1].host_updates_per_second == 2e8);
  CHECK(nodes[1].device_updates_per_second == 1e8);
  CHECK(nodes[1].device_bytes.count() == 4'000'000'000);
  CHECK(nodes[1].host_bytes.count() == 8'000'000'000);
}

TEST_CASE("a measured node says which part of its rate products of each size reach", "[probe_links]")
{
  const std::vector<cluster_node> nodes = measured_nodes(two_nodes(), words_of(2e10), {});
  REQUIRE(nodes[1].product_curve.size() == product_widths.size());
  CHECK(nodes[1].product_curve.front() == chunkmem::configurator::product_efficiency{.flops = 8192, .part = 0.25});
  CHECK(nodes[1].product_curve[3].part == 2);
  CHECK(nodes[1].product_curve.back() == chunkmem::configurator::product_efficiency{.flops = 33'554'432, .part = 1});
}

TEST_CASE("a device loses the processor time of its messages where no processor is left for them", "[probe_links]")
{
  CHECK(detail::lost_per_processor_second(2) == 0);
  CHECK(detail::lost_per_processor_second(1) == 1);
  CHECK(detail::lost_per_processor_second(1.5) == 0.5);
  CHECK(detail::lost_per_processor_second(0.25) == 4);
  // Four ranks have ten messages in a gather.
  const message_work found = detail::work_of(4, 50e-6, 450e-6, 100'000, 4);
  CHECK(found.seconds_per_message == Catch::Approx(20e-6));
  CHECK(found.seconds_per_byte == Catch::Approx(16e-9));
  CHECK(detail::work_of(4, 50e-6, 40e-6, 100'000, 4).seconds_per_byte == 0);  // noise
}

TEST_CASE("a measured node has the middle of what messages take from its devices", "[probe_links]")
{
  std::vector<double> words;
  for (const double scale : {1.0, 4.0, 2.0}) {
    const std::vector<double> mine = device_numbers{
        .flops = {1e10, 1e10, 1e10, 1e10, 1e10},
        .copies = 4e9,
        .updates = 1e8,
        .memory = 16e9,
        .messages = {scale, 10 * scale}}.words();
    words.insert(words.end(), mine.begin(), mine.end());
  }
  const std::vector<cluster_node> nodes = measured_nodes(places_of({0, 0, 0}, false), words, {});
  CHECK(nodes[0].message_work == message_work{.seconds_per_message = 2, .seconds_per_byte = 20});
}

TEST_CASE("nodes that share memory divide it", "[probe_links]")
{
  const std::vector<cluster_node> nodes = measured_nodes(places_of({0, 0, 2, 2}, true), words_of(1e10), {});
  REQUIRE(nodes.size() == 4);
  CHECK(nodes[3].device_bytes.count() == 4'000'000'000);
  CHECK(nodes[3].host_bytes.count() == 4'000'000'000);
}

TEST_CASE("nodes that differ by less than 5 % are of one kind", "[probe_links]")
{
  const std::vector<cluster_node> near = measured_nodes(two_nodes(), words_of(1.04e10), {});
  CHECK(near[0] == near[1]);
  const std::vector<cluster_node> far = measured_nodes(two_nodes(), words_of(1.06e10), {});
  CHECK(far[0].kind != far[1].kind);
}

TEST_CASE("the memory of a device is the user's choice, up to all of the node", "[probe_links]")
{
  const std::vector<cluster_node> nodes = measured_nodes(two_nodes(), words_of(1e10), 1'000'000);
  CHECK(nodes[0].device_bytes.count() == 1'000'000);
  CHECK(nodes[0].host_bytes.count() == 15'998'000'000);
  CHECK_THROWS_WITH(measured_nodes(two_nodes(), words_of(1e10), 8'000'000'000),
                    ContainsSubstring("leaves the host nothing"));
}

TEST_CASE("a machine describes nodes that have its devices", "[probe_links]")
{
  chunkmem::workload::machine machine{.name = "two devices", .devices = 2, .device_bytes{}, .host_bytes{}, .rates{}};
  machine.rates.device_flops_per_second = 1e14;
  const std::vector<cluster_node> nodes = described_nodes(two_nodes(), machine, 1'000'000);
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0] == nodes[1]);
  CHECK(nodes[1].device_flops_per_second == 1e14);
  CHECK(nodes[1].device_bytes.count() == 1'000'000);
  machine.devices = 4;
  CHECK_THROWS_WITH(described_nodes(two_nodes(), machine, {}), ContainsSubstring("start one process for each device"));
}

}  // namespace links_test
