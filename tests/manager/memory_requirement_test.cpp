// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/memory_requirement.hpp>

#include <support/catch.hpp>

namespace memory_requirement_test {

using namespace chunkmem;

TEST_CASE("a requirement keeps bytes for each role apart", "[manager]")
{
  memory_requirement need;
  CHECK_FALSE(need.rehearsed);
  std::uint64_t next = 1;
  for (std::size_t part = 0; part < role_count; ++part) {
    CHECK(need.by_role[static_cast<role>(part)] == bytes{0});
    need.by_role[static_cast<role>(part)] = bytes{next++};
  }
  const memory_requirement copy = need;
  CHECK((copy.by_role[role::parameter] == 1_B && copy.by_role[role::activation] == 5_B));
}

}  // namespace memory_requirement_test
