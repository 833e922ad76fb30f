// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/checkpoint/stored_tensor.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <string>

namespace stored_tensor_test {

using namespace chunkmem;

TEST_CASE("every element type has its name in safetensors, and no other name is taken", "[checkpoint]")
{
  CHECK(checkpoint::stored_name_of(dtype::float32) == "F32");
  CHECK(checkpoint::stored_name_of(dtype::bfloat16) == "BF16");
  CHECK(checkpoint::stored_name_of(dtype::float16) == "F16");
  CHECK(checkpoint::stored_name_of(dtype::int32) == "I32");
  CHECK(checkpoint::stored_name_of(dtype::int64) == "I64");
  CHECK(checkpoint::stored_name_of(dtype::uint8) == "U8");
  for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::float16, dtype::int32, dtype::int64, dtype::uint8})
    CHECK(checkpoint::stored_type(checkpoint::stored_name_of(type)) == type);
  for (const std::string& name : {std::string{}, std::string{"f32"}, std::string{"F32 "}, std::string{"F64"},
                                  std::string{"BOOL"}, std::string{"float32"}, std::string("F32\0", 4)})
    CHECK_FALSE(checkpoint::stored_type(name));
}

TEST_CASE("the size of a tensor is a product that cannot wrap around", "[checkpoint]")
{
  CHECK(checkpoint::size_of_tensor(dtype::int64, {}) == bytes{8});  // a single number
  CHECK(checkpoint::size_of_tensor(dtype::bfloat16, {3, 5}) == bytes{30});
  CHECK(checkpoint::size_of_tensor(dtype::float32, {7, 0, 5}) == bytes{0});
  for (unsigned bits = 8; bits <= 64; ++bits) {
    const std::uint64_t power = bits == 64 ? 0 : std::uint64_t{1} << bits;
    for (const std::uint64_t extent : {power - 1, power, power + 1}) {
      CHECK(checkpoint::size_of_tensor(dtype::uint8, {extent}).count() == extent);
      if (extent > UINT64_MAX / 8)
        CHECK_THROWS_AS(checkpoint::size_of_tensor(dtype::int64, {extent}), size_overflow);
      else
        CHECK(checkpoint::size_of_tensor(dtype::int64, {extent}).count() == extent * 8);
      if (extent >= std::uint64_t{1} << 32)
        CHECK_THROWS_AS(checkpoint::size_of_tensor(dtype::uint8, {extent, extent}), size_overflow);
    }
  }
}

TEST_CASE("two stored tensors are the same if all of them is", "[checkpoint]")
{
  const checkpoint::stored_tensor one{"a", dtype::float32, {2}, 8, 16};
  CHECK(one.size() == 8);
  CHECK(one == checkpoint::stored_tensor{"a", dtype::float32, {2}, 8, 16});
  CHECK_FALSE(one == checkpoint::stored_tensor{"b", dtype::float32, {2}, 8, 16});
  CHECK_FALSE(one == checkpoint::stored_tensor{"a", dtype::int32, {2}, 8, 16});
  CHECK_FALSE(one == checkpoint::stored_tensor{"a", dtype::float32, {2, 1}, 8, 16});
  CHECK_FALSE(one == checkpoint::stored_tensor{"a", dtype::float32, {2}, 0, 16});
  CHECK_FALSE(one == checkpoint::stored_tensor{"a", dtype::float32, {2}, 8, 12});
}

}  // namespace stored_tensor_test
