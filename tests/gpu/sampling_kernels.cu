// SPDX-License-Identifier: Apache-2.0
// The kernels that choose and keep the rows of a sampled input.
#include <chunkmem/activation/sampling_kernels.hpp>
#include <gpu/start.cuh>

namespace gpu {

using namespace chunkmem;
using namespace chunkmem::activation::detail;

template void start(CUstream_st*, const row_squares_kernel<float>&);
template void start(CUstream_st*, const row_squares_kernel<bf16>&);
template void start(CUstream_st*, const row_squares_kernel<fp16>&);
template void start(CUstream_st*, const add_squares_kernel&);
template void start(CUstream_st*, const weigh_kernel&);
template void start(CUstream_st*, const largest_number_kernel&);
template void start(CUstream_st*, const keys_kernel&);
template void start(CUstream_st*, const units_kernel&);
template void start(CUstream_st*, const always_kernel&);
template void start(CUstream_st*, const places_kernel&);
template void start(CUstream_st*, const keep_rows_kernel<float>&);
template void start(CUstream_st*, const keep_rows_kernel<bf16>&);
template void start(CUstream_st*, const keep_rows_kernel<fp16>&);

}  // namespace gpu
