// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/stream_backend.hpp>

struct CUstream_st;  // cudaStream_t is a pointer to it

/// Kernels that nvcc compiles for tests and benches. The *_kernels.cu of this folder define them, so that files with a
/// manager are compiled once, by the host's compiler.
namespace gpu {

/// Starts a kernel on a stream. Errors stay with the runtime. @pre   count() is not 0
template <class Body>
void start(CUstream_st* stream, const Body& body);

/// Starts the kernels of a chunkmem::optimizer::device_optimizer and those of the dense network.
struct kernel_starter {
  /// @throws device_error   the launch was refused; nothing was enqueued
  template <class Backend, class Body>
  void operator()(Backend& backend, chunkmem::agent on_stream, const Body& body) const
  {
    if (body.count() != 0) backend.launch(on_stream, [&](CUstream_st* stream) { start(stream, body); });
  }
};

}  // namespace gpu
