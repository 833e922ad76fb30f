// SPDX-License-Identifier: Apache-2.0
#include "planned.hpp"

#include "jobs.hpp"

#include <support/catch.hpp>

#include <cstdint>
#include <set>

namespace planned_test {

using namespace max_model_jobs;
using max_model::planned;
namespace planner = chunkmem::planner;

namespace {

/// Layers of 0.8 million parameters, on a device of 40 MB and a host of `host_bytes`; only the model takes bytes.
training_job small_job(std::uint32_t devices, std::uint64_t host_bytes)
{
  training_job job;
  job.shape = {workload::transformer_style::gpt, 4, 256, 4, 4, 1024, 2'000, 256, 128, 128, false};
  job.setup = {.micro_batch = 2, .has_logits = false};
  job.machine = small_machine(devices, 40'000'000, host_bytes);
  job.machine.rates = {1e12, 1e9, 1e9, devices > 1 ? 1e10 : 0.0, 0, 1e11, 1e9, 1e10};
  job.beside = {bytes{}, bytes{}, 0};
  return job;
}

}  // namespace

TEST_CASE("the largest model runs, one more layer does not, and no byte is there twice", "[max_model]")
{
  for (const std::uint32_t devices : {1U, 4U}) {
    const training_job job = small_job(devices, 120'000'000);
    std::set<std::uint64_t> tried;
    const max_model::largest_model found =
        planned{}.find_largest(job, [&](std::uint64_t layers) { CHECK(tried.insert(layers).second); });
    REQUIRE(found.layers() > 0);
    CHECK(planned{}.runs(found.job));
    CHECK_FALSE(planned{}.runs(max_model::with_layers(job, found.layers() + 1)));
    const double all = 40e6 * devices + 120e6 - static_cast<double>(found.job.activations().count()) * devices;
    const double model = 14.0 * static_cast<double>(found.parameters());
    CAPTURE(devices, found.layers(), model / all);
    CHECK(model <= all);
    CHECK(model >= 0.9 * all);
  }
}

TEST_CASE("what all lies on the device takes its computing and its updates there", "[max_model]")
{
  const training_job job = small_job(1, 400'000'000);
  training_job roomy = job;
  roomy.machine.device_bytes = bytes{400'000'000};
  const planner::training_forecast found = planned{}.fastest(roomy);
  REQUIRE(found.fits);
  CHECK(found.step.loaded_bytes == 0);
  CHECK(found.step.nanoseconds == found.step.computing);
  const planner::training_forecast short_of_room = planned{}.fastest(job);
  REQUIRE(short_of_room.fits);
  CHECK(short_of_room.step.nanoseconds > found.step.nanoseconds);
  training_job nowhere = job;
  nowhere.machine.host_bytes = bytes{1'000'000};
  const planner::training_forecast refused = planned{}.fastest(nowhere);
  CHECK_FALSE(refused.fits);
  CHECK_FALSE(refused.why_not.empty());
}

}  // namespace planned_test
