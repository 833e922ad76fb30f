// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lt_products.hpp"

#include <chunkmem/backend/stream_backend.hpp>

#include <cstddef>
#include <cstdint>

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace gpt::cuda {

/// Starts a body as a kernel on a stream: kernels.cu has those of the GPT, adam.cu those of the optimizer. So programs
/// that the host's compiler compiles start kernels without CUDA code. Errors stay with the runtime. @pre   count() is
/// not 0
template <class Body>
void start(CUstream_st* stream, const Body& body);

/// Starts the kernels of a chunkmem::optimizer::device_optimizer.
struct kernel_starter {
  /// @throws device_error   the launch was refused; nothing was enqueued
  template <class Backend, class Body>
  void operator()(Backend& backend, chunkmem::agent on_stream, const Body& body) const
  {
    if (body.count() != 0) backend.launch(on_stream, [&](CUstream_st* stream) { start(stream, body); });
  }
};

/// Scratch bytes that CUB needs for sampled inputs of `count` rows, and its calls on a stream: sampling.cu defines
/// them.
[[nodiscard]] std::uint64_t sampling_bytes(std::uint64_t count);
void sort_down(CUstream_st* stream, const std::uint64_t* from, std::uint64_t* to, std::uint64_t count,
               std::byte* temporary, std::uint64_t size);
void add_up(CUstream_st* stream, std::uint64_t* sums, std::uint64_t count, std::byte* temporary, std::uint64_t size);

/// Starts the kernels of sampled inputs: a chunkmem::activation::sampling_launcher.
struct sampling_starter : kernel_starter {
  [[nodiscard]] static std::uint64_t temporary_bytes(std::uint64_t count) { return sampling_bytes(count); }
  template <class Backend>
  void sort_down(Backend& backend, chunkmem::agent on_stream, const std::uint64_t* from, std::uint64_t* to,
                 std::uint64_t count, std::byte* temporary, std::uint64_t size) const
  {
    backend.launch(on_stream, [&](CUstream_st* stream) { cuda::sort_down(stream, from, to, count, temporary, size); });
  }
  template <class Backend>
  void add_up(Backend& backend, chunkmem::agent on_stream, std::uint64_t* sums, std::uint64_t count,
              std::byte* temporary, std::uint64_t size) const
  {
    backend.launch(on_stream, [&](CUstream_st* stream) { cuda::add_up(stream, sums, count, temporary, size); });
  }
};

/// The arithmetic of the GPT on a GPU: kernels of our own, and products by cuBLASLt.
class cuda_math {
 public:
  using launcher = kernel_starter;
  using sampler = sampling_starter;
  static constexpr std::uint64_t workspace_bytes = lt_products::workspace_bytes;

  template <class Backend, class Body>
  void launch(Backend& backend, chunkmem::agent stream, const Body& body) const
  {
    kernel_starter{}(backend, stream, body);
  }
  /// Chooses the algorithm of a product, once for each shape. @throws cublas_error   there is none
  void prepare(const product_shape& shape) { products_.prepare(shape); }

  template <class Backend>
  void multiply(Backend& backend, chunkmem::agent on_stream, const product& what, void* workspace)
  {
    backend.launch(on_stream, [&](CUstream_st* stream) { products_.multiply(stream, what, workspace); });
  }

 private:
  lt_products products_;
};

}  // namespace gpt::cuda
