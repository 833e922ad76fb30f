// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "training_job.hpp"

#include <chunkmem/workload/files.hpp>
#include <chunkmem/workload/named_transformers.hpp>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace max_model_jobs {

using max_model::bytes;
using max_model::training_job;
namespace workload = chunkmem::workload;

inline workload::machine machine_of(const std::string& file)
{
  return workload::read_machine(std::string{MAX_MODEL_MACHINES} + "/" + file + ".json");
}

/// A published model on a machine, as a classifier where figures were published without logits.
inline training_job published(std::string_view model, const std::string& machine, std::uint64_t micro_batch)
{
  return {workload::shape_of("PatrickStar", model),
          {.micro_batch = micro_batch, .has_logits = false},
          machine_of(machine),
          {}};
}

/// A small machine whose capacities are easy to count with. All other rates are 1.
inline workload::machine small_machine(std::uint32_t devices, std::uint64_t device_bytes, std::uint64_t host_bytes)
{
  workload::machine made;
  made.name = "small";
  made.devices = devices;
  made.device_bytes = bytes{device_bytes};
  made.host_bytes = bytes{host_bytes};
  made.rates = {1, 1, 1, devices > 1 ? 1.0 : 0.0, 0, 1, 1, 1};
  return made;
}

/// Some hundred million parameters, on machines that are about as large. Only the model takes bytes.
inline training_job random_job(std::mt19937_64& random)
{
  const auto between = [&](std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>{low, high}(random);
  };
  training_job job;
  const std::uint64_t hidden = 512 * between(1, 6);
  job.shape = {workload::transformer_style::gpt,
               between(1, 40),
               hidden,
               8,
               8,
               4 * hidden,
               between(1'000, 60'000),
               hidden,
               512,
               512,
               between(0, 1) == 1};
  job.setup.micro_batch = between(1, 8);
  job.setup.has_logits = between(0, 1) == 1;
  job.machine = small_machine(static_cast<std::uint32_t>(1) << between(0, 3), between(1, 20) * 1'000'000'000,
                              between(1, 60) * 1'000'000'000);
  job.beside = {bytes{between(0, 1'000'000'000)}, bytes{between(0, 1'000'000'000)}, 0.03};
  return job;
}

}  // namespace max_model_jobs
