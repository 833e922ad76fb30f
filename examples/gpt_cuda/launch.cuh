// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda_math.hpp"
#include "team.hpp"

#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/launch_kernels.cuh>

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace gpt::cuda {

inline constexpr unsigned threads_of_a_block = 256;
inline constexpr unsigned most_blocks = 1U << 20;  // a grid-stride loop does the rest

/// A body that processes one row by a warp.
template <class Body>
concept team_kernel = requires(const Body& body, const warp_team& team) { body(team, std::uint64_t{}); };

namespace [[gnu::visibility("hidden")]] hidden {

template <class Body>
__global__ void __launch_bounds__(threads_of_a_block) run_elements(const __grid_constant__ Body body)
{
  const std::uint64_t count = body.count();
  const std::uint64_t all = std::uint64_t{gridDim.x} * threads_of_a_block;
  for (std::uint64_t index = blockIdx.x * std::uint64_t{threads_of_a_block} + threadIdx.x; index < count; index += all)
    body(index);
}

/// All lanes of a warp have the same row, so all of them reach every shuffle.
template <class Body>
__global__ void __launch_bounds__(threads_of_a_block) run_teams(const __grid_constant__ Body body)
{
  constexpr unsigned teams = threads_of_a_block / lanes;
  const warp_team team{threadIdx.x % lanes};
  const std::uint64_t count = body.count();
  const std::uint64_t all = std::uint64_t{gridDim.x} * teams;
  for (std::uint64_t row = blockIdx.x * std::uint64_t{teams} + threadIdx.x / lanes; row < count; row += all)
    body(team, row);
}

}  // namespace hidden

template <class Body>
void start(CUstream_st* stream, const Body& body)
{
  if constexpr (chunkmem::optimizer::device_kernel<Body>) {
    chunkmem::optimizer::cuda_launcher{}(stream, body);
  } else {
    const std::uint64_t wanted = team_kernel<Body> ? body.count() * lanes : body.count();
    const std::uint64_t blocks = (wanted + threads_of_a_block - 1) / threads_of_a_block;
    const auto grid = static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks);
    if constexpr (team_kernel<Body>)
      hidden::run_teams<Body><<<grid, threads_of_a_block, 0, stream>>>(body);
    else
      hidden::run_elements<Body><<<grid, threads_of_a_block, 0, stream>>>(body);
  }
}

}  // namespace gpt::cuda
