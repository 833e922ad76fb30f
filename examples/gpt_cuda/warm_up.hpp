// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "packs.hpp"
#include "product.hpp"

#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/ownership/ownership_policy.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cstddef>
#include <cstdint>

namespace gpt::cuda {

/// Libraries take device memory at their first use. A training gets the memory that is free afterwards.
///
/// Three products, as forward and backward of the model have them: a handle of cuBLASLt, and kernels that are loaded.
/// @param backend   with room for the workspace and 24 KiB; unchanged afterwards
template <class Backend, class Math>
void warm_products(Backend& backend, Math& math)
{
  using chunkmem::bytes;
  using chunkmem::tier;
  constexpr std::uint32_t side = 64;
  constexpr std::uint64_t matrix = 2 * side * side;
  const bytes size{3 * matrix + Math::workspace_bytes};
  std::byte* const room = backend.allocate(tier::device, size);
  backend.fill(room, std::byte{}, size, chunkmem::agent::compute);
  for (const product_shape& shape :
       {plain_product(side, side, side), input_product(side, side, side), weight_product(side, side, side)}) {
    product one{.shape = shape};
    one.left = reinterpret_cast<const bf16*>(room);
    one.right = reinterpret_cast<const bf16*>(room + matrix);
    one.out = room + 2 * matrix;
    math.prepare(shape);
    math.multiply(backend, chunkmem::agent::compute, one, room + 3 * matrix);
  }
  backend.wait(chunkmem::agent::host, backend.record(chunkmem::agent::compute));
  backend.release(tier::device, room);
}

/// NCCL connects ranks with the first operation of each algorithm, which it chooses by operation and size (NCCL,
/// Environment Variables, NCCL_RUNTIME_CONNECT and NCCL_ALGO). So this runs each operation of a training, small and
/// large.
/// @param backend   with room for `largest`; unchanged afterwards
template <class Backend, class Groups>
void warm_groups(Backend& backend, Groups& groups, chunkmem::bytes largest)
{
  using chunkmem::agent;
  using chunkmem::ownership::process_group;
  std::byte* const room = backend.allocate(chunkmem::tier::device, largest);
  backend.fill(room, std::byte{}, largest, agent::compute);
  const chunkmem::collective::sum how{.type = chunkmem::dtype::bfloat16};
  for (const process_group kind : {process_group::all, process_group::node, process_group::across}) {
    auto& group = groups.of(kind);
    for (const chunkmem::bytes size : {chunkmem::bytes{std::uint64_t{group.ranks()} * 256}, largest}) {
      const auto parts = chunkmem::collective::shares::of(size, group.ranks());
      group.all_gather(backend, agent::compute, room, parts, 0);
      group.reduce_scatter(backend, agent::compute, room, parts, how, 0);
      group.all_reduce(backend, agent::compute, room, parts, how, 0);
    }
    group.finish(backend, agent::compute);
  }
  backend.release(chunkmem::tier::device, room);
}

/// Memory for warm libraries: kernels for new shapes are still loaded later.
inline constexpr chunkmem::bytes left_to_warm_libraries{std::uint64_t{256} << 20};

}  // namespace gpt::cuda
