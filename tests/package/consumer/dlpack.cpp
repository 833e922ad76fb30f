// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/interop/dlpack.hpp>

#include <array>
#include <cstdint>

// A user's program that reads a tensor of somebody else.
int main()
{
  std::array<float, 6> numbers{1, 2, 3, 4, 5, 6};
  std::array<std::int64_t, 2> extents{2, 3};
  DLTensor it{};
  it.data = numbers.data();
  it.device = {kDLCPU, 0};
  it.ndim = 2;
  it.dtype = chunkmem::interop::dlpack_type_of(chunkmem::dtype::float32);
  it.shape = extents.data();
  return chunkmem::interop::span_of<float>(it)[5] == 6.0F ? 0 : 1;
}
