// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/rehearsal_log.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <new>

namespace rehearsal_scratch_test {

using namespace chunkmem;

TEST_CASE("scratch bytes are zeros to read, aligned, and apart from those to write", "[manager]")
{
  rehearsal_scratch scratch;
  CHECK(scratch.to_read() == nullptr);
  CHECK(scratch.to_write(1'000) == nullptr);
  scratch.begin(1'000);
  CHECK(scratch.is_on());
  std::byte* const read = scratch.to_read();
  std::byte* const written = scratch.to_write(1'000);
  for (const std::byte* it : {read, written})
    CHECK(reinterpret_cast<std::uintptr_t>(it) % tensor_alignment.count() == 0);
  std::fill(written, written + 1'000, std::byte{1});
  CHECK(std::count(read, read + 1'000, std::byte{0}) == 1'000);
  scratch.end(false);
  CHECK_FALSE(scratch.is_on());
  CHECK(scratch.to_read() == nullptr);
}

TEST_CASE("a larger block leaves the smaller one where it is", "[manager]")
{
  rehearsal_scratch scratch;
  scratch.begin(100);
  std::byte* const small = scratch.to_write(100);
  std::byte* const large = scratch.to_write(5'000);
  std::fill(large, large + 5'000, std::byte{2});
  std::fill(small, small + 100, std::byte{1});
  CHECK(small != large);
  CHECK(scratch.to_write(10) == large);
  CHECK(std::count(large, large + 5'000, std::byte{2}) == 5'000);
  CHECK_THROWS_AS(scratch.to_write(UINT64_MAX), std::bad_alloc);
  CHECK(scratch.to_write(5'000) == large);
  scratch.begin(200);  // anew
  CHECK(std::count(scratch.to_write(200), scratch.to_write(200) + 200, std::byte{0}) == 200);
}

}  // namespace rehearsal_scratch_test
