// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels.hpp"

#include <chunkmem/activation/checkpointed_block.hpp>
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace out_of_core {

using kernels::index;

using manager = chunkmem::manager<chunkmem::backend::host_arena, chunkmem::transfer::planned>;
using block_run = chunkmem::activation::block_run<manager>;
using tensor = chunkmem::tensor<float>;

[[nodiscard]] constexpr chunkmem::bytes bytes_of(index numbers)
{
  return chunkmem::bytes{static_cast<std::uint64_t>(numbers) * sizeof(float)};
}

/// Temporary numbers on the device. In a rehearsal a workspace has no bytes.
class workspace {
 public:
  workspace(manager& m, index numbers) : lease_{m.lease(chunkmem::tier::device, bytes_of(numbers))} {}
  [[nodiscard]] float* data() const { return reinterpret_cast<float*>(lease_.data()); }

 private:
  decltype(std::declval<manager&>().lease(chunkmem::tier::device, chunkmem::bytes{})) lease_;
};

/// Pictures of a batch that use a workspace at once: a sixteenth of the batch. The patches of a whole batch would take
/// as much room as all activations that a block saves.
[[nodiscard]] constexpr index pictures_at_once(index batch) noexcept
{
  return (batch + 15) / 16;
}

/// Calls `compute(first, count)` for the pictures of a batch, a few at a time. A rehearsal computes nothing.
template <class Compute>
void for_pictures(const manager& m, index batch, const Compute& compute)
{
  if (m.rehearsing()) return;
  const index most = pictures_at_once(batch);
  for (index first = 0; first < batch; first += most) compute(first, std::min(most, batch - first));
}

}  // namespace out_of_core
