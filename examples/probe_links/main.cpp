// SPDX-License-Identifier: Apache-2.0
// Measures the links of a cluster and writes the file of that cluster, one process for each device:
//
//     mpirun -n 8 probe_links --out cluster.json
//
// It measures only messages of MPI between the memories of hosts: no link of NCCL, and no memory of a GPU.
#include "../output_file.hpp"
#include "../run_program.hpp"
#include "link_probe.hpp"
#include "meetings.hpp"
#include "message_probe.hpp"
#include "node_places.hpp"
#include "node_probe.hpp"
#include "options.hpp"
#include "port_probe.hpp"
#include "process_group.hpp"
#include "report.hpp"

#include <chunkmem/collective/mpi_session.hpp>
#include <chunkmem/configurator/cluster.hpp>
#include <chunkmem/configurator/cluster_file.hpp>
#include <chunkmem/workload/files.hpp>

#include <mpi.h>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace probe_links;
namespace configurator = chunkmem::configurator;

constexpr int failure_code = 2;

/// The machine's description, on rank 0 before any rank measures. An output file that cannot be written is reported
/// here too. No file is open while ranks measure, so a signal leaves no unfinished file.
std::optional<chunkmem::workload::machine> prepare(const options& chosen)
{
  std::optional<chunkmem::workload::machine> machine;
  if (chosen.machine) machine = chunkmem::workload::read_machine(chosen.machine->string());
  (void)command_line::output_file<problem>{"--out", chosen.out};
  return machine;
}

/// The nodes with their numbers, on rank 0.
std::vector<configurator::cluster_node> nodes_of(const process_group& all, const node_places& places,
                                                 const options& chosen,
                                                 const std::optional<chunkmem::workload::machine>& machine)
{
  std::vector<configurator::cluster_node> nodes;
  if (chosen.machine) {
    all.together([&] {
      if (machine) nodes = described_nodes(places, *machine, chosen.device_bytes);
    });
    return nodes;
  }
  device_numbers mine;
  all.barrier();
  all.together([&] { mine = measure_device(); });
  mine.messages = measure_messages(all, chosen.size, chosen.rounds);
  const std::vector<double> words = all.gather(mine.words());
  all.together([&] {
    if (all.rank() == 0) nodes = measured_nodes(places, words, chosen.device_bytes);
  });
  return nodes;
}

/// The measured times of all links, on rank 0.
std::vector<double> records_of(const process_group& all, const node_places& places, const options& chosen)
{
  std::optional<link_probe> probe;
  all.together([&] { probe.emplace(all, chosen.size, chosen.rounds); });
  probe->measure(meetings_of(places, all.rank()));
  return all.gather(probe->records());
}

/// The measured times of flows that share ports, on rank 0.
std::vector<double> port_records_of(const process_group& all, const node_places& places, const options& chosen)
{
  port_probe probe{all, places, chosen.size, chosen.rounds};
  return all.gather(probe.measure());
}

configurator::cluster cluster_of(std::string name, std::vector<configurator::cluster_node> nodes, measured_links found)
{
  configurator::cluster whole{.name = std::move(name), .nodes = std::move(nodes)};
  whole.links = std::move(found.links);
  whole.spread = std::move(found.spread);
  // A device sends nothing to itself. The file needs a number there: the rate of a copy.
  for (std::uint32_t node = 0; node < whole.nodes.size(); ++node)
    if (!is_measured(whole, node, node)) whole.links(node, node) = {0, whole.nodes[node].to_device_bytes_per_second};
  return whole;
}

configurator::cluster_sources sources_of(const options& chosen,
                                         const std::optional<chunkmem::workload::machine>& machine)
{
  const std::string own = chosen.device_bytes ? "; device_bytes: --device-bytes" : "";
  const std::string ports = "; rates of ports: measured by probe_links over MPI, of several flows at the same time";
  return {
      .nodes = (machine ? "the machine \"" + machine->name + "\" of " + chosen.machine->filename().string() +
                              ", which has the source of each number"
                        : std::string{measured_source}) +
               own + ports,
      .links = "measured by probe_links over MPI, " + std::to_string(chosen.rounds) + " messages of " +
               std::to_string(chosen.size) +
               " B, the median of each direction by itself: of a lone flow between two nodes, and of pairs of devices "
               "inside a node; latency: half of a round trip of empty messages; a node of one device has the rate of "
               "a copy to itself"};
}

void run(const process_group& all, int count, const char* const* arguments)
{
  options chosen;
  all.together([&] { chosen = parse_options(count, arguments); });
  if (chosen.common.asks_only()) {
    const std::string text = chosen.common.help ? help_text() : command_line::version_text("probe_links");
    if (all.rank() == 0) std::fputs(text.c_str(), stdout);
    return;
  }
  const node_places places = find_places(all, chosen.each_rank_a_node);
  std::optional<chunkmem::workload::machine> machine;
  all.together([&] {
    if (all.rank() == 0) machine = prepare(chosen);
  });
  const std::vector<configurator::cluster_node> nodes = nodes_of(all, places, chosen, machine);
  const std::vector<double> records = records_of(all, places, chosen);
  const std::vector<double> port_records = port_records_of(all, places, chosen);
  all.together([&] {
    if (all.rank() != 0) return;
    const configurator::cluster whole = cluster_of(
        chosen.name, with_ports(nodes, port_rates_of(port_records, places.nodes(), chosen.size, chosen.rounds)),
        links_of(records, places.nodes(), chosen.size, chosen.rounds));
    const std::string text = configurator::cluster_text(whole, sources_of(chosen, machine));
    command_line::write_file<problem>("--out", chosen.out, text);
    if (chosen.common.json)
      std::fputs(text.c_str(), stdout);
    else
      print_links(stdout, whole);
    const std::string warning = warning_of(whole);
    if (!warning.empty()) std::fprintf(stderr, "probe_links: warning: %s\n", warning.c_str());
  });
}

/// @return   the exit status
int run_among(int count, const char* const* arguments)
{
  chunkmem::collective::mpi_session session;
  const process_group all{session};
  try {
    run(all, count, arguments);
    return EXIT_SUCCESS;
  } catch (const shared_problem& failure) {
    if (all.rank() == 0) command_line::tell("probe_links", failure.what());
    return failure_code;
  } catch (const std::exception& failure) {  // the other ranks wait for this rank
    command_line::tell("probe_links", failure.what());
    MPI_Abort(MPI_COMM_WORLD, failure_code);
    return failure_code;
  }
}

}  // namespace

int main(int count, char** arguments)
{
  return command_line::run_program("probe_links", [&] { return run_among(count - 1, arguments + 1); });
}
