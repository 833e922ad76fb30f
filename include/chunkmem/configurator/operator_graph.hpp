// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/core/error.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace chunkmem::inline v0 {

namespace configurator {

/// The conditions under which a graph of operators was measured.
///
///     const model_profile vgg = profile_of_graph(text, "graph.txt", {.kind = "titan x"});
struct graph_measurement {
  std::string kind;        ///< of device
  std::uint64_t rows = 1;  ///< of the micro-batch; 1: times and sizes of the graph are for a whole micro-batch
  std::uint32_t weight_bytes = 4;
};

namespace detail {

struct graph_operator {
  std::string name;
  double forward = 0;   // [ms]
  double backward = 0;  // [ms]
  double output = 0;    // [B]
  double weights = 0;   // [B]
  std::vector<std::uint64_t> next{};
  std::uint64_t before = 0;  // number of operators that it waits for
};

/// Reads the lines of a graph of operators.
class graph_reader {
 public:
  explicit graph_reader(std::string_view file) : file_{file} {}

  [[nodiscard]] std::map<std::uint64_t, graph_operator> read(std::string_view text)
  {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      line_ = text.substr(0, end);
      text = end == text.npos ? std::string_view{} : text.substr(end + 1);
      ++number_;
      if (line_.find_first_not_of(" \t\r") == line_.npos) continue;
      const bool is_edge = line_.front() == '\t';
      if (is_edge) line_.remove_prefix(1);
      is_edge ? edge() : node();
    }
    return std::move(all_);
  }

 private:
  [[noreturn]] void refuse(std::string_view why) const
  {
    throw format_error{error_text{} << "chunkmem: " << file_ << " cannot be used: line " << number_ << " " << why
                                    << " (write operators as \"node1 -- name -- forward_compute_time=1.0, "
                                       "backward_compute_time=2.0, activation_size=4.0, parameter_size=0.0\", and "
                                       "edges below as a tab and \"node1 -- node2\")"};
  }
  /// Takes the words up to `--`, or the rest.
  [[nodiscard]] std::string_view take()
  {
    constexpr std::string_view border = " -- ";
    const std::size_t end = line_.find(border);
    const std::string_view words = line_.substr(0, end);
    line_ = end == line_.npos ? std::string_view{} : line_.substr(end + border.size());
    return words;
  }
  [[nodiscard]] std::uint64_t take_node()
  {
    std::string_view words = take();
    while (!words.empty() && (words.back() == ' ' || words.back() == '\r')) words.remove_suffix(1);
    if (!words.starts_with("node")) refuse("does not begin with an operator");
    words.remove_prefix(4);
    std::uint64_t number = 0;
    const auto [end, wrong] = std::from_chars(words.data(), words.data() + words.size(), number);
    if (wrong != std::errc{} || end != words.data() + words.size()) refuse("has an operator without a number");
    return number;
  }
  /// The number after a name; for a list in brackets the sum of its numbers.
  [[nodiscard]] double take_number(std::string_view name) const
  {
    const std::size_t begin = line_.find(name);
    if (begin == line_.npos || line_.substr(begin + name.size(), 1) != "=") refuse("lacks a number");
    std::string_view words = line_.substr(begin + name.size() + 1);
    const bool is_list = words.starts_with('[');
    if (is_list) words.remove_prefix(1);
    double sum = 0;
    do {
      double number = 0;
      const auto [end, wrong] = std::from_chars(words.data(), words.data() + words.size(), number);
      sum += number;
      if (wrong != std::errc{} || !(number >= 0 && sum < 1e15)) refuse("has an invalid number");
      words.remove_prefix(static_cast<std::size_t>(end - words.data()));
      if (is_list && words.starts_with("; ")) words.remove_prefix(2);
    } while (is_list && !words.empty() && words.front() != ']');
    return sum;
  }
  void node()
  {
    const std::uint64_t number = take_node();
    graph_operator it{.name = std::string{take()}};
    it.forward = take_number("forward_compute_time");
    it.backward = take_number("backward_compute_time");
    it.output = take_number("activation_size");
    it.weights = take_number("parameter_size");
    if (!all_.emplace(number, std::move(it)).second) refuse("has an operator that is there twice");
  }
  void edge()
  {
    const std::uint64_t from = take_node(), to = take_node();
    const auto sender = all_.find(from), receiver = all_.find(to);
    if (sender == all_.end() || receiver == all_.end()) refuse("has an edge of an unknown operator");
    sender->second.next.push_back(to);
    ++receiver->second.before;
  }

  std::string_view file_;
  std::string_view line_{};
  std::uint64_t number_ = 0;
  std::map<std::uint64_t, graph_operator> all_{};
};

/// Removes inputs, which are no operators: a trainer reads them, and they have no stage of their own.
inline void drop_inputs(std::map<std::uint64_t, graph_operator>& graph)
{
  for (auto it = graph.begin(); it != graph.end();) {
    if (it->second.before > 0 || !it->second.name.starts_with("Input")) {
      ++it;
      continue;
    }
    for (const std::uint64_t next : it->second.next) --graph.at(next).before;
    it = graph.erase(it);
  }
}

}  // namespace detail

/// A profile from a graph of operators, as PipeDream's profiler writes it: a line for each operator with its
/// milliseconds and bytes, and a line for each edge below.
///
/// The operators become a chain of parts in topological order, the smallest number first. The boundary of a part is the
/// sum of the outputs of all operators up to it that have an edge over the cut. So each cut of the chain is a state of
/// the graph (an antichain), and its transfers count. A backward run has a half for each of its two gradients.
///
///     const model_profile vgg = profile_of_graph(text, "vgg16/graph.txt", {.kind = "titan x"});
///
/// @param file   a name for messages
/// @throws format_error   one sentence with the wrong line, or a graph with a cycle or without operators
/// @throws config_error   a measurement without rows, a kind, or bytes of a weight; a time that no run takes
/// Cost: O(operators^2 + edges)
/// Source: the profiles of PipeDream (Narayanan et al. 2019, SOSP)
[[nodiscard]] inline model_profile profile_of_graph(std::string_view text, std::string_view file,
                                                    const graph_measurement& measured)
{
  if (measured.weight_bytes == 0) throw config_error{"a graph of operators whose weights have 0 bytes (give 2, or 4)"};
  auto graph = detail::graph_reader{file}.read(text);
  detail::drop_inputs(graph);
  model_profile made{.name = std::string{file}, .parts = {}};
  profiled_weights weights;
  profiled_sizes sizes{.rows = measured.rows};
  profiled_times times{.kind = measured.kind, .rows = measured.rows};
  std::set<std::uint64_t> ready;
  std::map<std::uint64_t, std::size_t> read_later;  // operators up to here, and edges of each over the next cut
  for (const auto& [number, it] : graph)
    if (it.before == 0) ready.insert(number);
  while (!ready.empty()) {
    const std::uint64_t number = *ready.begin();
    ready.erase(ready.begin());
    const detail::graph_operator& it = graph.at(number);
    for (auto& [before, edges] : read_later)
      for (const std::uint64_t next : graph.at(before).next) edges -= next == number ? 1 : 0;
    std::erase_if(read_later, [](const auto& entry) { return entry.second == 0; });
    if (!it.next.empty()) read_later.emplace(number, it.next.size());
    for (const std::uint64_t next : it.next)
      if (--graph.at(next).before == 0) ready.insert(next);
    double boundary = it.next.empty() && ready.empty() ? it.output : 0;
    for (const auto& [before, edges] : read_later) boundary += graph.at(before).output;
    made.parts.push_back({.name = it.name});
    weights.elements.push_back({});
    if (it.weights > 0)
      weights.elements.back().push_back(static_cast<std::uint64_t>(it.weights / measured.weight_bytes + 0.5));
    sizes.saved.push_back(0);  // it keeps inputs: outputs of parts before
    sizes.boundary.push_back(static_cast<std::uint64_t>(boundary + 0.5));
    sizes.transient.push_back(0);
    times.of_parts.push_back({it.forward / 1000, it.backward / 2000, it.backward / 2000});
  }
  if (made.parts.empty() || made.parts.size() != graph.size())
    throw format_error{error_text{} << "chunkmem: " << file << " cannot be used: "
                                    << (graph.empty() ? "it has no operators (give a line for each)"
                                                      : "its operators wait for each other (remove the cycle)")};
  made.weights.push_back(std::move(weights));
  made.sizes.push_back(std::move(sizes));
  made.times.push_back(std::move(times));
  made.check();
  return made;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
