// SPDX-License-Identifier: Apache-2.0
// rank_that_saves <folder of checkpoints> <folder of words> <seed> <steps>: one rank of a job that takes up the newest
// checkpoint, trains and saves after each step. With a seed one rank, or all, are killed before an operation on a file
// that the seed chooses. Each rank says what it loaded in <words>/loaded.<rank>, "<generation> <step> <hash>"; how far
// its saves came in <words>/saved.<rank>, "<step>"; and what became of it in <words>/verdict.<rank>.
#include "exact_training.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/checkpoint/load.hpp>
#include <chunkmem/checkpoint/save.hpp>
#include <chunkmem/checkpoint/save_async.hpp>
#include <chunkmem/collective/agreed_outcome.hpp>
#include <chunkmem/collective/mpi.hpp>
#include <chunkmem/collective/mpi_session.hpp>
#include <chunkmem/io/posix_folder.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <mpi.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace chunkmem;

namespace {

/// Whole or not there.
void write(const std::string& path, const std::string& what)
{
  std::ofstream{path + ".part"} << what << '\n';
  std::filesystem::rename(path + ".part", path);
}

/// Kills before an operation that was chosen: this process, or all of the job.
struct killer {
  std::uint64_t at = UINT64_MAX;
  std::uint64_t count = 0;
  std::vector<std::uint64_t> victims{};

  void operation()
  {
    if (count++ != at) return;
    for (const std::uint64_t it : victims) ::kill(static_cast<pid_t>(it), SIGKILL);
    ::kill(::getpid(), SIGKILL);
  }
};

/// A folder whose operations may be the last of this process.
class deadly_folder {
 public:
  class writer {
   public:
    writer(io::posix_folder::writer file, killer& when) : file_{std::move(file)}, when_{&when} {}
    [[nodiscard]] std::size_t write(std::span<const std::byte> content)
    {
      return when_->operation(), file_.write(content);
    }
    void sync() { when_->operation(), file_.sync(); }
    void close() { when_->operation(), file_.close(); }

   private:
    io::posix_folder::writer file_;
    killer* when_;
  };
  using reader = io::posix_folder::reader;

  deadly_folder(const std::string& path, killer& when) : folder_{path}, when_{&when} {}
  [[nodiscard]] auto lock() { return folder_.lock(); }
  [[nodiscard]] writer create(std::string_view name)
  {
    return when_->operation(), writer{folder_.create(name), *when_};
  }
  [[nodiscard]] reader open(std::string_view name) const { return when_->operation(), folder_.open(name); }
  void rename(std::string_view from, std::string_view to) { when_->operation(), folder_.rename(from, to); }
  bool remove(std::string_view name) noexcept { return when_->operation(), folder_.remove(name); }
  void sync() { when_->operation(), folder_.sync(); }
  [[nodiscard]] std::vector<std::string> names() const { return when_->operation(), folder_.names(); }

 private:
  io::posix_folder folder_;
  killer* when_;
};
static_assert(lockable_folder<deadly_folder>);

/// The rank that kills, the time, and the victims: none with seed 0.
killer killer_of(std::uint64_t seed, collective::mpi& ranks)
{
  killer made;
  const auto processes = collective::words_of_all(ranks, static_cast<std::uint64_t>(::getpid()));
  std::mt19937_64 random{seed};
  const std::uint64_t who = random() % ranks.ranks();
  const std::uint64_t index = random() % 200;  // a save has about 20 operations on a rank, 50 on the first
  if (seed == 0 || who != index_of(ranks.rank())) return made;
  made.at = index;
  if (random() % 3 == 0) made.victims = processes;
  return made;
}

void train(collective::mpi& ranks, char** arguments)
{
  using model_type = sharded_model<backend::host_arena, collective::mpi>;
  const std::string words = arguments[2];
  const std::string own = '.' + std::to_string(index_of(ranks.rank()));
  const std::uint64_t seed = std::stoull(arguments[3]);
  const std::uint64_t steps = std::stoull(arguments[4]);
  killer when = killer_of(seed, ranks);
  deadly_folder folder{arguments[1], when};
  backend::host_arena memory{{.device_capacity = 4_MiB, .host_capacity = 4_MiB}};
  model_type model{memory, ranks, {.chunk_bytes = bytes{std::uint64_t{ranks.ranks()} * 16384 * (1 + seed % 2)}}};
  rank_kills::exact_training training{model};
  training.fill();
  const auto loaded = checkpoint::load(model, folder, {.allow_fresh_start = true, .limits = {}});
  write(words + "/loaded" + own,
        std::to_string(loaded.number) + ' ' + std::to_string(training.done()) + ' ' + std::to_string(training.hash()));
  const std::uint32_t share = training.rows / ranks.ranks();
  const std::uint32_t first = share * index_of(ranks.rank());
  for (std::uint64_t end = training.done() + steps; training.done() < end;) {
    training.step(first, first + share);
    const std::uint64_t saved = training.done();
    const checkpoint::save_options files{.keep = 2, .file_size = 50_KiB, .round = 20_KiB};
    if (seed % 4 >= 2 && saved < end) {
      auto pending = checkpoint::save_async(model, folder, {.files = files, .buffer = 64_KiB, .lends = true});
      training.step(first, first + share);
      (void)pending.wait();
    } else {
      (void)checkpoint::save(model, folder, files);
    }
    write(words + "/saved" + own, std::to_string(saved));
  }
  write(words + "/hash" + own, std::to_string(training.hash()));
}

}  // namespace

int main(int, char** arguments)
{
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the launcher takes its ranks with it
  collective::mpi_session session;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::string verdict = std::string{arguments[2]} + "/verdict." + std::to_string(rank);
  const std::chrono::milliseconds deadline{std::string_view{arguments[3]} == "0" ? 60'000 : 500};
  try {
    collective::mpi ranks{session, MPI_COMM_WORLD, {.deadline = deadline}};
    train(ranks, arguments);
    write(verdict, "finished");
  } catch (const comm_error& error) {
    write(verdict, "comm");
    return 17;
  } catch (const std::exception& error) {
    write(verdict, error.what());
  }
  return 0;
}
