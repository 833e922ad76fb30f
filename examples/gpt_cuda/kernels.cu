// SPDX-License-Identifier: Apache-2.0
// The kernels of the GPT, for programs that the host's compiler makes.
#include "attention_bodies.hpp"
#include "column_bodies.hpp"
#include "launch.cuh"
#include "loss_bodies.hpp"
#include "norm_bodies.hpp"
#include "pointwise_bodies.hpp"
#include "token_bodies.hpp"

namespace gpt::cuda {

template void start(CUstream_st*, const norm_forward_body&);
template void start(CUstream_st*, const norm_backward_body&);
template void start(CUstream_st*, const slab_sums_body&);
template void start(CUstream_st*, const norm_slab_sums_body&);
template void start(CUstream_st*, const slab_total_body&);
template void start(CUstream_st*, const softmax_forward_body&);
template void start(CUstream_st*, const softmax_backward_body&);
template void start(CUstream_st*, const gelu_forward_body&);
template void start(CUstream_st*, const gelu_backward_body&);
template void start(CUstream_st*, const write_bytes_body&);
template void start(CUstream_st*, const embed_body&);
template void start(CUstream_st*, const sort_rows_body&);
template void start(CUstream_st*, const token_gradient_body&);
template void start(CUstream_st*, const position_gradient_body&);
template void start(CUstream_st*, const cross_entropy_body&);
template void start(CUstream_st*, const loss_total_body&);

}  // namespace gpt::cuda
