// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/list_spec.hpp>

#include <support/catch.hpp>

namespace list_spec_test {

using namespace chunkmem;

TEST_CASE("a list is single precision and of version one unless it says otherwise", "[tensor]")
{
  constexpr list_spec plain{.name = "adam/momentum"};
  static_assert(plain.type == dtype::float32 && plain.version == 1);
  constexpr list_spec other{.name = "adam/master", .type = dtype::bfloat16, .version = 3};
  CHECK(plain.name == "adam/momentum");
  static_assert(other.type == dtype::bfloat16 && other.version == 3);
}

TEST_CASE("a list is a state unless it says that it is a master", "[tensor]")
{
  static_assert(list_spec{.name = "adam/momentum"}.use == list_use::state);
  static_assert(list_spec{"adam/momentum", dtype::float32, 1}.use == list_use::state);
  static_assert(master_list.use == list_use::master && master_list.type == dtype::float32 && master_list.version == 1);
  CHECK(master_list.name == "master");
}

}  // namespace list_spec_test
