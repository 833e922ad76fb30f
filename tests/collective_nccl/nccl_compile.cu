// SPDX-License-Identifier: Apache-2.0
// NCCL's functions and the communicator over them, as nvcc reads them.
#if __has_include(<nccl.h>)
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>
#include <chunkmem/collective/nccl.hpp>
#include <chunkmem/collective/nccl_runtime.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/pipeline/nccl_stages.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>

using gpu_ranks = chunkmem::collective::nccl<chunkmem::collective::nccl_runtime, chunkmem::collective::self>;
template class chunkmem::collective::nccl<chunkmem::collective::nccl_runtime, chunkmem::collective::self>;
static_assert(chunkmem::communicator<gpu_ranks, chunkmem::backend::cuda_device<chunkmem::backend::cuda_runtime>>);
template class chunkmem::pipeline::nccl_stages<chunkmem::collective::nccl_runtime,
                                               chunkmem::pipeline::thread_stages::place>;
#endif
