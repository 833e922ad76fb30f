// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/optimizer/launch_kernels.cuh>
#include <gpu/start.hpp>

namespace gpu {

template <class Body>
void start(CUstream_st* stream, const Body& body)
{
  chunkmem::optimizer::cuda_launcher{}(stream, body);
}

}  // namespace gpu
