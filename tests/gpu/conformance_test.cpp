// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>
#include <conformance/graph_backend.hpp>
#include <conformance/stream_backend.hpp>
#include <gpu/machine.hpp>
#include <support/catch.hpp>

namespace cm = chunkmem;
using gpu_memory = cm::backend::cuda_device<cm::backend::cuda_runtime>;

TEST_CASE("a GPU keeps the laws of a stream backend", "[gpu]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  conformance::stream_backend_laws<gpu_memory>([](cm::bytes device_capacity, cm::bytes host_capacity) {
    return gpu_memory{{.device_capacity = device_capacity, .host_capacity = host_capacity}};
  });
}

TEST_CASE("a GPU keeps the laws of a graph backend", "[gpu]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  conformance::graph_backend_laws<gpu_memory>([](cm::bytes device_capacity, cm::bytes host_capacity) {
    return gpu_memory{{.device_capacity = device_capacity, .host_capacity = host_capacity}};
  });
}

TEST_CASE("without a capacity a GPU gives what it has free, less the headroom", "[gpu]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  const gpu_memory memory{{.host_capacity = cm::bytes{1 << 20}}};
  std::size_t free = 0;
  std::size_t total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(memory.capacity(cm::tier::device).count() <= total);
  CHECK(memory.capacity(cm::tier::device).count() > 0);
}

TEST_CASE("a device that is not there is refused by name", "[gpu]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  const cm::backend::cuda_device_options absent{
      .device = 1'000, .device_capacity = cm::bytes{4'096}, .host_capacity = cm::bytes{4'096}};
  CHECK_THROWS_AS(gpu_memory{absent}, cm::config_error);
  CHECK(cudaGetLastError() == cudaSuccess);
}
