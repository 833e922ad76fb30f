// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../command_line.hpp"
#include "../gpt/problem.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace probe_links {

using gpt::problem;

/// The choices of the command line.
struct options {
  std::filesystem::path out{};
  std::string name = "cluster";
  std::uint64_t size = std::uint64_t{8} << 20;  ///< of a large message [bytes]
  std::uint32_t rounds = 5;                     ///< large messages that are timed for each link
  bool each_rank_a_node = false;
  std::optional<std::filesystem::path> machine{};  ///< else this program measures the numbers of nodes
  std::optional<std::uint64_t> device_bytes{};     ///< else the operating system's number, or that of the machine
  command_line::common_flags common{};
};

namespace detail {

/// The words of the command line before they are parsed. Parsing gives one sentence for each mistake.
struct raw_options {
  std::string size{}, rounds{}, device_bytes{};
};

inline void declare(CLI::App& app, raw_options& raw, options& out)
{
  app.add_option("--out", out.out, "write the cluster to this JSON file");
  app.add_option("--name", out.name, "name of the cluster (cluster)");
  app.add_option("--size", raw.size, "bytes of a large message (8388608)");
  app.add_option("--rounds", raw.rounds, "large messages that are timed for each link (5)");
  app.add_flag("--each-rank-a-node", out.each_rank_a_node,
               "each process is a node of one device, even if processes share memory");
  app.add_option("--machine", out.machine,
                 "JSON file of a machine (examples/max_model/machines) with the numbers of every node (default: they "
                 "are measured on the CPU)");
  app.add_option("--device-bytes", raw.device_bytes,
                 "memory of one device (default: half of the node's memory, divided by its devices)");
  command_line::add_common_flags(app, out.common, "print the cluster as JSON in place of the tables");
  command_line::arrange(app, {{"Cluster", "WORD", {"--name"}},
                              {"Cluster", "FILE", {"--machine"}},
                              {"Cluster", "BYTES", {"--device-bytes"}},
                              {"Cluster", "", {"--each-rank-a-node"}},
                              {"Measurement", "BYTES", {"--size"}},
                              {"Measurement", "NUMBER", {"--rounds"}},
                              {"Output", "FILE", {"--out"}},
                              {"Output", "", {"--json", "--version", "--help"}}});
}

}  // namespace detail

/// Reads a command line, without the name of the program.
/// @throws problem   one sentence: the option, its value and the allowed values
[[nodiscard]] inline options parse_options(int count, const char* const* arguments)
{
  detail::raw_options raw;
  options out;
  CLI::App app;
  detail::declare(app, raw, out);
  command_line::read<problem>(app, count, arguments);
  if (out.common.asks_only()) return out;
  if (out.out.empty()) throw problem{"--out is missing: name a file for the cluster (see --help)"};
  command_line::read_whole<problem>("--size", raw.size, 4096, 1 << 30, out.size);
  command_line::read_whole<problem>("--rounds", raw.rounds, 1, 1000, out.rounds);
  command_line::read_whole<problem>("--device-bytes", raw.device_bytes, 1 << 16, std::uint64_t{1} << 50,
                                    out.device_bytes);
  return out;
}

/// The text of `--help`.
[[nodiscard]] inline std::string help_text()
{
  detail::raw_options raw;
  options out;
  CLI::App app{
      "Measures the links of a cluster, and writes its file. Start one process for each device: "
      "mpirun -n N probe_links --out cluster.json",
      "probe_links"};
  detail::declare(app, raw, out);
  app.footer("Example:\n  mpirun -n 8 probe_links --out cluster.json --name lab");
  return app.help();
}

}  // namespace probe_links
