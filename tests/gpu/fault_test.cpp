// SPDX-License-Identifier: Apache-2.0
#include <gpu/kernel_runner.hpp>
#include <gpu/machine.hpp>
#include <support/catch.hpp>

// Hidden, and a ctest of its own: no process uses the GPU after it.
TEST_CASE("a kernel that writes where nothing is ends the backend, with that cause for good", "[gpu][.fault]")
{
  if (const std::string why = gpu::why_not(); !why.empty()) SKIP(why);
  gpu::kernel_runner runner;
  const gpu::kernel_runner::loss seen = runner.lose_device();
  CHECK(seen.number == cudaErrorIllegalAddress);
  CHECK(seen.is_sticky);
  CHECK(seen.is_lost);
  CHECK_THAT(seen.first, Catch::Matchers::ContainsSubstring("cudaErrorIllegalAddress"));
  CHECK(seen.second == seen.first);
  CHECK(seen.calls_afterwards == 0);
}
