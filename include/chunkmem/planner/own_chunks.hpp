// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/planner/parameter_groups.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// The own part of a group. On one rank the tensor itself. Over ranks two tensors, so that a 32-bit list has two chunks
/// of one frame.
///
///     for (const tensor<bf16> it : chunk.parts()) std::cout << index_of(it.id) << '\n';
struct own_chunk {
  std::array<tensor<bf16>, 2> tensors;
  std::array<std::uint64_t, 2> elements{};
  std::uint32_t count = 2;

  [[nodiscard]] std::span<const tensor<bf16>> parts() const noexcept { return std::span{tensors}.first(count); }
};

/// Elements of an own chunk, as it is used: a multiple of 256.
[[nodiscard]] constexpr std::uint64_t own_elements(std::uint64_t wanted) noexcept
{
  return (wanted + 255) / 256 * 256;
}

/// Declares a rank's part of each group. @param chunk   elements of a whole own chunk   @throws as the manager's `add`
template <class Manager>
[[nodiscard]] std::vector<own_chunk> declare_own_chunks(Manager& owner, const parameter_groups& groups,
                                                        std::uint64_t chunk, std::uint64_t ranks)
{
  std::vector<own_chunk> made;
  for (std::uint32_t group = 0; group < groups.groups(); ++group) {
    own_chunk it;
    if (ranks == 1) {
      it.elements = {groups.elements_of(group), 0};
    } else {
      const std::uint64_t own = std::min(chunk, own_elements((groups.elements_of(group) + ranks - 1) / ranks));
      it.elements = {std::min(own, chunk / 2), own - std::min(own, chunk / 2)};
    }
    it.count = it.elements[1] > 0 ? 2 : 1;
    for (std::uint32_t part = 0; part < it.count; ++part)
      it.tensors[part] = owner.template add<bf16>({it.elements[part]}, role::parameter);
    made.push_back(it);
  }
  return made;
}

}  // namespace planner

}  // namespace chunkmem::inline v0
