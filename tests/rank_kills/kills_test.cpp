// SPDX-License-Identifier: Apache-2.0
// Ranks that are killed while they save, under mpirun: the next job resumes from the newest whole checkpoint, with the
// right bits.
#include "exact_training.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

#include <support/catch.hpp>
#include <support/figures.hpp>
#include <support/launched_job.hpp>

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace kills_test {

namespace fs = std::filesystem;
namespace cm = chunkmem;

namespace {

constexpr std::uint64_t steps_of_a_job = 12;

/// Hashes after 0, 1, ... steps of the undisturbed training, on one rank.
std::vector<std::uint64_t> right_hashes(std::uint64_t steps)
{
  using manager_type = cm::manager<cm::backend::host_arena>;
  cm::backend::host_arena memory{{.device_capacity = cm::bytes{1 << 20}, .host_capacity = cm::bytes{1 << 20}}};
  manager_type m{memory, {.chunk_bytes = cm::bytes{64 << 10}}};
  rank_kills::exact_training training{m};
  training.fill();
  std::vector<std::uint64_t> hashes{training.hash()};
  while (training.done() < steps) {
    training.step(0, training.rows);
    hashes.push_back(training.hash());
  }
  return hashes;
}

/// The words of the ranks of one job, by the begin of the file's name.
struct said {
  std::map<std::string, std::vector<std::string>> words;

  [[nodiscard]] const std::vector<std::string>& of(const std::string& what) { return words[what]; }
};

said run(const fs::path& folder, std::uint64_t seed, std::uint32_t ranks)
{
  const fs::path words = folder / "words";
  fs::remove_all(words);
  fs::create_directories(words);
  std::vector<std::string> command = support::split(std::getenv("CHUNKMEM_MPIRUN"));
  for (const std::string& it : {std::string{"--enable-recovery"}, std::string{"-np"}, std::to_string(ranks),
                                std::string{std::getenv("CHUNKMEM_MPI_RANK")}, (folder / "checkpoints").string(),
                                words.string(), std::to_string(seed), std::to_string(steps_of_a_job)})
    command.push_back(it);
  support::launched_job launched{command, folder.string()};
  for (int waited = 0; !launched.has_ended() && waited < 12'000; ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  said result;
  for (const auto& entry : fs::directory_iterator{words}) {
    std::ifstream in{entry.path()};
    std::string line;
    if (entry.path().extension() != ".part" && std::getline(in, line))
      result.words[entry.path().stem().string()].push_back(line);
  }
  return result;
}

/// A training that continues from job to job, each of which ends by a kill.
class killed_training {
 public:
  explicit killed_training(std::uint32_t jobs) : right_{right_hashes((jobs + 1) * steps_of_a_job)}
  {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~killed_training() { fs::remove_all(folder_); }

  std::uint64_t killed = 0;   ///< jobs in which somebody died
  std::uint64_t resumed = 0;  ///< jobs that went on behind one of those, from where they had to
  std::string complaint;

  void run_job(std::uint64_t seed)
  {
    const std::uint32_t ranks = 2 + static_cast<std::uint32_t>(seed * 7 % 5) % 3;
    said all = run(folder_, seed, ranks);
    check_loaded(all, seed);
    for (const std::string& it : all.of("saved"))
      acknowledged_ = std::max<std::uint64_t>(acknowledged_, std::stoull(it));
    for (const std::string& it : all.of("verdict"))
      if (it != "finished" && it != "comm") complain("seed " + std::to_string(seed) + ": a rank said " + it);
    const bool has_death = all.of("verdict").size() < ranks;
    killed += has_death ? 1 : 0;
    if (seed == 0 &&
        all.of("hash") != std::vector<std::string>(ranks, std::to_string(right_.at(loaded_ + steps_of_a_job))))
      complain("the last job ended with other weights");
  }

 private:
  void complain(const std::string& what)
  {
    if (complaint.empty()) complaint = what;
  }
  /// All ranks that came so far loaded one generation, none older than what any rank was told to be safe, with the
  /// right bits.
  void check_loaded(said& all, std::uint64_t seed)
  {
    const auto& loaded = all.of("loaded");
    if (loaded.empty()) {
      if (seed == 0) complain("the last job loaded nothing");
      return;  // the job was killed while it loaded, or a rank came later than the deadline
    }
    for (const std::string& it : loaded) {
      const auto numbers = support::split(it);
      const std::uint64_t step = std::stoull(numbers.at(1));
      if (it != loaded.front() || step < acknowledged_ || step >= right_.size() ||
          std::stoull(numbers.at(2)) != right_[step])
        return complain("seed " + std::to_string(seed) + ": loaded " + it + ", acknowledged were " +
                        std::to_string(acknowledged_) + " steps");
    }
    loaded_ = std::stoull(support::split(loaded.front()).at(1));
    resumed += killed > 0 ? 1 : 0;
  }

  fs::path folder_ = fs::temp_directory_path() / ("chunkmem_kills." + std::to_string(::getpid()));
  std::vector<std::uint64_t> right_;
  std::uint64_t acknowledged_ = 0;  // steps whose save returned on some rank
  std::uint64_t loaded_ = 0;        // step that the last job began with
};

/// @param least   kills that have to happen
void check_kills(std::uint64_t first_seed, std::uint64_t least, const char* name)
{
  if (std::getenv("CHUNKMEM_MPIRUN") == nullptr || std::getenv("CHUNKMEM_MPI_RANK") == nullptr)
    SKIP("CHUNKMEM_MPIRUN and CHUNKMEM_MPI_RANK say what to run");
  killed_training training{static_cast<std::uint32_t>(least * 2)};
  std::uint64_t jobs = 0;
  while (training.killed < least && jobs < least * 2 && training.complaint.empty())
    training.run_job(first_seed + jobs++);
  training.run_job(0);
  CHECK(training.complaint == "");
  CHECK(training.killed >= least);
  WARN(training.killed << " jobs killed, " << training.resumed << " of " << jobs + 1 << " went on");
  if (name == nullptr) return;
  support::write_figures(
      name, "ctest --preset test -R rank_kills",
      {{"checkpoint.rank_kills_resumed_percent", (training.complaint.empty() ? 100 : 0), "%", "==", 100}});
}

}  // namespace

TEST_CASE("after each of twenty kills while ranks save, other ranks go on from the newest whole checkpoint",
          "[rank_kills]")
{
  check_kills(1, 20, "test_rank_kills");
}

TEST_CASE("the same after a thousand kills", "[rank_kills][.slow]")
{
  check_kills(1'000, 1'000, nullptr);
}

}  // namespace kills_test
