// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/dtype.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

/// The library's uses of CUB, for tests that the host's compiler compiles: primitives.cu defines them. Each call takes
/// the temporary memory that it needs, like CUB: null where only `size` is wanted.
namespace gpu {

/// A word on the GPU that chunkmem::optimizer::flags is.
struct flags_word {
  std::uint32_t bits = 0;
};
[[nodiscard]] cudaError_t find_flags(void* temporary, std::size_t& size, const void* numbers, chunkmem::dtype type,
                                     std::uint64_t elements, flags_word* found, cudaStream_t stream);
[[nodiscard]] float largest(flags_word found);
[[nodiscard]] bool are_finite(flags_word found);

/// A line of the table of chunkmem::optimizer::copy_tensors.
struct packed_line {
  std::byte* data;
  std::uint64_t offset;
  std::uint64_t size;
};
/// @param table   in device memory
struct packed_lines {
  const packed_line* table;
  std::uint64_t count;
  std::byte* buffer;
};
[[nodiscard]] cudaError_t packing_size(std::size_t& size, const packed_lines& all);
[[nodiscard]] cudaError_t pack(void* temporary, std::size_t& size, const packed_lines& all, cudaStream_t stream);
[[nodiscard]] cudaError_t unpack(void* temporary, std::size_t& size, const packed_lines& all, cudaStream_t stream);

/// chunkmem::activation::cub_sampling. @throws chunkmem::device_error
[[nodiscard]] std::uint64_t sampling_bytes(std::uint64_t rows);
void sort_down(const std::uint64_t* from, std::uint64_t* to, std::uint64_t count, std::byte* temporary,
               std::uint64_t size, cudaStream_t stream);
void add_up(std::uint64_t* sums, std::uint64_t count, std::byte* temporary, std::uint64_t size, cudaStream_t stream);

}  // namespace gpu
