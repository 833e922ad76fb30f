// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/device_scope.hpp>

#include <support/catch.hpp>
#include <support/fake_cuda.hpp>

#include <stdexcept>
#include <thread>

namespace device_scope_test {

using namespace chunkmem;
using support::fake_cuda;
using scope = sharding::device_scope<fake_cuda>;

namespace {

int device_of_this_thread(const fake_cuda& gpus)
{
  int device = -1;
  REQUIRE(gpus.current_device(device) == 0);
  return device;
}

}  // namespace

TEST_CASE("a rank's device is its thread's own for a scope, and what it was before comes back", "[sharding]")
{
  const fake_cuda gpus{support::fake_cuda_options{.devices = 3}};
  REQUIRE(gpus.use_device(1) == 0);
  {
    const scope outer{2, gpus};
    CHECK(device_of_this_thread(gpus) == 2);
    {
      const scope inner{0, gpus};
      CHECK(device_of_this_thread(gpus) == 0);
    }
    CHECK(device_of_this_thread(gpus) == 2);
    std::thread{[&] { CHECK(device_of_this_thread(gpus) == 0); }}.join();
  }
  CHECK(device_of_this_thread(gpus) == 1);
  CHECK_THROWS_AS(([&] {
                    const scope here{2, gpus};
                    throw std::runtime_error{"a rank failed"};
                  }()),
                  std::runtime_error);
  CHECK(device_of_this_thread(gpus) == 1);
}

TEST_CASE("a device that is not there is refused, and nothing was switched", "[sharding]")
{
  const fake_cuda gpus{support::fake_cuda_options{.devices = 2}};
  REQUIRE(gpus.use_device(1) == 0);
  CHECK_THROWS_AS((scope{2, gpus}), device_error);
  CHECK(device_of_this_thread(gpus) == 1);
  CHECK(gpus.last_error() == 0);
}

TEST_CASE("a rank has a device of its own, or is told that its node has too few", "[sharding]")
{
  const fake_cuda gpus{support::fake_cuda_options{.devices = 2}};
  CHECK(scope::devices(gpus) == 2);
  CHECK(scope::device_of(0, 2, gpus) == 0);
  CHECK(scope::device_of(1, 2, gpus) == 1);
  CHECK_THROWS_AS(scope::device_of(0, 3, gpus), config_error);
  gpus.fail_call_of("count_devices", gpus.calls("count_devices") + 1, 100);
  CHECK_THROWS_AS(scope::devices(gpus), device_error);
}

}  // namespace device_scope_test
