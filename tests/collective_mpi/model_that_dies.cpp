// SPDX-License-Identifier: Apache-2.0
// model_that_dies <folder> <number> <deadline in ms>: one of four ranks that train a divided model. One is lost at a
// call of it: killed, stopped, or by an exception. The number chooses the call, the way, one group or two nodes,
// whether groups outlive the backend, and whether calls are compared. What a rank writes is as for rank_that_dies, and
// its verdict is of the time when all that it made is destroyed.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/mpi.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/counting_ranks.hpp>
#include <support/two_divided_tensors.hpp>

#include <mpi.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace chunkmem;

namespace {

using counted = support::counting<collective::mpi>;
using node_groups = sharding::process_groups<counted>;
using backend::host_arena;

constexpr std::uint32_t lost_rank = 1;
constexpr std::uint64_t calls = 14;  // of a rank in two steps
constexpr bytes frame{65536};

// Whole or not there: the driver reads it as soon as it sees it.
void write(const std::string& path, std::string_view what)
{
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::ofstream{path + ".part"} << what << ' ' << std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()
                                << '\n';
  std::filesystem::rename(path + ".part", path);
}

struct loss {
  explicit loss(std::uint64_t number)
      : at{number % calls},
        way{static_cast<int>(number / calls % 3)},
        two_nodes{number / (calls * 3) % 2 == 1},
        groups_outlive{number / (calls * 6) % 2 == 1},
        agreed{number / (calls * 12) % 2 == 1}
  {
  }
  std::uint64_t at;
  int way;  ///< 0 killed, 1 stopped, 2 throws
  bool two_nodes, groups_outlive, agreed;
};

struct lost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void die(const loss& what, const std::string& folder)
{
  constexpr std::string_view ways[] = {"killed", "stopped", "throws"};
  write(folder + "/death", ways[what.way]);
  if (what.way == 2) throw lost{"is lost"};
  ::kill(::getpid(), what.way == 0 ? SIGKILL : SIGSTOP);
}

struct member {
  member(collective::mpi_session& session, MPI_Comm users, std::chrono::milliseconds deadline)
      : group{session, users, {.deadline = deadline}}
  {
  }
  collective::mpi group;
  counted calls{group};
};

template <class Model, class Ranks>
void train(host_arena& memory, Ranks& over, const std::vector<member*>& groups, const loss& what,
           const std::string& folder)
{
  support::two_divided_tensors<Model> it{memory, over};
  it.step();
  std::uint64_t count = 0;
  for (member* const one : groups) {
    one->group.agreed(what.agreed);
    if (index_of(groups[0]->group.rank()) == lost_rank)
      one->calls.before = [&](std::uint64_t) {
        if (count++ == what.at) die(what, folder);
      };
  }
  for (int step = 0; step < 2; ++step) it.step();
}

void live(collective::mpi_session& session, const collective::mpi_nodes& nodes, std::chrono::milliseconds deadline,
          const loss& what, const std::string& folder)
{
  const backend::host_arena_options room{.device_capacity = frame * 14, .host_capacity = frame * 30};
  std::optional<host_arena> outer;
  if (!what.groups_outlive) outer.emplace(room);
  member all{session, MPI_COMM_WORLD, deadline};
  member node{session, nodes.node(), deadline};
  member across{session, nodes.across(), deadline};
  std::optional<host_arena> inner;
  if (what.groups_outlive) inner.emplace(room);
  host_arena& memory = what.groups_outlive ? *inner : *outer;
  const std::vector<member*> groups{&all, &node, &across};
  if (what.two_nodes) {
    node_groups both{all.calls, node.calls, across.calls};
    train<sharded_model<host_arena, node_groups, ownership::hierarchical>>(memory, both, groups, what, folder);
  } else {
    train<sharded_model<host_arena, counted>>(memory, all.calls, groups, what, folder);
  }
}

}  // namespace

int main(int, char** arguments)
{
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the launcher takes its ranks with it, stopped ones too
  const std::string folder = arguments[1];
  const loss what{std::stoull(arguments[2])};
  const std::chrono::milliseconds deadline{std::stoul(arguments[3])};
  collective::mpi_session session;
  const collective::mpi_nodes nodes{session, MPI_COMM_WORLD, 2};
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::string verdict = "finished";
  try {
    live(session, nodes, deadline, what, folder);
  } catch (const comm_error& error) {
    verdict = name_of(error.fault().failure) == name_of(comm_failure::deadline) ? "deadline" : "told";
  } catch (const lost&) {
    for (;;) ::pause();  // its end would be the launcher's reason to end the others
  } catch (const std::exception& error) {
    verdict = error.what();
  }
  write(folder + "/verdict." + std::to_string(rank), verdict);
  if (verdict != "finished") write(folder + "/destroyed." + std::to_string(rank), verdict);
  return 0;
}
