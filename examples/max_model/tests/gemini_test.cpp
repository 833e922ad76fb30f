// SPDX-License-Identifier: Apache-2.0
#include "gemini.hpp"

#include "gemini_auto.hpp"
#include "gemini_static.hpp"
#include "jobs.hpp"

#include <support/catch.hpp>

#include <cmath>
#include <random>

namespace gemini_test {

using namespace max_model_jobs;
using max_model::gemini_auto;
using max_model::gemini_chunks;
using max_model::gemini_static;
using max_model::memory_use;
using max_model::taker;

namespace {

double count(bytes size)
{
  return static_cast<double>(size.count());
}

/// Whether the options of a user can make the job fit, by trying their values one after the other.
bool some_parts_fit(const training_job& job, const gemini_chunks& chunks)
{
  const double device =
      count(job.rank().device_bytes) - count(job.beside.context) - count(chunks.gathered()) - count(job.activations());
  const double host = 0.97 * count(job.rank().host_bytes) - count(job.beside.process);
  const double values = count(chunks.values());
  const double states = count(chunks.states());
  for (int step = 0; step <= 1000; ++step) {
    const double part = step / 1000.0;
    if (values + states * (1 - part) <= device && (states + values) * part <= host) return true;
    if (values * (1 - part) <= device && states + values <= host) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("Gemini's search finds the chunks that its search was found to find", "[max_model]")
{
  struct row {
    const char* model;
    double mebi;
    double waste;  // percent of the elements
  };
  for (const row& it : {row{"GPT2_1B", 32.0, 3.13}, row{"GPT2_4B", 40.5, 0.99}, row{"GPT3_10B", 64.0, 0.63},
                        row{"DS_20B", 256.0, 1.29}, row{"DS_68B", 441.7, 36.05}, row{"175B", 588.9, 2.22}}) {
    const training_job job = published(it.model, "gh200", 1);
    const gemini_chunks chunks{job};
    CAPTURE(it.model);
    CHECK(std::abs(static_cast<double>(chunks.chunk()) / 1'048'576 - it.mebi) < 0.06);
    const double payload = static_cast<double>(job.parameters());
    CHECK(std::abs(100 * (count(chunks.values()) / 2 - payload) / payload - it.waste) < 0.3);
  }
}

TEST_CASE("what a rank holds of Gemini's chunks is a part, and a whole one while it computes", "[max_model]")
{
  const gemini_chunks alone{published("GPT3_10B", "gh200", 1)};
  CHECK(alone.gathered() == bytes{});
  const gemini_chunks shared{published("GPT3_10B", "v100_32_node", 1)};
  CHECK(shared.chunk() == alone.chunk());
  CHECK(shared.values().count() == (alone.values().count() + 7) / 8);
  CHECK(shared.states().count() == (alone.states().count() + 7) / 8);
  // The vocabulary's table of 50,257 by 4,096 is more than two chunks of 64 Mi.
  CHECK(shared.gathered().count() == 2 * 50'257 * 4096 + 2 * shared.chunk() / 8);
}

TEST_CASE("Gemini's static placement fits where some parts fit", "[max_model]")
{
  std::mt19937_64 random{5};
  int fitting = 0;
  int other = 0;
  for (int run = 0; run < 100; ++run) {
    const training_job job = random_job(random);
    const memory_use use = gemini_static{}.memory(job);
    const bool found = some_parts_fit(job, gemini_chunks{job});
    CAPTURE(run);
    if (found) CHECK(use.fits());
    if (!found && use.fits()) CHECK(count(use.host.room()) <= 0.01 * count(use.host.capacity()));
    (found ? fitting : other) += 1;
  }
  CHECK(fitting > 10);
  CHECK(other > 10);
}

TEST_CASE("Gemini's automatic placement, counted by hand", "[max_model]")
{
  const training_job job = published("GPT3_10B", "v100_32_node", 4);
  const gemini_chunks chunks{job};
  const memory_use use = gemini_auto{}.memory(job);
  CHECK(use.fits());
  const double device = count(job.machine.device_bytes);
  const double beside = count(job.activations()) + count(chunks.gathered());
  // First iteration: weights take less than a fifth of the device, so the peak of use is known.
  REQUIRE(count(chunks.values()) < 0.2 * device);
  const double near_states = std::min(count(chunks.states()), (device - beside - count(chunks.values())) * 3 / 4);
  CHECK(std::abs(count(use.device.of(taker::states)) - near_states) < 100);
  CHECK(use.device.of(taker::values) == chunks.values());
  const double away = count(chunks.states()) - near_states;
  CHECK(std::abs(count(use.host.of(taker::states)) - away) < 100);
  CHECK(std::abs(count(use.host.of(taker::values)) - away / 6) < 100);
  CHECK(use.device.taken() <= job.machine.device_bytes);
}

TEST_CASE("Gemini's automatic placement refuses what its first iteration cannot hold", "[max_model]")
{
  training_job job = published("GPT3_10B", "v100_32_node", 1);
  job.machine.device_bytes = bytes{gemini_chunks{job}.gathered().count() * 5 - 10};
  CHECK_FALSE(gemini_auto{}.memory(job).refusal.empty());
  job.machine.device_bytes = bytes{gemini_chunks{job}.gathered().count() * 5 + 10};
  CHECK(gemini_auto{}.memory(job).refusal.empty());
}

TEST_CASE("all model data is somewhere in Gemini's placements", "[max_model]")
{
  std::mt19937_64 random{6};
  for (int run = 0; run < 40; ++run) {
    const training_job job = random_job(random);
    const gemini_chunks chunks{job};
    for (const memory_use& use : {gemini_static{}.memory(job), gemini_auto{}.memory(job)}) {
      CHECK(use.device.of(taker::states) + use.host.of(taker::states) == chunks.states());
      CHECK(use.device.of(taker::values) + use.host.of(taker::values) + bytes{6} >= chunks.values());
      CHECK(use.device.of(taker::values) <= chunks.values());
    }
  }
}

}  // namespace gemini_test
