// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/nccl_runtime.hpp>

#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/cuda_runtime.hpp>
#include <chunkmem/collective/nccl.hpp>
#include <chunkmem/collective/self.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <string_view>

namespace nccl_runtime_test {

using namespace chunkmem;
using device = backend::cuda_device<backend::cuda_runtime>;
using group = collective::nccl<collective::nccl_runtime, collective::self>;

static_assert(communicator<group, device>);

TEST_CASE("NCCL has a sentence for each of its numbers", "[collective_nccl]")
{
  CHECK(std::string_view{collective::nccl_runtime{}.name_of(0)} == "no error");
  for (int number = 0; number < 8; ++number)
    CHECK(!std::string_view{collective::nccl_runtime{}.name_of(number)}.empty());
}

TEST_CASE("a group of one goes through every operation on a GPU", "[collective_nccl][.gpu]")
{
  int count = 0;
  if (backend::cuda_runtime{}.count_devices(count) != 0 || count == 0) SKIP("no GPU is here");
  device gpu{{.host_capacity = bytes{1 << 20}}};
  collective::self alone;
  std::byte* const place = gpu.allocate(tier::device, bytes{4096});
  std::byte* const host = gpu.allocate(tier::host, bytes{4096});
  {
    group all{alone};
    const auto parts = collective::shares::of(bytes{4096}, 1);
    gpu.fill(place, std::byte{0x40}, bytes{4096}, agent::compute);  // 3.0039 in each float
    all.all_gather(gpu, agent::compute, place, parts, 1);
    all.reduce_scatter(gpu, agent::compute, place, parts, {.scale = 2}, 2);
    all.all_reduce(gpu, agent::compute, place, parts, {}, 3);
    all.broadcast(gpu, agent::compute, place, bytes{4096}, rank_id{0}, 4);
    all.barrier(gpu, agent::compute, 5);
    gpu.copy(host, place, bytes{4096}, agent::compute);
    all.finish(gpu, agent::compute);
  }
  for (std::size_t i = 0; i < 4096; ++i) CHECK(host[i] == (i % 4 == 2 ? std::byte{0xC0} : std::byte{0x40}));
}

}  // namespace nccl_runtime_test
