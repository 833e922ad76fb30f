// SPDX-License-Identifier: Apache-2.0
// What is built on CUB, for every type: this file is only compiled.
#include <chunkmem/optimizer/copy_tensors.cuh>
#include <chunkmem/optimizer/flags.cuh>

namespace opt = chunkmem::optimizer;

/// One call of each function.
cudaError_t use_primitives(void* temporary, std::size_t& size, const void* numbers, chunkmem::dtype type,
                           opt::flags* found, const opt::copy_tensors& tensors, cudaStream_t stream)
{
  const cudaError_t results[] = {
      opt::flags::temporary_size(size, type, 1000),
      opt::flags::find(temporary, size, numbers, type, 1000, found, stream),
      tensors.temporary_size(size),
      tensors.pack(temporary, size, stream),
      tensors.unpack(temporary, size, stream),
  };
  for (const cudaError_t result : results)
    if (result != cudaSuccess) return result;
  return cudaSuccess;
}
