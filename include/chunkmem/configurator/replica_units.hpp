// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/sharding/unit_plan.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace configurator {

/// The units in which replicas sum gradients and gather weights, of 16 bits each.
///
///     const replica_units units = replica_units_of(work.tensors[0], work.chunk, plan.replicas);
///     const double seconds = units.count * seconds_of_a_sum(units.size / units.count);
struct replica_units {
  std::uint64_t count = 0;
  bytes size{};  ///< of all of them, gaps included
};

/// The units of a part on its own, as a sharded_model makes them.
///
///     const replica_units units = replica_units_of(work.tensors[0], work.chunk, plan.replicas);
///     std::cout << units.count << " gathers, " << units.size.count() << " B together\n";
///
/// @param tensors   elements of each
/// @throws config_error    replicas cannot divide a chunk
/// @throws size_overflow   bytes beyond 64 bits
/// Cost: that of the layout
[[nodiscard]] inline replica_units replica_units_of(std::span<const std::uint64_t> tensors, bytes chunk,
                                                    std::uint32_t replicas)
{
  sharding::unit_plan<size_class_layout> plan;
  for (const std::uint64_t elements : tensors) plan.add(dtype::bfloat16, group_id{0}, true, elements);
  plan.seal(chunk, replicas);
  replica_units found;
  for (const sharding::unit& it : plan.units()) {
    ++found.count;
    found.size += bytes{it.elements} * size_of(it.type);
  }
  return found;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
