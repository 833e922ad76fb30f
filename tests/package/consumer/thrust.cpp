// SPDX-License-Identifier: Apache-2.0
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#include <thrust/device_vector.h>
#include <thrust/reduce.h>

// A user's program on Thrust's sequential system.
int main()
{
  const thrust::device_vector<int> numbers(100, 3);
  return thrust::reduce(numbers.begin(), numbers.end()) == 300 ? 0 : 1;
}
