// SPDX-License-Identifier: Apache-2.0
// The strategies without chunks: everything on the device, and everything but weights on the host.
#include "jobs.hpp"
#include "largest_model.hpp"
#include "plain.hpp"
#include "zero_offload.hpp"

#include <support/catch.hpp>

#include <cstdint>
#include <random>

namespace static_strategies_test {

using namespace max_model_jobs;
using max_model::memory_use;
using max_model::plain;
using max_model::taker;
using max_model::zero_offload;

TEST_CASE("without any strategy a device holds 16 B for each parameter", "[max_model]")
{
  training_job job = published("GPT2_1B", "rtx_4090", 1);
  // 20 layers of 12 h^2 + 13 h, the last norm, and tables of 50,257 and 1,024 rows.
  const std::uint64_t parameters = 20 * (12 * 2048 * 2048 + 13 * 2048) + 2 * 2048 + (50'257 + 1'024) * 2048;
  const memory_use use = plain{}.memory(job);
  CHECK(use.device.of(taker::values).count() == 2 * parameters);
  CHECK(use.device.of(taker::gradients).count() == 2 * parameters);
  CHECK(use.device.of(taker::states).count() == 12 * parameters);
  CHECK(use.device.taken().count() == 16 * parameters + 1'200'000'000 + job.activations().count());
  CHECK(use.fits());
  CHECK(use.host.of(taker::states) == bytes{});
  job.machine.device_bytes = use.device.taken();
  CHECK(plain{}.memory(job).fits());
  job.machine.device_bytes -= bytes{1};
  CHECK_FALSE(plain{}.memory(job).fits());
}

TEST_CASE("a static partition holds 2 B on the device and the rest on the host", "[max_model]")
{
  // The model and device of its abstract: 13 billion parameters on one V100 of 32 GB.
  training_job job = published("GPT3_13B", "v100_32_node", 1);
  job.machine.devices = 1;
  job.machine.rates.peer_bytes_per_second = 0;
  const memory_use use = zero_offload{}.memory(job);
  CHECK(use.fits());
  CHECK(use.device.of(taker::values).count() == 2 * job.parameters());
  CHECK(use.device.of(taker::buffers).count() == 1'000'000'000);
  CHECK(use.host.of(taker::gradients).count() == 2 * job.parameters());
  CHECK(use.host.of(taker::states).count() == 12 * job.parameters());
  job.shape = workload::shape_of("PatrickStar", "NV_39B");
  CHECK_FALSE(zero_offload{}.memory(job).fits());

  job = published("GPT3_13B", "v100_32_node", 1);
  const memory_use shared = zero_offload{}.memory(job);
  CHECK(shared.device.of(taker::values).count() == 2 * job.parameters());
  CHECK(shared.host.of(taker::states).count() == (12 * job.parameters() + 7) / 8);
}

TEST_CASE("more memory never makes a static strategy fail", "[max_model]")
{
  std::mt19937_64 random{3};
  for (int run = 0; run < 300; ++run) {
    training_job job = random_job(random);
    const bool with_less[] = {plain{}.memory(job).fits(), zero_offload{}.memory(job).fits()};
    job.machine.device_bytes = job.machine.device_bytes + bytes{random() % 10'000'000'000};
    job.machine.host_bytes = job.machine.host_bytes + bytes{random() % 10'000'000'000};
    CHECK((!with_less[0] || plain{}.memory(job).fits()));
    CHECK((!with_less[1] || zero_offload{}.memory(job).fits()));
  }
}

}  // namespace static_strategies_test
