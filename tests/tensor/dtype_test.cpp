// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/dtype.hpp>

#include <support/catch.hpp>

#include <set>
#include <string>

namespace dtype_test {

using namespace chunkmem;

namespace {

template <class Element, dtype Type>
constexpr bool stands_for = element<Element> && dtype_of<Element> == Type && size_of(Type) == sizeof(Element);

static_assert(stands_for<float, dtype::float32> && stands_for<bf16, dtype::bfloat16> &&
              stands_for<fp16, dtype::float16>);
static_assert(stands_for<std::int32_t, dtype::int32> && stands_for<std::int64_t, dtype::int64>);
static_assert(stands_for<std::uint8_t, dtype::uint8>);
static_assert(!element<double> && !element<bool> && !element<const float> && !element<float&> && !element<void>);
static_assert(!std::is_same_v<bf16, fp16>);

}  // namespace

TEST_CASE("each element type has its size and a name of its own", "[tensor]")
{
  CHECK(size_of(dtype::float32) == 4);
  CHECK(size_of(dtype::bfloat16) == 2);
  CHECK(size_of(dtype::float16) == 2);
  CHECK(size_of(dtype::int32) == 4);
  CHECK(size_of(dtype::int64) == 8);
  CHECK(size_of(dtype::uint8) == 1);
  std::set<std::string> names;
  for (int type = 0; type < 6; ++type) names.emplace(name_of(static_cast<dtype>(type)));
  CHECK(names == std::set<std::string>{"bfloat16", "float16", "float32", "int32", "int64", "uint8"});
}

}  // namespace dtype_test
