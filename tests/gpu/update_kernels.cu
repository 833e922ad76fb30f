// SPDX-License-Identifier: Apache-2.0
// The kernels of a step of an optimizer on the device: the decision, and the update by each rule.
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/decision_kernels.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/update_kernel.hpp>
#include <gpu/start.cuh>

namespace gpu {

using namespace chunkmem::optimizer;

template void start(CUstream_st*, const clear_ranges_kernel&);
template void start(CUstream_st*, const measure_kernel&);
template void start(CUstream_st*, const sum_blocks_kernel&);
template void start(CUstream_st*, const decide_kernel&);
template void start(CUstream_st*, const missed_kernel&);
template void start(CUstream_st*, const rates_kernel&);
template void start(CUstream_st*, const finish_kernel&);
template void start(CUstream_st*, const cast_kernel&);

template <class Work>
using adam_update = update_kernel<Work, adam::device_factors>;
template <class Work>
using sgd_update = update_kernel<Work, sgd::device_factors>;

template void start(CUstream_st*, const factors_kernel<adam_options, adam::device_factors>&);
template void start(CUstream_st*, const adam_update<detail::adam_work<false>>&);
template void start(CUstream_st*, const adam_update<detail::adam_work<true>>&);

template void start(CUstream_st*, const factors_kernel<sgd_options, sgd::device_factors>&);
template void start(CUstream_st*, const sgd_update<detail::plain_sgd_work<>>&);
template void start(CUstream_st*, const sgd_update<detail::momentum_sgd_work<false>>&);
template void start(CUstream_st*, const sgd_update<detail::momentum_sgd_work<true>>&);

}  // namespace gpu
