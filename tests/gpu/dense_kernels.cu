// SPDX-License-Identifier: Apache-2.0
// The kernels of the dense network, in the types that its trainings have; and one that loses the GPU.
#include <gpu/dense_kernels.hpp>
#include <gpu/start.cuh>
#include <gpu/stray_write.hpp>

namespace gpu {

using chunkmem::bf16;

template void start(CUstream_st*, const product_kernel<float, float, float>&);
template void start(CUstream_st*, const product_kernel<float, float, bf16>&);
template void start(CUstream_st*, const product_kernel<bf16, float, float>&);
template void start(CUstream_st*, const noise_kernel&);
template void start(CUstream_st*, const softsign_kernel&);
template void start(CUstream_st*, const softsign_slope_kernel&);
template void start(CUstream_st*, const distance_kernel&);
template void start(CUstream_st*, const loss_kernel&);
template void start(CUstream_st*, const stray_write&);

}  // namespace gpu
