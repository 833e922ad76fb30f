// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/workload/machine.hpp>
#include <chunkmem/workload/transformer.hpp>
#include <chunkmem/workload/transformer_costs.hpp>

#include <cstdint>

namespace max_model {

using chunkmem::bytes;
namespace workload = chunkmem::workload;

/// The bytes that programs take apart from a model. Assumed, and the same for every strategy without a rule of its own.
struct assumptions {
  bytes context{1'200'000'000};  ///< of each device: the driver, kernels, libraries
  bytes process{2'000'000'000};  ///< of the host, for each rank
  double host_reserve = 0.03;    ///< part of a node's host that is left to its system
};

/// One training in the terms of a strategy: Adam with single-precision states, 16-bit weights and gradients.
struct training_job {
  workload::transformer_shape shape;
  workload::training_setup setup;
  workload::machine machine;
  assumptions beside;

  [[nodiscard]] workload::rank_share rank() const { return workload::share_of_rank(machine); }
  [[nodiscard]] std::uint64_t parameters() const { return workload::parameters_of(shape); }
  /// The peak of activations and their gradients, on one device.
  [[nodiscard]] bytes activations() const { return workload::transformer_costs{shape, setup}.peak(); }
};

/// Bytes of each parameter: a 16-bit weight whose gradient takes its place, and master, momentum and variance.
inline constexpr std::uint64_t value_bytes = 2;
inline constexpr std::uint64_t state_bytes = 12;
inline constexpr std::uint64_t model_bytes = value_bytes + state_bytes;

}  // namespace max_model
