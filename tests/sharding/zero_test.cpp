// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/zero.hpp>

#include <support/catch.hpp>

namespace zero_test {

using namespace chunkmem::sharding;

TEST_CASE("each stage of ZeRO divides what the one before does, and more; the last one is the default", "[sharding]")
{
  CHECK(!zero_1.gradients);
  CHECK(!zero_1.parameters);
  CHECK(zero_2.gradients);
  CHECK(!zero_2.parameters);
  CHECK(zero_3.gradients);
  CHECK(zero_3.parameters);
  CHECK(zero_3_reduce_last.parameters);
  CHECK(!zero_3_reduce_last.gradients);
  CHECK(sharding_options{}.divided == zero_3);
  CHECK(sharding_options{}.sum_scale == 1.0F);
}

}  // namespace zero_test
