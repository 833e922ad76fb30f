// SPDX-License-Identifier: Apache-2.0
#include "simulation.hpp"

#include "jobs.hpp"
#include "plain.hpp"
#include "timeline.hpp"
#include "zero_offload.hpp"

#include <support/catch.hpp>

#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>

namespace simulation_test {

using namespace max_model_jobs;
namespace planner = chunkmem::planner;

namespace {

training_job small_job(std::uint32_t devices)
{
  training_job job;
  job.shape = {workload::transformer_style::gpt, 6, 256, 4, 4, 1024, 2'000, 256, 128, 128, false};
  job.setup = {.micro_batch = 2, .has_logits = false};
  job.machine = small_machine(devices, 400'000'000, 800'000'000);
  job.machine.rates = {1e12, 1e9, 1e9, devices > 1 ? 1e10 : 0.0, 0, 1e11, 1e9, 1e10};
  job.beside = {bytes{}, bytes{}, 0};
  return job;
}

/// Updates of one rank [ns].
double updates(const training_job& job, std::uint64_t ranks, double rate)
{
  return static_cast<double>(job.parameters()) / static_cast<double>(ranks) / rate * 1e9;
}

}  // namespace

TEST_CASE("plain takes what computing and updating the whole model takes on each device", "[max_model]")
{
  const training_job job = small_job(4);
  const max_model::plain it;
  const max_model::memory_use use = it.memory(job);
  REQUIRE(use.fits());
  const planner::training_forecast found = max_model::simulate(job, it.moves(job, use));
  REQUIRE(found.fits);
  const double computing =
      static_cast<double>(workload::transformer_costs{job.shape, job.setup}.step_flops()) / 0.5e12 * 1e9;
  const double expected = computing + updates(job, 1, 1e10) + updates(job, 1, 14e10);
  CHECK(found.step.loaded_bytes == 0);
  CHECK(found.step.collecting == 0);
  CHECK(std::abs(static_cast<double>(found.step.nanoseconds) - expected) <= 0.001 * expected);
}

TEST_CASE("ZeRO-Offload sends each gradient down and each value up, updates all on the host, and gathers once",
          "[max_model]")
{
  const training_job job = small_job(4);
  const max_model::zero_offload it;
  const max_model::memory_use use = it.memory(job);
  REQUIRE(use.fits());
  max_model::movement moves = it.moves(job, use);
  moves.own_chunk = 16'384;  // many chunks, so that those at the ends do not count
  const planner::training_forecast found = max_model::simulate(job, moves);
  REQUIRE(found.fits);
  const double own = static_cast<double>(job.parameters()) / 4;
  CHECK(std::abs(static_cast<double>(found.step.loaded_bytes) - 2 * own) <= 0.05 * 2 * own);
  CHECK(std::abs(static_cast<double>(found.step.written_back_bytes) - 2 * own) <= 0.05 * 2 * own);
  const double host = updates(job, 4, 1e9 / 4) + updates(job, 4, 14e9 / 4);
  CHECK(std::abs(static_cast<double>(found.step.updating) - host) <= 0.01 * host);
  const double ring = 2 * 3 * 2 * own / 1e10 * 1e9;  // values and gradients, three other parts
  CHECK(std::abs(static_cast<double>(found.step.collecting) - ring) <= 0.01 * ring);
}

TEST_CASE("a timeline begins at 0, has a level for each piece of work, and no chunk twice at once", "[max_model]")
{
  const training_job job = small_job(1);
  const max_model::zero_offload it;
  max_model::movement moves = it.moves(job, it.memory(job));
  moves.own_chunk = 65'536;
  const planner::training_forecast found = max_model::simulate(job, moves);
  REQUIRE(found.fits);
  std::ostringstream out;
  max_model::write_timeline(out, found);
  std::istringstream lines{out.str()};
  std::string line;
  std::getline(lines, line);
  CHECK(line == "kind,track,begin_seconds,end_seconds,bytes");
  std::size_t count = 0, phases = 0;
  double first = 1e9;
  std::map<std::string, double> left;  // the last time at which each chunk left
  while (std::getline(lines, line)) {
    const std::size_t after = line.find(',', line.find(',') + 1) + 1;
    const double begin = std::stod(line.substr(after));
    const double end = std::stod(line.substr(line.find(',', after) + 1));
    CHECK(begin <= end);
    first = std::min(first, begin);
    if (line.starts_with("phase,")) {
      ++phases;
      continue;
    }
    if (!line.starts_with("chunk,")) {
      ++count;
      continue;
    }
    double& before = left.try_emplace(line.substr(0, after), 0.0).first->second;
    CHECK(before <= begin);
    before = end;
  }
  CHECK(first == 0);
  CHECK(phases == 3);
  CHECK(left.size() > 1);
  const planner::training_timeline& times = found.timeline;
  CHECK(count == 2 + 4 * times.computing.size() + times.gathering.size() + times.copies.size() + times.updating.size());
}

}  // namespace simulation_test
