// SPDX-License-Identifier: Apache-2.0
// Ranks that are killed or stopped while the others wait for them: real processes, real signals, under mpirun.
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
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace deaths_test {

namespace fs = std::filesystem;
using clock = std::chrono::steady_clock;

struct words_and_time {
  std::string words;
  std::int64_t time = 0;  // [ns]
};

std::optional<words_and_time> read(const fs::path& file)
{
  std::ifstream in{file};
  std::string line;
  if (!std::getline(in, line)) return {};
  const auto space = line.rfind(' ');
  return words_and_time{line.substr(0, space), std::stoll(line.substr(space + 1))};
}

struct outcome {
  std::uint32_t failed = 0;    // survivors with a comm_error that also destroyed what they had
  std::uint32_t finished = 0;  // must be none, but where nobody died
  std::uint32_t missing = 0;
  std::string other;  // what else somebody said
  bool died = false;
  double late = -1e9;  // of the last survivor's error, behind death + deadline [s]
};

fs::path fresh_folder(const std::string& of)
{
  const fs::path folder = fs::temp_directory_path() / ("chunkmem_deaths." + std::to_string(::getpid()) + "." + of);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

/// @param program   the variable that says which program each rank is
outcome run(const char* program, std::uint32_t seed, std::uint32_t ranks, std::chrono::milliseconds deadline,
            std::chrono::seconds patience)
{
  const fs::path folder = fresh_folder(std::to_string(seed));
  std::vector<std::string> words = support::split(std::getenv("CHUNKMEM_MPIRUN"));
  for (const std::string& word :
       {std::string{"--enable-recovery"}, std::string{"-np"}, std::to_string(ranks), std::string{std::getenv(program)},
        folder.string(), std::to_string(seed), std::to_string(deadline.count())})
    words.push_back(word);
  outcome result;
  {
    support::launched_job launched{words, folder.string()};
    const auto begin = clock::now();
    const auto ended = [&] {
      std::uint32_t count = 0;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const auto verdict = read(folder / ("verdict." + std::to_string(rank)));
        const bool is_over =
            verdict && (verdict->words == "finished" || fs::exists(folder / ("destroyed." + std::to_string(rank))));
        count += is_over ? 1U : 0U;
      }
      return count + (fs::exists(folder / "death") ? 1U : 0U) >= ranks;
    };
    while (!ended() && !launched.has_ended() && clock::now() - begin < patience)
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  const auto death = read(folder / "death");
  result.died = death.has_value();
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const auto verdict = read(folder / ("verdict." + std::to_string(rank)));
    const bool is_destroyed = fs::exists(folder / ("destroyed." + std::to_string(rank)));
    if (!verdict || (!is_destroyed && verdict->words != "finished"))
      result.missing += 1;
    else if (verdict->words == "finished")
      result.finished += 1;
    else if (verdict->words == "deadline" || verdict->words == "told")
      result.failed += 1;
    else
      result.other += verdict->words;
    if (verdict && death && is_destroyed)
      result.late = std::max(result.late, static_cast<double>(verdict->time - death->time) * 1e-9 -
                                              static_cast<double>(deadline.count()) * 1e-3);
  }
  fs::remove_all(folder);
  return result;
}

/// @return   how late the latest error of all runs was [s]
double check_runs(std::uint32_t first, std::uint32_t runs, std::chrono::milliseconds deadline)
{
  double late = -1e9;
  std::uint32_t deaths = 0;
  for (std::uint32_t seed = first; seed < first + runs; ++seed) {
    const std::uint32_t ranks = 2 + seed % 3;
    const outcome result = run("CHUNKMEM_MPI_RANK", seed, ranks, deadline, std::chrono::seconds{60});
    INFO("seed " << seed << ", ranks " << ranks << ", said: " << result.other);
    CHECK(result.other.empty());
    CHECK(result.finished == 0);
    CHECK(result.missing == (result.died ? 1 : 0));  // of the dead there is no verdict
    CHECK(result.failed + result.missing == ranks);
    deaths += result.died ? 1U : 0U;
    if (result.died) late = std::max(late, result.late);
  }
  CHECK(deaths > 0);
  return late;
}

/// Runs of a pipeline of three stages, of which one dies unless the seed is a multiple of 11.
/// @return   how late the latest error of all runs was [s]
double check_pipelines(std::uint32_t first, std::uint32_t deaths, std::chrono::milliseconds deadline)
{
  constexpr std::uint32_t stages = 3;
  double late = -1e9;
  for (std::uint32_t seed = first; deaths > 0; ++seed) {
    const outcome result = run("CHUNKMEM_MPI_STAGE", seed, stages, deadline, std::chrono::seconds{60});
    const bool dies = seed % 11 != 0;
    INFO("seed " << seed << ", said: " << result.other << ", late: " << result.late << " s");
    CHECK(result.other.empty());
    CHECK(result.died == dies);
    CHECK(result.finished == (dies ? 0 : stages));
    CHECK(result.missing == (dies ? 1 : 0));  // of the dead there is no verdict
    CHECK(result.failed == (dies ? stages - 1 : 0));
    if (!dies) continue;
    CHECK(result.late <= 0.5);
    late = std::max(late, result.late);
    --deaths;
  }
  return late;
}

/// Losses of a rank of four that train a divided model: `first`, `first` + `stride`, ... below `end`.
/// @param latest   how long behind death and deadline the last survivor may have destroyed all that it made [s]
/// @return         how late it was [s]
double check_models(std::uint32_t first, std::uint32_t end, std::uint32_t stride, std::chrono::milliseconds deadline,
                    double latest)
{
  constexpr std::uint32_t ranks = 4;
  double late = -1e9;
  for (std::uint32_t number = first; number < end; number += stride) {
    const outcome result = run("CHUNKMEM_MPI_MODEL", number, ranks, deadline, std::chrono::seconds{60});
    INFO("number " << number << ", said: " << result.other << ", late: " << result.late << " s");
    CHECK(result.other.empty());
    CHECK(result.died);
    CHECK(result.finished == 0);
    CHECK(result.missing == 1);  // the lost rank
    CHECK(result.failed == ranks - 1);
    CHECK(result.late <= latest);
    late = std::max(late, result.late);
  }
  return late;
}

bool can_run(const char* program)
{
  return std::getenv("CHUNKMEM_MPIRUN") != nullptr && std::getenv(program) != nullptr;
}

TEST_CASE("every survivor of a rank that was killed or stopped gets an error", "[collective_mpi][deaths]")
{
  if (!can_run("CHUNKMEM_MPI_RANK")) SKIP("CHUNKMEM_MPIRUN and CHUNKMEM_MPI_RANK say what to run");
  const double late = check_runs(1, 5, std::chrono::milliseconds{1'000});
  support::write_figures("test_collective_mpi", "ctest --preset bench -R collective_mpi.deaths",
                         {{"collective.mpi_death_to_error_seconds_over_deadline", late, "s", "<=", 0.5}});
}

TEST_CASE("where a rank is silent after it left its group, the others end with a message", "[collective_mpi][deaths]")
{
  if (!can_run("CHUNKMEM_MPI_RANK")) SKIP("CHUNKMEM_MPIRUN and CHUNKMEM_MPI_RANK say what to run");
  const fs::path folder = fresh_folder("end");
  std::vector<std::string> words = support::split(std::getenv("CHUNKMEM_MPIRUN"));
  for (const std::string& word : {std::string{"-np"}, std::string{"2"}, std::string{std::getenv("CHUNKMEM_MPI_RANK")},
                                  folder.string(), std::string{"end"}, std::string{"1000"}})
    words.push_back(word);
  bool has_ended = false;
  {
    support::launched_job launched{words, folder.string()};
    const auto begin = clock::now();
    while (!(has_ended = launched.has_ended()) && clock::now() - begin < std::chrono::seconds{60})
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  std::ifstream in{folder / "errors"};
  const std::string said{std::istreambuf_iterator<char>{in}, {}};
  INFO(said);
  CHECK(has_ended);
  CHECK(said.find("MPI_Finalize did not return within 1000 ms") != std::string::npos);
  fs::remove_all(folder);
}

TEST_CASE("where a rank of a divided model is killed, stopped or throws, the others end with all that they made",
          "[collective_mpi][deaths]")
{
  if (!can_run("CHUNKMEM_MPI_MODEL")) SKIP("CHUNKMEM_MPIRUN and CHUNKMEM_MPI_MODEL say what to run");
  constexpr double ever = 1e9;  // a machine may stand still
  (void)check_models(5, 336, 67, std::chrono::milliseconds{1'000}, ever);
}

TEST_CASE("where a rank of a divided model is lost at any call in any way, the others end by their deadline",
          "[collective_mpi][deaths][.slow]")
{
  if (!can_run("CHUNKMEM_MPI_MODEL")) SKIP("CHUNKMEM_MPIRUN and CHUNKMEM_MPI_MODEL say what to run");
  const double late = check_models(0, 336, 1, std::chrono::milliseconds{1'000}, 0.5);
  std::ostringstream said;
  said << "all of a survivor destroyed at the latest " << late << " s after death and deadline";
  WARN(said.str());
}

TEST_CASE("every survivor of fifty killed or stopped ranks gets an error", "[collective_mpi][deaths][.slow]")
{
  if (!can_run("CHUNKMEM_MPI_RANK")) SKIP("CHUNKMEM_MPIRUN and CHUNKMEM_MPI_RANK say what to run");
  const double late = check_runs(1'000, 50, std::chrono::milliseconds{3'000});
  std::ostringstream said;
  said << "latest error " << late << " s after death and deadline";
  WARN(said.str());
}

TEST_CASE("every other stage of a pipeline gets an error when one was killed or stopped at one of fifty calls",
          "[collective_mpi][deaths][.slow]")
{
  if (!can_run("CHUNKMEM_MPI_STAGE")) SKIP("CHUNKMEM_MPIRUN and CHUNKMEM_MPI_STAGE say what to run");
  const double late = check_pipelines(2'001, 50, std::chrono::milliseconds{1'000});
  std::ostringstream said;
  said << "latest error " << late << " s after death and deadline";
  WARN(said.str());
}

}  // namespace deaths_test
