// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

/// Whole trainings of the dense network, compiled with their kernels: on the host by a loop, on the GPU by nvcc.
namespace gpu {

enum class room : std::uint8_t { smallest, half_more, unlimited };

struct dense_setting {
  room device = room::unlimited;
  bool half = false;        ///< bf16 weights with masters, else float32
  bool in_place = false;    ///< gradients take the bytes of their weights; of 16 bits only
  bool same_batch = false;  ///< in every step, as a captured step has it
  std::uint32_t steps = 6;
};

// Each returns every byte that the training left.

[[nodiscard]] std::vector<std::byte> train_on_host(const dense_setting& setting);
/// Kernels on the GPU, updates on the host.
[[nodiscard]] std::vector<std::byte> train_on_gpu(const dense_setting& setting);
/// All of it on the GPU.
[[nodiscard]] std::vector<std::byte> train_and_update_on_gpu(const dense_setting& setting);
/// The same; the last three steps are replays of a captured one. The batch is the same in every step.
[[nodiscard]] std::vector<std::byte> train_by_graph_on_gpu(const dense_setting& setting);

}  // namespace gpu
