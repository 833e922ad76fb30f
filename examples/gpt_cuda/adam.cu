// SPDX-License-Identifier: Apache-2.0
// The kernels of the optimizer's steps on the device, for programs that the host's compiler compiles.
#include "launch.cuh"

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/decision_kernels.hpp>
#include <chunkmem/optimizer/update_kernel.hpp>

namespace gpt::cuda {

using namespace chunkmem::optimizer;

template <bool Coupled>
using adam_update = update_kernel<detail::adam_work<Coupled>, detail::adam_factors>;

template void start(CUstream_st*, const clear_ranges_kernel&);
template void start(CUstream_st*, const factors_kernel<adam_options, detail::adam_factors>&);
template void start(CUstream_st*, const measure_kernel&);
template void start(CUstream_st*, const sum_blocks_kernel&);
template void start(CUstream_st*, const decide_kernel&);
template void start(CUstream_st*, const rates_kernel&);
template void start(CUstream_st*, const missed_kernel&);
template void start(CUstream_st*, const finish_kernel&);
template void start(CUstream_st*, const adam_update<false>&);
template void start(CUstream_st*, const adam_update<true>&);

}  // namespace gpt::cuda
