// SPDX-License-Identifier: Apache-2.0
#include "elixir.hpp"

#include "jobs.hpp"
#include "largest_model.hpp"

#include <support/catch.hpp>

#include <cmath>
#include <cstdint>
#include <random>

namespace elixir_test {

using namespace max_model_jobs;
using max_model::elixir;
using max_model::memory_use;
using max_model::taker;

TEST_CASE("Elixir's cost model puts blocks first with one rank, states with more", "[max_model]")
{
  // Computed independently of this program.
  CHECK(std::abs(elixir::gains{1}.block - 0.1905) < 1e-4);
  CHECK(std::abs(elixir::gains{1}.states - 0.0907) < 1e-4);
  CHECK(std::abs(elixir::gains{2}.block - 0.107) < 1e-3);
  CHECK(std::abs(elixir::gains{2}.states - 0.118) < 1e-3);
  CHECK(std::abs(elixir::gains{4}.block - 0.058) < 1e-3);
  CHECK(std::abs(elixir::gains{4}.states - 0.155) < 1e-3);
}

TEST_CASE("Elixir's range of chunks begins at a power of two that holds the largest tensor", "[max_model]")
{
  const std::uint64_t mebi = std::uint64_t{1} << 20;
  CHECK(max_model::elixir_range{1}.least == 16 * mebi);
  CHECK(max_model::elixir_range{16 * mebi}.least == 16 * mebi);
  CHECK(max_model::elixir_range{16 * mebi + 1}.least == 32 * mebi);
  CHECK(max_model::elixir_range{576 * mebi}.least == 1024 * mebi);
  CHECK(max_model::elixir_range{576 * mebi}.most == 3 * 1024 * mebi);
}

TEST_CASE("with several ranks Elixir places chunks with their states while the device lasts", "[max_model]")
{
  const training_job job = published("GPT3_18B", "v100_32_node", 4);
  const memory_use use = elixir{}.memory(job);
  REQUIRE(use.fits());
  const std::uint64_t h = 4096;
  const std::uint64_t table = 50'257 * h;
  const std::uint64_t layer = 12 * h * h + 13 * h;
  const std::uint64_t blocks = std::max<std::uint64_t>(4, (layer + use.chunk - 1) / use.chunk + 1) + 2;
  CHECK(use.device.of(taker::buffers).count() == 2 * blocks * use.chunk + 2 * (table + table));
  CHECK(use.device.of(taker::program).count() == 2'147'483'648);
  const std::uint64_t part = 14 * use.chunk / 8;
  const std::uint64_t placed = (use.device.of(taker::values) + use.device.of(taker::states)).count();
  CHECK(placed % part == 0);
  CHECK(use.device.room().count() < part);
  // The rest is on the host, and nothing is missing.
  const std::uint64_t held = (use.host.of(taker::values) + use.host.of(taker::states)).count() + placed;
  CHECK(held >= 14 * job.parameters() / 8);
  CHECK(held <= 14 * job.parameters() / 8 * 106 / 100);  // chunks are not quite full
}

TEST_CASE("with one rank Elixir's blocks come first, and states get what is left", "[max_model]")
{
  training_job job = published("GPT3_10B", "gh200", 4);
  job.machine.device_bytes = bytes{24'000'000'000};
  const memory_use few = elixir{}.memory(job);
  const std::uint64_t block = 2 * few.chunk;
  CHECK(few.device.of(taker::values) == bytes{});  // blocks took all
  CHECK(few.device.room().count() < block);
  job.machine.device_bytes = bytes{96'000'000'000};
  const memory_use many = elixir{}.memory(job);
  CHECK(many.device.of(taker::buffers).count() >= 2 * (job.parameters() - 50'257 * std::uint64_t{4096}));
  CHECK(many.device.of(taker::states) > bytes{});
}

TEST_CASE("Elixir never takes more of a device than there is, unless it does not fit", "[max_model]")
{
  std::mt19937_64 random{9};
  int fitting = 0;
  for (int run = 0; run < 100; ++run) {
    const training_job job = random_job(random);
    const memory_use use = elixir{}.memory(job);
    CHECK(use.device.of(taker::set_aside).count() + 10 >= job.activations().count() / 4);
    if (!use.fits()) continue;
    ++fitting;
    CHECK(use.device.taken() <= job.machine.device_bytes);
    CHECK(use.host.taken().count() <= job.machine.host_bytes.count() / job.machine.devices);
  }
  CHECK(fitting > 10);
}

}  // namespace elixir_test
