// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/optimizer/device_kernel.hpp>
#include <support/fake_cuda.hpp>

namespace support {

/// Launches kernels as kernels of the fake GPU: in stream order, captured like kernels, refused like kernels.
struct kernel_launcher {
  template <class Backend, chunkmem::optimizer::device_kernel Body>
  void operator()(Backend& backend, chunkmem::agent on_stream, const Body& body) const
  {
    if (body.count() == 0) return;
    backend.launch(on_stream, [&body](fake_stream_handle stream) {
      launch_kernel(stream, [body] { chunkmem::optimizer::loop_launcher::run(body); });
    });
  }
};

}  // namespace support
