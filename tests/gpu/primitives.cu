// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/copy_tensors.cuh>

#include <chunkmem/activation/cub_sampling.cuh>
#include <chunkmem/optimizer/flags.cuh>
#include <chunkmem/optimizer/launch_kernels.cuh>
#include <gpu/primitives.hpp>

#include <cstddef>
#include <utility>

namespace gpu {

using chunkmem::optimizer::copy_tensors;
using chunkmem::optimizer::flags;
using chunkmem::optimizer::packed_tensor;

static_assert(sizeof(flags_word) == sizeof(flags));
static_assert(sizeof(packed_line) == sizeof(packed_tensor) &&
              offsetof(packed_line, offset) == offsetof(packed_tensor, offset) &&
              offsetof(packed_line, size) == offsetof(packed_tensor, size));

namespace {

copy_tensors of(const packed_lines& all)
{
  return {reinterpret_cast<const packed_tensor*>(all.table), all.count, all.buffer};
}

using on_cub = chunkmem::activation::cub_sampling<chunkmem::optimizer::cuda_launcher>;

/// The part of a backend that a launcher uses.
struct one_stream {
  template <class Work>
  void launch(chunkmem::agent, Work&& work) const
  {
    std::forward<Work>(work)(stream);
  }
  cudaStream_t stream;
};

}  // namespace

cudaError_t find_flags(void* temporary, std::size_t& size, const void* numbers, chunkmem::dtype type,
                       std::uint64_t elements, flags_word* found, cudaStream_t stream)
{
  if (temporary == nullptr) return flags::temporary_size(size, type, elements);
  return flags::find(temporary, size, numbers, type, elements, reinterpret_cast<flags*>(found), stream);
}
float largest(flags_word found)
{
  return flags{found.bits}.largest();
}
bool are_finite(flags_word found)
{
  return flags{found.bits}.are_finite();
}

cudaError_t packing_size(std::size_t& size, const packed_lines& all)
{
  return of(all).temporary_size(size);
}
cudaError_t pack(void* temporary, std::size_t& size, const packed_lines& all, cudaStream_t stream)
{
  return of(all).pack(temporary, size, stream);
}
cudaError_t unpack(void* temporary, std::size_t& size, const packed_lines& all, cudaStream_t stream)
{
  return of(all).unpack(temporary, size, stream);
}

std::uint64_t sampling_bytes(std::uint64_t rows)
{
  return on_cub::temporary_bytes(rows);
}
void sort_down(const std::uint64_t* from, std::uint64_t* to, std::uint64_t count, std::byte* temporary,
               std::uint64_t size, cudaStream_t stream)
{
  const one_stream on{stream};
  on_cub{}.sort_down(on, chunkmem::agent::compute, from, to, count, temporary, size);
}
void add_up(std::uint64_t* sums, std::uint64_t count, std::byte* temporary, std::uint64_t size, cudaStream_t stream)
{
  const one_stream on{stream};
  on_cub{}.add_up(on, chunkmem::agent::compute, sums, count, temporary, size);
}

}  // namespace gpu
