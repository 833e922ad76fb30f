// SPDX-License-Identifier: Apache-2.0
#include "largest_model.hpp"

#include "jobs.hpp"
#include "plain.hpp"

#include <support/catch.hpp>

#include <cstdint>

namespace largest_model_test {

using namespace max_model_jobs;
using max_model::most_layers;

TEST_CASE("bisection finds every limit, and asks only in range", "[max_model]")
{
  for (std::uint64_t most = 1; most <= 70; ++most) {
    for (std::uint64_t limit = 0; limit <= most + 2; ++limit) {
      int asked = 0;
      const std::uint64_t found = most_layers(
          [&](std::uint64_t layers) {
            ++asked;
            CHECK(layers >= 1);
            CHECK(layers <= most);
            return layers <= limit;
          },
          most);
      CHECK(found == std::min(limit, most));
      CHECK(asked <= 16);
    }
  }
}

TEST_CASE("a width keeps the kind of a model", "[max_model]")
{
  const workload::transformer_shape twice = max_model::with_width(workload::shape_of("PatrickStar", "GPT3_18B"), 8192);
  CHECK(twice == workload::transformer_shape{workload::transformer_style::gpt, 90, 8192, 16, 16, 4 * 8192, 50'257, 8192,
                                             1024, 1024, true});
  const workload::transformer_shape llama = max_model::with_width(workload::shape_of("Gemini LLaMA", "7b"), 8192);
  CHECK(llama.ffn == 22'016);
  CHECK(llama.heads == 32);
  CHECK_THROWS_AS(max_model::with_width(workload::shape_of("PatrickStar", "GPT3_18B"), 4097), chunkmem::config_error);
  CHECK_THROWS_AS(max_model::with_width(workload::shape_of("Gemini LLaMA", "7b"), 33), chunkmem::config_error);
}

TEST_CASE("what fits nowhere has no layers, and its bytes are those of one", "[max_model]")
{
  training_job job = published("GPT3_18B", "v100_32_node", 1);
  job.machine.device_bytes = bytes{1'000'000'000};
  const max_model::largest_model found = max_model::find_largest(max_model::plain{}, job);
  CHECK(found.layers() == 0);
  CHECK(found.parameters() == 0);
  CHECK(found.part_of_machine() == 0);
  CHECK_FALSE(found.use.fits());
  CHECK(found.use.device.of(max_model::taker::values).count() == 2 * max_model::with_layers(job, 1).parameters());
}

}  // namespace largest_model_test
