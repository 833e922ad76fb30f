#include <chunkmem/tensor/list_spec.hpp>

#include <support/catch.hpp>

using namespace chunkmem;

TEST_CASE("a list is single precision and of version one unless it says otherwise", "[tensor]")
{
  constexpr list_spec plain{.name = "adam/momentum"};
  static_assert(plain.type == dtype::float32 && plain.version == 1);
  constexpr list_spec other{.name = "adam/master", .type = dtype::bfloat16, .version = 3};
  CHECK(plain.name == "adam/momentum");
  static_assert(other.type == dtype::bfloat16 && other.version == 3);
}
