// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lt_products.hpp"

#include <chunkmem/backend/stream_backend.hpp>

#include <cstdint>

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace gpt::cuda {

/// Starts a body as a kernel on a stream: kernels.cu has those of the GPT, adam.cu those of the optimizer. So programs
/// of the host's compiler start kernels without a line of CUDA. Errors stay with the runtime. @pre   count() is not 0
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

/// The arithmetic of the GPT on a GPU: kernels of our own, and products by cuBLASLt.
class cuda_math {
 public:
  using launcher = kernel_starter;
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
