// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_device.hpp>
#include <equality/matrix.hpp>
#include <gpu/machine.hpp>
#include <gpu/visible_runtime.hpp>

using namespace equality;
using visible = cm::backend::cuda_device<gpu::visible_runtime>;

TEST_CASE("training on streams and events of CUDA equals training on vectors bit for bit", "[gpu][equality]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  CHECK(run_matrix<visible>(cm::backend::cuda_device_options{}, true) == runs_of_matrix);
}
