// SPDX-License-Identifier: Apache-2.0
// The kernels of sampled inputs, and the sort and the sum of CUB, for programs that the host's compiler compiles.
#include "launch.cuh"

#include <chunkmem/activation/cub_sampling.cuh>
#include <chunkmem/activation/sampling_kernels.hpp>

#include <utility>

namespace gpt::cuda {

namespace {

using on_cub = chunkmem::activation::cub_sampling<chunkmem::optimizer::cuda_launcher>;

/// The part of a backend that a launcher uses.
struct one_stream {
  template <class Work>
  void launch(chunkmem::agent, Work&& work) const
  {
    std::forward<Work>(work)(stream);
  }
  cudaStream_t stream;
};

}  // namespace

using namespace chunkmem::activation::detail;

template void start(CUstream_st*, const row_squares_kernel<bf16>&);
template void start(CUstream_st*, const add_squares_kernel&);
template void start(CUstream_st*, const weigh_kernel&);
template void start(CUstream_st*, const largest_number_kernel&);
template void start(CUstream_st*, const keys_kernel&);
template void start(CUstream_st*, const units_kernel&);
template void start(CUstream_st*, const always_kernel&);
template void start(CUstream_st*, const places_kernel&);
template void start(CUstream_st*, const keep_rows_kernel<bf16>&);
template void start(CUstream_st*, const scale_rows_kernel<bf16>&);
template void start(CUstream_st*, const norms_kernel&);

std::uint64_t sampling_bytes(std::uint64_t count)
{
  return on_cub::temporary_bytes(count);
}
void sort_down(CUstream_st* stream, const std::uint64_t* from, std::uint64_t* to, std::uint64_t count,
               std::byte* temporary, std::uint64_t size)
{
  const one_stream on{stream};
  on_cub{}.sort_down(on, chunkmem::agent::compute, from, to, count, temporary, size);
}
void add_up(CUstream_st* stream, std::uint64_t* sums, std::uint64_t count, std::byte* temporary, std::uint64_t size)
{
  const one_stream on{stream};
  on_cub{}.add_up(on, chunkmem::agent::compute, sums, count, temporary, size);
}

}  // namespace gpt::cuda
