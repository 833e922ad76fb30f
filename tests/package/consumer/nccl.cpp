// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>
#include <chunkmem/collective/nccl.hpp>
#include <chunkmem/collective/nccl_runtime.hpp>
#include <chunkmem/collective/self.hpp>

#include <nccl.h>

#include <cstdio>

// A user's program on NCCL, with or without a GPU: it links, and forms no group.
int main()
{
  using ranks = chunkmem::collective::nccl<chunkmem::collective::nccl_runtime, chunkmem::collective::self>;
  static_assert(chunkmem::communicator<ranks, chunkmem::backend::cuda_device<chunkmem::backend::cuda_runtime>>);
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess || version < NCCL_VERSION(2, 19, 0)) return 1;
  std::printf("NCCL %d\n", version);
  return 0;
}
