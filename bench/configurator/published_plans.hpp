// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <cstdint>

/// Models, plans and speeds that Megatron's authors published, on nodes of eight A100 of 80 GB.
///
/// Source: Narayanan et al. 2021 (arXiv 2104.04473), table 1; micro-batches and parts of a stage are those of
/// examples/sc21/run_table_1.sh of NVIDIA/Megatron-LM.
namespace published_plans {

struct published_plan {
  const char* name;
  std::uint64_t heads, hidden, layers;
  std::uint32_t tensor, stages, devices;
  std::uint64_t rows, micro_batch;
  std::uint32_t parts;
  double teraflops;  ///< of a device, in a second
};
inline constexpr published_plan table[] = {{"1.7B", 24, 2304, 24, 1, 1, 32, 512, 16, 1, 137},
                                           {"3.6B", 32, 3072, 30, 2, 1, 64, 512, 16, 1, 138},
                                           {"7.5B", 32, 4096, 36, 4, 1, 128, 512, 16, 1, 142},
                                           {"18.4B", 48, 6144, 40, 8, 1, 256, 1024, 8, 1, 135},
                                           {"39.1B", 64, 8192, 48, 8, 2, 512, 1536, 4, 1, 138},
                                           {"76.1B", 80, 10240, 60, 8, 4, 1024, 1792, 2, 3, 140},
                                           {"145.6B", 96, 12288, 80, 8, 8, 1536, 2304, 2, 2, 148},
                                           {"310.1B", 128, 16384, 96, 8, 16, 1920, 2160, 1, 2, 155},
                                           {"529.6B", 128, 20480, 105, 8, 35, 2520, 2520, 1, 3, 163},
                                           {"1008.0B", 160, 25600, 128, 8, 64, 3072, 3072, 1, 1, 163}};

inline constexpr double vocabulary = 51'200, row_tokens = 2'048;

[[nodiscard]] inline chunkmem::configurator::trained_model model_of(const published_plan& it)
{
  return {chunkmem::workload::transformer_shape{.layers = it.layers,
                                                .hidden = it.hidden,
                                                .heads = it.heads,
                                                .kv_heads = it.heads,
                                                .ffn = 4 * it.hidden,
                                                .vocabulary = static_cast<std::uint64_t>(vocabulary),
                                                .embedding = it.hidden,
                                                .positions = static_cast<std::uint64_t>(row_tokens),
                                                .sequence = static_cast<std::uint64_t>(row_tokens)},
          chunkmem::configurator::trainer_traits{.gradient_bytes = 4, .fuses_attention = false}};
}

}  // namespace published_plans
