// SPDX-License-Identifier: Apache-2.0
#include "peak_formula.hpp"

#include "jobs.hpp"
#include "largest_model.hpp"

#include <support/catch.hpp>

#include <cmath>
#include <cstdint>
#include <random>

namespace peak_formula_test {

using namespace max_model_jobs;
using max_model::find_largest;
using max_model::peak_formula;

TEST_CASE("the peak formula gives what another calculator of it gave", "[max_model]")
{
  // With devices and hosts in powers of ten, only the parameters of layers, and no working bytes apart from a layer's.
  struct row {
    const char* model;
    const char* machine;
    std::uint64_t device_bytes;
    std::uint64_t micro_batch;
    double parameters;
  };
  for (const row& it : {row{"GPT3_18B", "v100_32_node", 32, 1, 31.8}, row{"GPT3_18B", "v100_32_node", 32, 2, 31.0},
                        row{"GPT3_18B", "v100_32_node", 32, 4, 29.4}, row{"GPT3_18B", "v100_32_node", 32, 8, 26.6},
                        row{"GPT3_18B", "v100_32_node", 32, 16, 22.2}, row{"DS_20B", "v100_32_node", 32, 4, 29.4},
                        row{"DS_68B", "a100_40_node", 40, 1, 87}, row{"DS_68B", "a100_40_node", 40, 8, 80},
                        row{"DS_68B", "a100_40_node", 40, 16, 73}, row{"DS_68B", "a100_80_node", 80, 1, 111},
                        row{"DS_68B", "a100_80_node", 80, 8, 101}, row{"DS_68B", "a100_80_node", 80, 16, 92},
                        row{"175B", "a100_40_four_nodes", 40, 1, 340}, row{"175B", "a100_40_four_nodes", 40, 4, 305},
                        row{"175B", "a100_40_four_nodes", 40, 8, 249}, row{"GPT3_10B", "rtx_4090", 24, 1, 5.8},
                        row{"GPT3_10B", "rtx_4090", 24, 4, 5.6}, row{"GPT3_10B", "rtx_4090", 24, 16, 5.2}}) {
    training_job job = published(it.model, it.machine, it.micro_batch);
    job.machine.device_bytes = bytes{it.device_bytes * 1'000'000'000};
    const double found = static_cast<double>(find_largest(peak_formula{}, job).parameters()) / 1e9;
    CAPTURE(it.model, it.machine, it.micro_batch, found, it.parameters);
    CHECK(std::abs(found - it.parameters) <= 0.04 * it.parameters);
  }
}

TEST_CASE("the peak formula counts every byte of a node once", "[max_model]")
{
  std::mt19937_64 random{11};
  int fitting = 0;
  int other = 0;
  for (int run = 0; run < 3000; ++run) {
    const training_job job = random_job(random);
    const double ranks = job.machine.devices;
    const double h = static_cast<double>(job.shape.hidden);
    const double device = static_cast<double>(job.machine.device_bytes.count()) -
                          static_cast<double>(job.beside.context.count()) - 3 * 2 * 4 * h * h -
                          static_cast<double>(job.activations().count());
    const double host = 0.97 * static_cast<double>(job.machine.host_bytes.count()) / ranks -
                        static_cast<double>(job.beside.process.count());
    const double needed = 14 * static_cast<double>(job.parameters()) / ranks;
    if (std::abs(device + host - needed) < 1e3 || std::abs(device) < 1e3 || std::abs(host) < 1e3)
      continue;  // roundings
    const bool expected = device > 0 && host > 0 && needed < device + host;
    CAPTURE(run);
    CHECK(peak_formula{}.memory(job).fits() == expected);
    (expected ? fitting : other) += 1;
  }
  CHECK(fitting > 300);
  CHECK(other > 300);
}

TEST_CASE("of the largest model a node holds, less than a layer is missing", "[max_model]")
{
  for (const char* const machine : {"v100_32_node", "a100_40_node", "gh200"}) {
    const training_job job = published("GPT3_18B", machine, 4);
    const max_model::largest_model found = find_largest(peak_formula{}, job);
    CHECK(found.use.fits());
    CHECK_FALSE(peak_formula{}.memory(max_model::with_layers(job, found.layers() + 1)).fits());
  }
}

}  // namespace peak_formula_test
