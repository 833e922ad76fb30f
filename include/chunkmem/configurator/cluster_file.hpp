// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/link_matrix.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/workload/files.hpp>
#include <chunkmem/workload/json_fields.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

namespace detail {

inline constexpr std::string_view cluster_format = "chunkmem cluster 1";
/// With the efficiency of products, which earlier versions do not know.
inline constexpr std::string_view cluster_format_with_curves = "chunkmem cluster 2";
inline constexpr workload::json_limits cluster_limits{
    .file = bytes{std::uint64_t{32} << 20}, .fields = 4096, .elements = std::size_t{1} << 20};

[[nodiscard]] inline cluster_node node_of(workload::json_fields& fields, const std::string& kind, bool has_curves)
{
  workload::detail::sourced_fields all{fields};
  const std::string path = "kinds." + kind + '.';
  cluster_node made;
  made.kind = kind;
  made.devices = static_cast<std::uint32_t>(all.whole(path + "devices", UINT32_MAX));
  for (const node_number<bytes>& it : sizes_of_node) made.*it.member = bytes{all.whole(path + it.name)};
  for (const node_number<double>& it : rates_of_node) made.*it.member = all.number(path + it.name);
  for (const node_number<double>& it : ports_of_node)
    if (fields.has(path + it.name)) made.*it.member = all.number(path + it.name);
  if (const std::string key = path + "inner_links"; fields.has(key)) {
    const std::string how = fields.text(key + ".value");
    (void)fields.text(key + ".source");
    if (how != name_of(link_sharing::pairs) && how != name_of(link_sharing::shared))
      fields.refuse(key + ".value", "is no way of sharing", "write pairs or shared");
    made.inner_links = how == name_of(link_sharing::shared) ? link_sharing::shared : link_sharing::pairs;
  }
  const auto work = [&](const char* name) { return fields.has(path + name) ? all.number(path + name) : 0; };
  made.message_work = {.seconds_per_message = work("compute_seconds_per_message"),
                       .seconds_per_byte = work("compute_seconds_per_byte")};
  if (const std::string key = path + "product_efficiency"; has_curves && fields.has(key)) {
    const std::vector<double> flops = fields.numbers(key + ".flops"), parts = fields.numbers(key + ".part");
    (void)fields.text(key + ".source");
    if (flops.size() != parts.size())
      fields.refuse(key + ".part",
                    "has " + std::to_string(parts.size()) + " numbers for " + std::to_string(flops.size()) + " sizes",
                    "give a number for each size");
    for (std::size_t size = 0; size < flops.size(); ++size) made.product_curve.push_back({flops[size], parts[size]});
  }
  return made;
}

/// A square matrix. @throws format_error   it does not have this many rows and columns
[[nodiscard]] inline std::vector<std::vector<double>> square(workload::json_fields& fields, const std::string& key,
                                                             std::size_t nodes)
{
  std::vector<std::vector<double>> rows = fields.matrix(key);
  const std::string wanted = ", and there are " + std::to_string(nodes) + " nodes";
  for (std::size_t row = 0; row < rows.size(); ++row)
    if (rows[row].size() != nodes)
      fields.refuse(key + '[' + std::to_string(row) + ']',
                    "has " + std::to_string(rows[row].size()) + " numbers" + wanted,
                    "give each row a number for each node");
  if (rows.size() != nodes)
    fields.refuse(key, "has " + std::to_string(rows.size()) + " rows" + wanted, "give a row for each node");
  return rows;
}

[[nodiscard]] inline cluster cluster_of(workload::json_fields fields)
{
  const std::string format = fields.text("format");
  const bool has_curves = format == cluster_format_with_curves;
  if (format != cluster_format && !has_curves)
    fields.refuse("format", "is not that of this version", "write \"" + std::string{cluster_format_with_curves} + '"');
  cluster made;
  made.name = fields.text("name");
  std::map<std::string, cluster_node> kinds;
  for (const std::string& kind : fields.members("kinds")) kinds.emplace(kind, node_of(fields, kind, has_curves));
  const std::vector<std::string> nodes = fields.texts("nodes");
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const auto kind = kinds.find(nodes[node]);
    if (kind == kinds.end())
      fields.refuse("nodes[" + std::to_string(node) + ']', "is a kind that is not among kinds", "describe it there");
    made.nodes.push_back(kind->second);
  }
  (void)fields.text("links.source");
  const auto rates = square(fields, "links.bytes_per_second", nodes.size());
  const auto latencies = square(fields, "links.latency_seconds", nodes.size());
  if (fields.has("links.spread"))
    for (const std::vector<double>& row : square(fields, "links.spread", nodes.size()))
      made.spread.insert(made.spread.end(), row.begin(), row.end());
  fields.finish();
  made.links = link_matrix{static_cast<std::uint32_t>(nodes.size())};
  for (std::uint32_t from = 0; from < nodes.size(); ++from)
    for (std::uint32_t to = 0; to < nodes.size(); ++to) made.links(from, to) = {latencies[from][to], rates[from][to]};
  if (const cluster_problem wrong = problem_of(made); !wrong.key.empty()) {
    const std::size_t advice = wrong.why.find(" (");
    fields.refuse(wrong.key, wrong.why.substr(0, advice), wrong.why.substr(advice + 2, wrong.why.size() - advice - 3));
  }
  return made;
}

/// The text of a number, which reads back as the same number.
[[nodiscard]] inline std::string number_text(double value)
{
  char room[32];
  const auto [end, wrong] = std::to_chars(room, room + sizeof room, value);
  return wrong == std::errc{} ? std::string{room, end} : "0";
}
[[nodiscard]] inline std::string quoted(std::string_view text)
{
  return nlohmann::json(std::string{text}).dump();
}

[[nodiscard]] inline std::string list_text(const std::vector<product_efficiency>& all,
                                           double product_efficiency::*number)
{
  std::string text = "[";
  for (const product_efficiency& it : all) text += (text.size() == 1 ? "" : ", ") + number_text(it.*number);
  return text + ']';
}
template <class Number>
[[nodiscard]] std::string square_text(std::uint32_t nodes, Number number)
{
  std::string text = "[";
  for (std::uint32_t from = 0; from < nodes; ++from) {
    text += from == 0 ? "\n      [" : ",\n      [";
    for (std::uint32_t to = 0; to < nodes; ++to) text += (to == 0 ? "" : ", ") + number_text(number(from, to));
    text += ']';
  }
  return text + ']';
}

}  // namespace detail

/// Parses a cluster from JSON text.
///
/// The object has `format`, `name`, `kinds` (by name: the members of cluster_node, each as {"value": number, "source":
/// "where it is from"}; rates of ports, `inner_links`, `compute_seconds_per_message` and `compute_seconds_per_byte` may
/// be left out, and so may `product_efficiency`: {"flops": list, "part": list, "source": text}), `nodes` (the kind of
/// each node) and `links`: a `source`, the squares `bytes_per_second` and `latency_seconds` with a row for each sending
/// node, and optionally the `spread` of measured rates. `cluster_text` writes such a text. The format is `chunkmem
/// cluster 2` where a kind has `product_efficiency`, else 1.
///
///     const cluster whole = parse_cluster(text, "cluster.json");
///     std::cout << whole.ranks() << " devices\n";
///
/// @param file   a name for messages
/// @throws format_error   one sentence with the file and the wrong key: a matrix that is not square, a number that is
///   negative, missing, or wrong by a power of ten
/// Cost: O(length of the text)
[[nodiscard]] inline cluster parse_cluster(std::string_view text, std::string_view file)
{
  return detail::cluster_of(workload::json_fields{text, file, detail::cluster_limits});
}

/// Reads a cluster from a file of JSON text, see `parse_cluster`.
///
///     const cluster whole = read_cluster(path);
///
/// @throws format_error   as parse_cluster
/// @throws io_error       the file cannot be read
/// Cost: O(size of the file)
[[nodiscard]] inline cluster read_cluster(const std::string& path)
{
  return detail::cluster_of(workload::json_fields::of_file(path, detail::cluster_limits));
}

/// The sources of a cluster's numbers, as texts for its file.
///
///     const std::string text = cluster_text(whole, {.nodes = "data sheets", .links = "measured, 5 rounds"});
struct cluster_sources {
  std::string nodes;
  std::string links;
};

/// The text of a cluster's file, which parse_cluster reads back to the same cluster.
///
///     std::ofstream{path} << cluster_text(whole, {.nodes = "data sheets", .links = "measured at night"});
///
/// @throws config_error   the cluster is invalid, see cluster::check
/// Cost: O(nodes^2)
[[nodiscard]] inline std::string cluster_text(const cluster& whole, const cluster_sources& sources)
{
  whole.check();
  const bool has_curves =
      std::ranges::any_of(whole.nodes, [](const cluster_node& it) { return !it.product_curve.empty(); });
  std::string text =
      "{\n  \"format\": " + detail::quoted(has_curves ? detail::cluster_format_with_curves : detail::cluster_format) +
      ",\n  \"name\": " + detail::quoted(whole.name) + ",\n  \"kinds\": {";
  std::vector<std::string> written;
  for (const cluster_node& it : whole.nodes) {
    if (std::ranges::find(written, it.kind) != written.end()) continue;
    text += (written.empty() ? "\n    " : ",\n    ") + detail::quoted(it.kind) + ": {";
    written.push_back(it.kind);
    bool is_first = true;
    const auto member = [&](const char* name, const std::string& value) {
      text += std::string{is_first ? "\n      " : ",\n      "} + '"' + name + "\": {\"value\": " + value +
              ", \"source\": " + detail::quoted(sources.nodes) + '}';
      is_first = false;
    };
    member("devices", std::to_string(it.devices));
    for (const auto& [name, size, range] : detail::sizes_of_node) member(name, std::to_string((it.*size).count()));
    for (const auto& [name, rate, range] : detail::rates_of_node) member(name, detail::number_text(it.*rate));
    for (const auto& [name, rate, range] : detail::ports_of_node)
      if (it.*rate > 0) member(name, detail::number_text(it.*rate));
    if (it.inner_links != link_sharing::pairs) member("inner_links", detail::quoted(name_of(it.inner_links)));
    if (it.message_work != collective::message_work{}) {
      member("compute_seconds_per_message", detail::number_text(it.message_work.seconds_per_message));
      member("compute_seconds_per_byte", detail::number_text(it.message_work.seconds_per_byte));
    }
    if (!it.product_curve.empty())
      text += ",\n      \"product_efficiency\": {\"flops\": " +
              detail::list_text(it.product_curve, &product_efficiency::flops) +
              ", \"part\": " + detail::list_text(it.product_curve, &product_efficiency::part) +
              ", \"source\": " + detail::quoted(sources.nodes) + '}';
    text += "}";
  }
  text += "},\n  \"nodes\": [";
  for (std::size_t node = 0; node < whole.nodes.size(); ++node)
    text += (node == 0 ? "" : ", ") + detail::quoted(whole.nodes[node].kind);
  const auto nodes = static_cast<std::uint32_t>(whole.nodes.size());
  const auto square = [&](auto number) { return detail::square_text(nodes, number); };
  text += "],\n  \"links\": {\n    \"source\": " + detail::quoted(sources.links);
  text += ",\n    \"bytes_per_second\": " +
          square([&](std::uint32_t from, std::uint32_t to) { return whole.links(from, to).bytes_per_second; });
  text += ",\n    \"latency_seconds\": " +
          square([&](std::uint32_t from, std::uint32_t to) { return whole.links(from, to).latency; });
  if (!whole.spread.empty())
    text += ",\n    \"spread\": " +
            square([&](std::uint32_t from, std::uint32_t to) { return whole.spread[std::size_t{from} * nodes + to]; });
  return text + "\n  }\n}\n";
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
