// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/host_device.hpp>

#include <support/catch.hpp>

#include <cstdint>

namespace host_device_test {

using namespace chunkmem;

/// A host compiler sees an ordinary function.
CHUNKMEM_HOST_DEVICE constexpr int twice(int value)
{
  return 2 * value;
}

static_assert(twice(4) == 8);
static_assert(bits_as<std::uint32_t>(1.0F) == 0x3f800000U);

TEST_CASE("bits keep their pattern, whatever type they are read as", "[core]")
{
  for (const std::uint32_t bits : {0U, 0x80000000U, 0x7f800001U, 0xffc12345U, 1U})
    CHECK(bits_as<std::uint32_t>(bits_as<float>(bits)) == bits);
  CHECK(bits_as<std::uint64_t>(-2.0) == 0xc000000000000000U);
}

}  // namespace host_device_test
