// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/update_parameter.hpp>

#include <support/catch.hpp>

#include <cstdint>

#include <unistd.h>

namespace cache_size_test {

TEST_CASE("the second cache is as large as the system says, or a megabyte", "[core]")
{
  const std::uint64_t bytes = chunkmem::detail::second_cache_bytes();
  CHECK(bytes >= 64 << 10);
  CHECK(bytes <= std::uint64_t{1} << 30);
  CHECK(bytes == chunkmem::detail::second_cache_bytes());
  const long said = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  CHECK(bytes == (said > 0 ? static_cast<std::uint64_t>(said) : std::uint64_t{1} << 20));
}

}  // namespace cache_size_test
