// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/cluster_file.hpp>
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>
#include <support/refusal.hpp>

#include "usual_node.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace cluster_file_test {

using namespace chunkmem;
using namespace chunkmem::configurator;
using namespace chunkmem::literals;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Three nodes, no two links alike.
cluster three_nodes()
{
  cluster whole{.name = "three \"nodes\"", .nodes{}};
  for (const char* const kind : {"v100", "slow", "v100"}) whole.nodes.push_back(support::usual_node(kind, 4));
  whole.nodes[1].device_flops_per_second = 43e12;
  whole.nodes[1].port_out_bytes_per_second = 5e9;
  whole.nodes[1].port_in_bytes_per_second = 6e9;
  whole.nodes[1].inner_links = link_sharing::shared;
  whole.links = link_matrix{3};
  for (std::uint32_t from = 0; from < 3; ++from)
    for (std::uint32_t to = 0; to < 3; ++to) {
      whole.links(from, to) = {(1 + from + 0.1 * to) * 1e-6, (3 + from + 0.7 * to) * 1e9};
      whole.spread.push_back(0.01 * (from + 3.0 * to));
    }
  return whole;
}

std::string text_of(const cluster& whole)
{
  return cluster_text(whole, {.nodes = "a data sheet", .links = "measured"});
}
/// The reader's error for the text in which `was` is replaced by `is`. The text has `was`.
std::string refusal(const std::string& was, const std::string& is)
{
  std::string text = text_of(three_nodes());
  const std::size_t at = text.find(was);
  if (at == text.npos) return "the text has not " + was;
  text.replace(at, was.size(), is);
  return support::refusal<format_error>([&] { (void)parse_cluster(text, "c.json"); });
}
void says(const std::string& sentence, const std::string& key, const std::string& why)
{
  CHECK_THAT(sentence, ContainsSubstring('"' + key + '"') && ContainsSubstring(why));
  CHECK(std::ranges::count(sentence, '\n') == 0);
}

}  // namespace

TEST_CASE("a cluster that is written reads back as the same", "[configurator]")
{
  cluster whole = three_nodes();
  for (int round = 0; round < 2; ++round) {
    const cluster read = parse_cluster(text_of(whole), "c.json");
    CHECK(read.name == whole.name);
    CHECK(read.nodes == whole.nodes);
    CHECK(read.spread == whole.spread);
    for (std::uint32_t from = 0; from < 3; ++from)
      for (std::uint32_t to = 0; to < 3; ++to) {
        CHECK(read.link(from, to).latency == whole.links(from, to).latency);
        CHECK(read.link(from, to).bytes_per_second == whole.links(from, to).bytes_per_second);
      }
    CHECK(read.ranks() == 12);
    CHECK(read.nodes_of_ranks() == std::vector<std::uint32_t>{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2});
    whole.spread.clear();
  }
}

TEST_CASE("a file says what messages take from a device, and one without it says that they take nothing",
          "[configurator]")
{
  cluster whole = three_nodes();
  CHECK_THAT(text_of(whole), !ContainsSubstring("compute_seconds"));
  whole.nodes[1].message_work = {.seconds_per_message = 70e-6, .seconds_per_byte = 15e-9};
  const cluster read = parse_cluster(text_of(whole), "c.json");
  CHECK(read.nodes == whole.nodes);
  CHECK(read.nodes[0].message_work == collective::message_work{});
  whole.nodes[1].message_work.seconds_per_byte = 15e-3;  // a slip
  CHECK_THROWS_WITH(whole.check(), ContainsSubstring("kinds.slow.compute_seconds_per_byte") &&
                                       ContainsSubstring("4 nanoseconds are 4e-9"));
}

TEST_CASE("a file of version 2 says which part of a rate products of each size reach", "[configurator]")
{
  cluster whole = three_nodes();
  CHECK_THAT(text_of(whole), ContainsSubstring("chunkmem cluster 1") && !ContainsSubstring("product_efficiency"));
  whole.nodes[1].product_curve = {{.flops = 4e6, .part = 0.25}, {.flops = 3e7, .part = 1}};
  std::string text = text_of(whole);
  CHECK_THAT(text, ContainsSubstring("chunkmem cluster 2"));
  CHECK(parse_cluster(text, "c.json").nodes == whole.nodes);
  const auto refused = [&](const std::string& was, const std::string& is) {
    std::string changed = text;
    changed.replace(changed.find(was), was.size(), is);
    try {
      (void)parse_cluster(changed, "c.json");
      return std::string{"it is not refused"};
    } catch (const format_error& why) {
      return std::string{why.what()};
    }
  };
  says(refused("cluster 2", "cluster 1"), "kinds.slow.product_efficiency.flops[0]", "is not known");
  says(refused("[0.25, 1]", "[0.25]"), "kinds.slow.product_efficiency.part", "has 1 numbers for 2 sizes");
  says(refused("[0.25, 1]", "[0.25, 0]"), "kinds.slow.product_efficiency.part", "is no part of a rate");
  says(refused("[4e+06, 3e+07]", "[4e+06, 4e+06]"), "kinds.slow.product_efficiency.flops", "does not rise");
}

TEST_CASE("a file of a cluster is refused in one sentence, with the key", "[configurator]")
{
  says(refusal("chunkmem cluster 1", "chunkmem cluster 3"), "format", "is not that of this version");
  says(refusal("\"nodes\": [\"v100\", ", "\"nodes\": ["), "links.bytes_per_second[0]",
       "has 3 numbers, and there are 2");
  says(refusal("[3e+09, ", "["), "links.bytes_per_second[0]", "has 2 numbers, and there are 3 nodes");
  says(refusal("[3e+09, 3.7e+09, 4.4e+09],", ""), "links.bytes_per_second", "has 2 rows, and there are 3 nodes");
  says(refusal("[3e+09, ", "[-3e9, "), "links.bytes_per_second[0][0]", "is negative");
  says(refusal("[3e+09, ", "[\"3e9\", "), "links.bytes_per_second[0][0]", "is a text");
  says(refusal("[3e+09, ", "[[3e9], "), "links.bytes_per_second[0][0]", "is a list in too many others");
  says(refusal("[3e+09, ", "[{}, "), "links.bytes_per_second[0][0]", "is an object in a list");
  says(refusal("[3e+09, ", "[3, "), "links.bytes_per_second[0][0]", "12 GB/s are 12e9");
  says(refusal("3.7e+09", "null"), "links.bytes_per_second[0][1]", "is null");
  says(refusal("1.1e-06", "1.1"), "links.latency_seconds[0][1]", "5 microseconds are 5e-6");
  says(refusal("\"bytes_per_second\"", "\"bytes\""), "links.bytes_per_second", "is missing");
  says(refusal("\"spread\"", "\"spreads\""), "links.spreads[0][0]", "is not known");
  says(refusal("\"nodes\": [\"v100\"", "\"nodes\": [\"v10\""), "nodes[0]", "is a kind that is not among kinds");
  says(refusal("\"nodes\": [\"v100\"", "\"nodes\": [1"), "nodes[0]", "is a number");
  says(refusal("1e+14", "100"), "kinds.v100.device_flops_per_second", "312 TFLOP/s are 312e12");
  says(refusal("5e+09", "5"), "kinds.slow.port_out_bytes_per_second", "12 GB/s are 12e9");
  says(refusal("\"shared\"", "\"share\""), "kinds.slow.inner_links.value", "is no way of sharing");
  says(refusal("\"value\": 4,", "\"value\": 0,"), "kinds.v100.devices", "is 0");
  says(refusal("\"source\": \"measured\"", "\"source\": \"\""), "links.source", "is empty");
}

TEST_CASE("a cluster that cannot be is refused", "[configurator]")
{
  const auto refused = [](auto change) {
    cluster whole = three_nodes();
    change(whole);
    return support::refusal<config_error>([&] { whole.check(); });
  };
  CHECK_THAT(refused([](cluster& it) { it.nodes[2].devices = 2; }), ContainsSubstring("two nodes that differ"));
  CHECK_THAT(refused([](cluster& it) { it.nodes.pop_back(); }), ContainsSubstring("is of 3 nodes, and there are 2"));
  CHECK_THAT(refused([](cluster& it) { it.spread.pop_back(); }), ContainsSubstring("one number for each link"));
  CHECK_THAT(refused([](cluster& it) { it.name.clear(); }), ContainsSubstring("name is empty"));
  CHECK_THAT(refused([](cluster& it) { it.links(1, 1).bytes_per_second = 0; }), ContainsSubstring("[1][1]"));
  CHECK_NOTHROW(three_nodes().check());
}

}  // namespace cluster_file_test
