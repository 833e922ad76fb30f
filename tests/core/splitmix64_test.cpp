// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/splitmix64.hpp>

#include <support/catch.hpp>

TEST_CASE("splitmix64 gives the numbers of its authors' program", "[core]")
{
  chunkmem::splitmix64 numbers;
  CHECK(numbers.next() == 0xE220A8397B1DCDAFU);
  CHECK(numbers.next() == 0x6E789E6AA1B965F4U);
  CHECK(numbers.next() == 0x06C45D188009454FU);
}
