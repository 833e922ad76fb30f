// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/access.hpp>

#include <support/catch.hpp>

namespace access_test {

using namespace chunkmem;

static_assert(name_of(access::read) == "read" && name_of(access::read_write) == "read_write" &&
              name_of(access::write) == "write");
static_assert(sizeof(chunkmem::access) == 1 && sizeof(at) == 1 && sizeof(pass) == 1);

TEST_CASE("reading alone does not write", "[tensor]")
{
  CHECK_FALSE(writes(access::read));
  CHECK(writes(access::read_write));
  CHECK(writes(access::write));
}

}  // namespace access_test
