// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !__has_include(<nccl.h>)
#error "chunkmem: collective/nccl_runtime.hpp needs nccl.h: link chunkmem::nccl, or name NCCL's include folder"
#else

#include <chunkmem/collective/nccl_api.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <cstddef>
#include <cstring>
#include <span>

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0),
              "chunkmem: collective/nccl_runtime.hpp needs NCCL 2.19 or newer");

namespace chunkmem::inline v0 {

namespace collective {

/// NCCL as a `nccl_api`, with non-blocking communicators. For any C++20 compiler: this header has no kernel.
///
///     nccl<nccl_runtime, local_threads> ranks{control};  // NCCL for the bytes, threads for the words
///
/// Has no state. Cost: that of NCCL's functions. @threads   one for each communicator at a time
class nccl_runtime {
 public:
  using comm_type = ncclComm_t;
  using stream_type = cudaStream_t;
  using sum_type = ncclRedOp_t;
  static constexpr std::size_t id_size = sizeof(ncclUniqueId);

  [[nodiscard]] int make_id(std::span<std::byte> id) const noexcept
  {
    ncclUniqueId fresh;
    const ncclResult_t number = ncclGetUniqueId(&fresh);
    if (number == ncclSuccess) std::memcpy(id.data(), &fresh, sizeof fresh);
    return number;
  }
  [[nodiscard]] int create(comm_type& fresh, int ranks, std::span<const std::byte> id, int rank) const noexcept
  {
    ncclUniqueId same;
    std::memcpy(&same, id.data(), sizeof same);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclCommInitRankConfig(&fresh, ranks, same, rank, &config);
  }
  [[nodiscard]] int async_error(comm_type group, int& error) const noexcept
  {
    ncclResult_t found = ncclSuccess;
    const ncclResult_t number = ncclCommGetAsyncError(group, &found);
    if (number == ncclSuccess) error = found;
    return number;
  }
  [[nodiscard]] int rank_of(comm_type group, int& rank) const noexcept { return ncclCommUserRank(group, &rank); }
  [[nodiscard]] int ranks_of(comm_type group, int& ranks) const noexcept { return ncclCommCount(group, &ranks); }
  [[nodiscard]] int finalize(comm_type group) const noexcept { return ncclCommFinalize(group); }
  [[nodiscard]] int destroy(comm_type group) const noexcept { return ncclCommDestroy(group); }
  [[nodiscard]] int abort(comm_type group) const noexcept { return ncclCommAbort(group); }

  [[nodiscard]] int current_device(int& device) const noexcept { return cudaGetDevice(&device); }
  [[nodiscard]] int use_device(int device) const noexcept { return cudaSetDevice(device); }

  [[nodiscard]] int begin_calls() const noexcept { return ncclGroupStart(); }
  [[nodiscard]] int end_calls() const noexcept { return ncclGroupEnd(); }
  [[nodiscard]] int all_gather(const void* from, void* to, std::size_t count, dtype type, comm_type group,
                               stream_type stream) const noexcept
  {
    return ncclAllGather(from, to, count, type_of(type), group, stream);
  }
  [[nodiscard]] int reduce_scatter(const void* from, void* to, std::size_t count, dtype type, sum_type how,
                                   comm_type group, stream_type stream) const noexcept
  {
    return ncclReduceScatter(from, to, count, type_of(type), how, group, stream);
  }
  [[nodiscard]] int all_reduce(const void* from, void* to, std::size_t count, dtype type, sum_type how, comm_type group,
                               stream_type stream) const noexcept
  {
    return ncclAllReduce(from, to, count, type_of(type), how, group, stream);
  }
  [[nodiscard]] int broadcast(const void* from, void* to, std::size_t count, dtype type, int root, comm_type group,
                              stream_type stream) const noexcept
  {
    return ncclBroadcast(from, to, count, type_of(type), root, group, stream);
  }
  [[nodiscard]] int reduce(const void* from, void* to, std::size_t count, dtype type, sum_type how, int root,
                           comm_type group, stream_type stream) const noexcept
  {
    return ncclReduce(from, to, count, type_of(type), how, root, group, stream);
  }
  [[nodiscard]] int send(const void* from, std::size_t count, dtype type, int to, comm_type group,
                         stream_type stream) const noexcept
  {
    return ncclSend(from, count, type_of(type), to, group, stream);
  }
  [[nodiscard]] int receive(void* to, std::size_t count, dtype type, int from, comm_type group,
                            stream_type stream) const noexcept
  {
    return ncclRecv(to, count, type_of(type), from, group, stream);
  }

  [[nodiscard]] sum_type plain_sum() const noexcept { return ncclSum; }
  [[nodiscard]] sum_type mean() const noexcept { return ncclAvg; }
  /// The factor is rounded to the element type first.
  [[nodiscard]] int create_scaled_sum(sum_type& how, dtype type, float scale, comm_type group) const noexcept
  {
    const bf16 brain = round_to<bf16>(scale);
    const fp16 half = round_to<fp16>(scale);
    alignas(float) std::byte factor[sizeof(float)];
    if (type == dtype::float32)
      std::memcpy(factor, &scale, sizeof scale);
    else if (type == dtype::bfloat16)
      std::memcpy(factor, &brain, sizeof brain);
    else
      std::memcpy(factor, &half, sizeof half);
    return ncclRedOpCreatePreMulSum(&how, factor, type_of(type), ncclScalarHostImmediate, group);
  }
  [[nodiscard]] int destroy_sum(sum_type how, comm_type group) const noexcept { return ncclRedOpDestroy(how, group); }

  [[nodiscard]] int enroll(comm_type group, void* place, std::size_t size, void*& handle) const noexcept
  {
    return ncclCommRegister(group, place, size, &handle);
  }
  [[nodiscard]] int dismiss(comm_type group, void* handle) const noexcept { return ncclCommDeregister(group, handle); }
  /// A failure of CUDA is NCCL's "unhandled CUDA error".
  [[nodiscard]] int is_done(stream_type stream, bool& done) const noexcept
  {
    const cudaError_t number = cudaStreamQuery(stream);
    if (number != cudaSuccess && number != cudaErrorNotReady) return ncclUnhandledCudaError;
    if (number == cudaErrorNotReady) (void)cudaGetLastError();  // else a later cudaGetLastError returns it
    done = number == cudaSuccess;
    return ncclSuccess;
  }
  [[nodiscard]] const char* name_of(int number) const noexcept
  {
    return ncclGetErrorString(static_cast<ncclResult_t>(number));
  }

 private:
  [[nodiscard]] static ncclDataType_t type_of(dtype type) noexcept
  {
    if (type == dtype::float32) return ncclFloat32;
    if (type == dtype::bfloat16) return ncclBfloat16;
    return type == dtype::float16 ? ncclFloat16 : ncclUint8;
  }
};

static_assert(nccl_api<nccl_runtime>);

}  // namespace collective

}  // namespace chunkmem::inline v0

#endif
