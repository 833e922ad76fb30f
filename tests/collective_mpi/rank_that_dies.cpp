// SPDX-License-Identifier: Apache-2.0
// rank_that_dies <folder> <seed> <deadline in ms>: one rank of a job in which one rank kills or stops itself before an
// operation that the seed chooses. Every other rank writes its result to <folder>/verdict.<rank>, since the launcher's
// own status is no help: "<what> <ns of the monotonic clock>". The victim writes <folder>/death. With "end" for a seed,
// no rank dies, but rank 1 falls silent after it has left its group, before it ends MPI.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/mpi.hpp>

#include <mpi.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

using namespace chunkmem;

namespace {

// Whole or not there: the driver reads it as soon as it sees it.
void write(const std::string& path, std::string_view what)
{
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::ofstream{path + ".part"} << what << ' ' << std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()
                                << '\n';
  std::filesystem::rename(path + ".part", path);
}

struct fate {
  std::uint32_t rank;
  std::uint32_t operation;  // before which it dies
  std::uint32_t way;        // killed, stopped, or killed by its own time while its agents work
};

void die(const std::string& folder, int signal)
{
  write(folder + "/death", signal == SIGSTOP ? "stopped" : "killed");
  ::kill(::getpid(), signal);
}

constexpr std::uint32_t operations = 60;

void train(collective::mpi& ranks, const fate& mine, const std::string& folder)
{
  backend::host_arena arena{{.device_capacity = bytes{1 << 20}, .host_capacity = bytes{1 << 20}}};
  std::vector<std::byte> memory(100'000);
  const auto parts = collective::shares::of(bytes{memory.size()}, ranks.ranks());
  const agent stream = agent::to_host;
  for (std::uint32_t next = 0; next < operations; ++next) {
    const bool dies = index_of(ranks.rank()) == mine.rank && next == mine.operation;
    if (dies && mine.way < 2) die(folder, mine.way == 0 ? SIGKILL : SIGSTOP);
    const std::uint64_t word = next;
    std::vector<std::uint64_t> all(ranks.ranks());
    switch (next % 6) {
      case 0: ranks.all_gather(arena, stream, memory.data(), parts, next); break;
      case 1: ranks.reduce_scatter(arena, stream, memory.data(), parts, {}, next); break;
      case 2: ranks.all_reduce(arena, stream, memory.data(), parts, {.type = dtype::bfloat16}, next); break;
      case 3: ranks.broadcast(arena, stream, memory.data(), bytes{50'000}, rank_id{next % ranks.ranks()}, next); break;
      case 4: ranks.exchange({&word, 1}, all); break;
      default: ranks.barrier(arena, stream, next); break;
    }
    if (dies) die(folder, SIGKILL);
    if (next % 7 == 6) arena.wait(agent::host, arena.record(stream));
    ranks.check();
  }
  arena.wait(agent::host, arena.record(stream));
  ranks.check();
}

}  // namespace

int main(int, char** arguments)
{
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the launcher takes its ranks with it, stopped ones too
  const std::string folder = arguments[1];
  const bool is_silent_at_end = arguments[2] == std::string_view{"end"};
  std::mt19937 random{is_silent_at_end ? 0 : static_cast<std::uint32_t>(std::stoul(arguments[2]))};
  const std::chrono::milliseconds deadline{std::stoul(arguments[3])};
  collective::mpi_session session{{.end_deadline = deadline}};
  std::optional<collective::mpi> ranks;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::string verdict = folder + "/verdict." + std::to_string(rank);
  try {
    ranks.emplace(session, MPI_COMM_WORLD, collective::mpi_options{.deadline = deadline, .staging = bytes{8'192}});
    fate mine{};
    mine.rank = static_cast<std::uint32_t>(random()) % ranks->ranks();
    mine.operation = static_cast<std::uint32_t>(random()) % operations;
    mine.way = static_cast<std::uint32_t>(random()) % 3;
    if (is_silent_at_end) mine.operation = operations;
    train(*ranks, mine, folder);
    write(verdict, "finished");
    ranks.reset();
    if (is_silent_at_end && rank == 1)
      for (;;) ::pause();
  } catch (const comm_error& error) {
    write(verdict, name_of(error.fault().failure) == name_of(comm_failure::deadline) ? "deadline" : "told");
    ranks.reset();  // must come back: the driver waits for the next line
    write(folder + "/destroyed." + std::to_string(rank), error.what());
    return 17;
  } catch (const std::exception& error) {
    write(verdict, error.what());
  }
  return 0;
}
