// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/chunk/chunk_size_search.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/planner/rank_settings.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/workload/transformer.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// Sizes of own chunks that are worth a simulation, in elements, the first one first, none twice.
///
/// The largest matrix of the body over the ranks, its half and its quarter, and the size with which whole tensors waste
/// the least. No size is larger than a fortieth of the rank's own elements, since the ends of a pass cost a chunk each.
/// Over more than eight ranks also the double of the largest of these, its double, and so on, down to five groups. All
/// are sizes that chunk_elements_of leaves as they are.
/// @throws config_error, size_overflow   no such shape
/// Cost: a search for the size of chunks.
[[nodiscard]] inline std::vector<std::uint64_t> chunk_candidates(const workload::transformer_shape& shape,
                                                                 std::uint64_t ranks)
{
  constexpr std::uint64_t fewest_chunks = 40;
  const std::uint64_t unit = chunk_elements_of({.chunk_elements = 1}, ranks);
  constexpr std::uint64_t of_one_node = 8;  // ranks
  std::vector<bytes> sizes;
  for (const workload::transformer_tensor& declared : workload::tensors_of(shape))
    sizes.push_back(align_up(bytes{2} * declared.elements(), ranks == 1 ? bytes{2} : bytes{2 * measure_block}));
  const std::uint64_t largest = std::max(workload::parameters_of(shape) / ranks / fewest_chunks / unit * unit, unit);
  std::vector<std::uint64_t> found;
  const auto add = [&](std::uint64_t elements) {
    const std::uint64_t size = std::min((elements / ranks + unit - 1) / unit * unit, largest);
    if (size > 0 && std::find(found.begin(), found.end(), size) == found.end()) found.push_back(size);
  };
  const std::uint64_t matrix = frame_limits::largest_of_body(sizes).count() / 2;
  // Halves of the size in use, also where a fortieth of the rank is less than the matrix.
  for (const std::uint64_t part : {1U, 2U, 4U}) add(std::min((matrix + ranks - 1) / ranks, largest) * ranks / part);
  chunk_size_search<size_class_layout> search;
  search.add(sizes);
  add(search.find(frame_limits::of(sizes)).frame.count() / 2);
  // Each collective of many ranks has a latency. A few large groups may then be faster, down to five of them.
  if (ranks <= of_one_node) return found;
  const std::uint64_t most = *std::max_element(found.begin(), found.end());
  for (std::uint64_t size = 2 * most; size * ranks * 5 <= workload::parameters_of(shape); size *= 2)
    found.push_back(size);
  return found;
}

/// The number of groups that the device must update, since the host has no room for more. Whole chunks and their moves
/// may need more groups, or fewer.
/// @param bytes_each   of the host, for a parameter that it updates: host_bytes_each
[[nodiscard]] constexpr std::uint32_t least_device_groups(std::uint32_t groups, std::uint64_t own_elements, bytes host,
                                                          std::uint64_t bytes_each) noexcept
{
  const std::uint64_t on_host = host.count() / bytes_each / own_elements;
  return on_host >= groups ? 0 : groups - static_cast<std::uint32_t>(on_host);
}

}  // namespace planner

}  // namespace chunkmem::inline v0
