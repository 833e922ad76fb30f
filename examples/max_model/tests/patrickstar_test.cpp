// SPDX-License-Identifier: Apache-2.0
#include "patrickstar.hpp"

#include "jobs.hpp"
#include "largest_model.hpp"

#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace patrickstar_test {

using namespace max_model_jobs;
using max_model::find_largest;
using max_model::patrickstar;

namespace {

double billions(const training_job& job, bool saves_memory = true)
{
  return static_cast<double>(find_largest(patrickstar{saves_memory}, job).parameters()) / 1e9;
}

bool is_within(double found, double wanted, double part)
{
  return std::abs(found - wanted) <= part * wanted;
}

/// The rules again, phase by phase, in floating point: the modules of a GPT, packed one after the other.
struct phases {
  const training_job& job;
  std::uint64_t chunk;
  double k;

  [[nodiscard]] double own() const
  {
    const double h = static_cast<double>(job.shape.hidden);
    const double limit = static_cast<double>(chunk);
    double chunks = 0;
    double room = 0;
    const auto put = [&](double module) {
      if (module > room) {
        ++chunks;
        room = limit;
      }
      room -= module;
    };
    for (std::uint64_t layer = 0; layer < job.shape.layers; ++layer)
      for (const double module : {2 * h, 3 * h * h + 3 * h, h * h + h, 2 * h, 4 * h * h + 4 * h, 4 * h * h + h})
        put(module);
    put(2 * h);
    return std::ceil(chunks / static_cast<double>(job.machine.devices)) * limit;
  }
  [[nodiscard]] bool run() const
  {
    const double h = static_cast<double>(job.shape.hidden);
    const double c = static_cast<double>(chunk);
    const double device = 0.9 * static_cast<double>(job.machine.device_bytes.count());
    const double tables = 16 * h * static_cast<double>(job.shape.vocabulary + job.shape.positions) +
                          (job.shape.ties_embedding ? 0 : 16 * h * static_cast<double>(job.shape.vocabulary));
    const double host = 0.9 * static_cast<double>(job.machine.host_bytes.count() / job.machine.devices) -
                        static_cast<double>(job.beside.process.count()) - tables - 1e9 - 2 * c;
    const double peak_leased = static_cast<double>(job.activations().count()) + 2 * (4 * h * h + 4 * h);
    const double backward = device - peak_leased - 2 * c * k * k;
    const double update = device - 16 * c;
    if (backward < 0 || update < 0 || host < 0) return false;
    return 14 * own() <= std::min(backward, update) + host && 6 * own() <= 0.1 * device + host && 2 * c <= 0.1 * device;
  }
};

}  // namespace

TEST_CASE("PatrickStar's rules give the models that it published", "[max_model]")
{
  const double eighteen =
      static_cast<double>(workload::parameters_of(workload::shape_of("PatrickStar", "GPT3_18B"))) / 1e9;
  for (const std::uint64_t rows : {8u, 12u, 16u}) {
    CAPTURE(rows, billions(published("GPT3_18B", "v100_32_node", rows)));
    CHECK(is_within(billions(published("GPT3_18B", "v100_32_node", rows)), eighteen, 0.15));
  }
  const double sixty_eight =
      static_cast<double>(workload::parameters_of(workload::shape_of("PatrickStar", "DS_68B"))) / 1e9;
  CHECK(is_within(billions(published("DS_68B", "a100_40_node", 8)), sixty_eight, 0.15));
  for (const std::uint64_t rows : {1u, 4u, 8u}) {
    CHECK(patrickstar{}.memory(published("175B", "a100_40_four_nodes", rows)).fits());
    CHECK_FALSE(patrickstar{.saves_memory = false}.memory(published("175B", "a100_40_four_nodes", rows)).fits());
  }
  CHECK_FALSE(patrickstar{}.memory(published("175B", "a100_40_four_nodes", 16)).fits());
}

TEST_CASE("PatrickStar's rules give what another calculator of them gave", "[max_model]")
{
  // Written before this one and independently, with first fit for each matrix and ten sizes of chunks.
  struct row {
    const char* model;
    const char* machine;
    std::uint64_t micro_batch;
    double parameters;
  };
  for (const row& it : {row{"GPT3_18B", "v100_32_node", 1, 23.6},  row{"GPT3_18B", "v100_32_node", 4, 21.3},
                        row{"GPT3_18B", "v100_32_node", 8, 19.9},  row{"GPT3_18B", "v100_32_node", 12, 19.9},
                        row{"GPT3_18B", "v100_32_node", 16, 18.1}, row{"GPT3_18B", "v100_32_node", 24, 14.9},
                        row{"DS_68B", "a100_40_node", 1, 65.2},    row{"DS_68B", "a100_40_node", 4, 65.2},
                        row{"DS_68B", "a100_40_node", 8, 65.2},    row{"DS_68B", "a100_40_node", 12, 65.2},
                        row{"DS_68B", "a100_40_node", 16, 57.1},   row{"DS_68B", "a100_40_node", 24, 51.0},
                        row{"DS_68B", "a100_80_node", 1, 81.5},    row{"DS_68B", "a100_80_node", 8, 81.5},
                        row{"DS_68B", "a100_80_node", 16, 73.4},   row{"DS_68B", "a100_80_node", 24, 72.4},
                        row{"175B", "a100_40_four_nodes", 1, 270}, row{"175B", "a100_40_four_nodes", 4, 250},
                        row{"175B", "a100_40_four_nodes", 8, 212}, row{"175B", "a100_80_four_nodes", 1, 348},
                        row{"175B", "a100_80_four_nodes", 8, 274}, row{"175B", "a100_80_four_nodes", 16, 230}}) {
    const double found = billions(published(it.model, it.machine, it.micro_batch));
    CAPTURE(it.model, it.machine, it.micro_batch, found, it.parameters);
    CHECK(is_within(found, it.parameters, 0.15));
  }
}

TEST_CASE("PatrickStar's phases are those of its rules, for any chunk", "[max_model]")
{
  std::mt19937_64 random{7};
  int fitting = 0;
  int other = 0;
  for (int run = 0; run < 3000; ++run) {
    const training_job job = random_job(random);
    const bool saves_memory = random() % 2 == 0;
    const std::uint64_t h = job.shape.hidden;
    const std::uint64_t chunk = 4 * h * h + 4 * h + random() % (12 * h * h);
    const bool expected = phases{job, chunk, saves_memory ? 1.0 : static_cast<double>(job.machine.devices)}.run();
    CAPTURE(run, chunk, saves_memory);
    CHECK(patrickstar{saves_memory}.memory(job, chunk).fits() == expected);
    (expected ? fitting : other) += 1;
  }
  CHECK(fitting > 300);
  CHECK(other > 300);
}

TEST_CASE("PatrickStar's chunk is one of those that it tries, and the best of them", "[max_model]")
{
  const training_job job = published("GPT3_18B", "v100_32_node", 8);
  const max_model::memory_use best = patrickstar{}.memory(job);
  CHECK(best.chunk % (std::uint64_t{8} << 20) == 0);
  for (const std::uint64_t mebi : {88u, 152u, 216u, 280u, 312u, 384u}) {
    const max_model::memory_use other = patrickstar{}.memory(job, mebi << 20);
    CHECK(best.missing() <= other.missing());
    if (best.missing() == other.missing() && other.refusal.empty()) CHECK(best.room() >= other.room());
  }
}

}  // namespace patrickstar_test
