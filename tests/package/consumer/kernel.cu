// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/strict_fp.hpp>

#include <concepts>

template <std::floating_point Number>
__global__ void add(Number left, Number right, Number* result)
{
  *result = chunkmem::strict_fp::sum(left, right);
}

float add_on_device(float left, float right)
{
  float result = 0;
  float* place = nullptr;
  if (cudaMalloc(&place, sizeof result) != cudaSuccess) return result;
  add<<<1, 1>>>(left, right, place);
  cudaMemcpy(&result, place, sizeof result, cudaMemcpyDefault);
  cudaFree(place);
  return result;
}
