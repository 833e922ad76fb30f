// SPDX-License-Identifier: Apache-2.0
#pragma once

// The Thrust system that this program is built for: what THRUST_DEVICE_SYSTEM names.
#if THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_OMP
#include <thrust/system/omp/execution_policy.h>
namespace system_under_test = thrust::omp;
#elif THRUST_DEVICE_SYSTEM == THRUST_DEVICE_SYSTEM_TBB
#include <thrust/system/tbb/execution_policy.h>
namespace system_under_test = thrust::tbb;
#else
#include <thrust/system/cpp/execution_policy.h>
namespace system_under_test = thrust::cpp;
#endif
