// SPDX-License-Identifier: Apache-2.0
// The program of examples/first_on_gpu.cu on a fake GPU: its printed losses.
#define CHUNKMEM_TEST_OF_A_PROGRAM  // a file that defines a macro is compiled alone: names of a program are global
#include <chunkmem/backend/cuda_device.hpp>

#include <first_on_gpu.cu>
#include <support/catch.hpp>
#include <support/fake_device.hpp>
#include <support/kernel_launcher.hpp>

#include <vector>

TEST_CASE("the first program on a GPU has the same loss in a quarter of the memory, and learns", "[gpt_cuda]")
{
  std::vector<float> losses;
  for (const cm::bytes room : {512_KiB, 4_MiB}) {
    support::fake_device gpu{{.device_capacity = room, .host_capacity = 4_MiB}};
    losses.push_back(train<support::kernel_launcher>(gpu));
    CHECK(gpu.faults().empty());
  }
  CHECK(losses[0] == losses[1]);
  CHECK(losses[0] < 5);  // 64 at the first step
}
