// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/cuda_runtime.hpp>

#include <chunkmem/backend/cuda_api.hpp>
#include <chunkmem/backend/cuda_device.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <support/catch.hpp>
#include <support/fake_cuda_codes.hpp>

#include <string_view>
#include <type_traits>

// Every function of it is compiled here, also where no GPU can run one.
template class chunkmem::backend::cuda_device<chunkmem::backend::cuda_runtime>;

namespace cuda_runtime_test {

using namespace chunkmem;
using backend::cuda_runtime;

static_assert(cuda_api<cuda_runtime>);
static_assert(std::is_empty_v<cuda_runtime>);
static_assert(graph_backend<backend::cuda_device<cuda_runtime>>);

TEST_CASE("the runtime knows the numbers that we know, by the same names", "[backend]")
{
  const cuda_runtime api;
  for (const auto& [number, name] : support::fake_cuda_codes) {
    CAPTURE(number);
    if (number <= 999 || CUDART_VERSION == 13000) CHECK(std::string_view{api.name_of(number)} == name);
  }
}

TEST_CASE("on a machine with or without a GPU the runtime answers with numbers, and writes results only on success",
          "[backend]")
{
  const cuda_runtime api;
  int count = -7;
  const int number = api.count_devices(count);
  if (number == 0) {
    CHECK(count >= 1);
    return;
  }
  CHECK(count == -7);
  CHECK(backend::is_known_cuda_error(number));
  CHECK(api.last_error() == number);
  try {
    const backend::cuda_device<cuda_runtime> mem{{}};
    FAIL("a device was made where none is");
  } catch (const device_error& error) {
    CHECK(error.fault().number == number);
    CHECK(error.fault().call == 1);
  }
}

}  // namespace cuda_runtime_test
