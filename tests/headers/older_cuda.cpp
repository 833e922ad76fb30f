// SPDX-License-Identifier: Apache-2.0
// Every function that calls CUDA and NCCL, for older_cuda.py: only compiled, after all headers that need CUDA.
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>
#include <chunkmem/sharding/device_scope.hpp>
#if __has_include(<nccl.h>)
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/nccl.hpp>
#include <chunkmem/collective/nccl_runtime.hpp>
#endif

static_assert(CUDART_VERSION == WANTED);

namespace chunkmem::inline v0 {

template class backend::cuda_device<backend::cuda_runtime>;
template class sharding::device_scope<backend::cuda_runtime>;
#if __has_include(<nccl.h>)
template class collective::nccl<collective::nccl_runtime, collective::local_threads>;
template class collective::nccl_session<collective::nccl_runtime, collective::local_threads>;
template class collective::nccl_registration<collective::nccl_runtime, collective::local_threads>;
#endif

}  // namespace chunkmem::inline v0
