// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/workload/transformer.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace configurator {

/// How ranks add gradients up, and gather weights.
enum class sum_route : std::uint8_t {
  ring,    ///< each rank sends to the next one, as NCCL does
  direct,  ///< each rank sends to every other rank at once, as `collective::mpi` does
};

/// The traits of a trainer that the shape of its model does not tell.
///
///     const trainer_traits in_single_precision{.activation_bytes = 4, .sums = sum_route::direct};
struct trainer_traits {
  std::uint32_t activation_bytes = 2;  ///< of a number between layers, and of those that runs keep
  sum_route sums = sum_route::ring;
};

/// A model, and the trainer that trains it.
///
///     const step_latency latency{whole, trained_model{shape, {.activation_bytes = 4}}};
///
/// Where a trainer has the usual traits, its shape alone will do.
struct trained_model {
  constexpr trained_model(const workload::transformer_shape& of, const trainer_traits& by = {}) : shape{of}, trainer{by}
  {
  }

  workload::transformer_shape shape;
  trainer_traits trainer;
};

}  // namespace configurator

}  // namespace chunkmem::inline v0
