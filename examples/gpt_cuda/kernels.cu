// SPDX-License-Identifier: Apache-2.0
// The kernels of the GPT, for programs that the host's compiler compiles.
#include "attention_kernels.hpp"
#include "column_kernels.hpp"
#include "launch.cuh"
#include "loss_kernels.hpp"
#include "norm_kernels.hpp"
#include "pointwise_kernels.hpp"
#include "token_kernels.hpp"

namespace gpt::cuda {

template void start(CUstream_st*, const norm_forward_kernel&);
template void start(CUstream_st*, const norm_backward_kernel&);
template void start(CUstream_st*, const slab_sums_kernel&);
template void start(CUstream_st*, const norm_slab_sums_kernel&);
template void start(CUstream_st*, const slab_total_kernel&);
template void start(CUstream_st*, const softmax_forward_kernel&);
template void start(CUstream_st*, const softmax_backward_kernel&);
template void start(CUstream_st*, const gelu_forward_kernel&);
template void start(CUstream_st*, const gelu_backward_kernel&);
template void start(CUstream_st*, const round_slopes_kernel&);
template void start(CUstream_st*, const write_bytes_kernel&);
template void start(CUstream_st*, const embed_kernel&);
template void start(CUstream_st*, const sort_rows_kernel&);
template void start(CUstream_st*, const token_gradient_kernel&);
template void start(CUstream_st*, const position_gradient_kernel&);
template void start(CUstream_st*, const cross_entropy_kernel&);
template void start(CUstream_st*, const loss_total_kernel&);

}  // namespace gpt::cuda
