// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/tensor.hpp>

#include <support/catch.hpp>

#include <type_traits>
#include <vector>

namespace tensor_test {

using namespace chunkmem;

static_assert(shape{2, 3, 4}.elements() == 24 && shape{2, 3, 4}.rank() == 3 && shape{7}[0] == 7);

TEST_CASE("a shape knows its extents and their product", "[tensor]")
{
  const shape cube{5, 4, 3};
  CHECK(cube.rank() == 3);
  CHECK(cube.elements() == 60);
  CHECK((cube[0] == 5 && cube[1] == 4 && cube[2] == 3));
  CHECK(cube == shape{5, 4, 3});
  CHECK_FALSE(cube == shape{3, 4, 5});
  CHECK_FALSE(shape{6} == shape{6, 1});
  const std::vector<std::uint64_t> extents{2, 9};
  CHECK(shape{std::span{extents}} == shape{2, 9});
}

TEST_CASE("a shape has at most six extents, and none for a single number", "[tensor]")
{
  CHECK((shape{}.rank() == 0 && shape{}.elements() == 1));
  CHECK(shape{std::span<const std::uint64_t>{}} == shape{});
  CHECK_FALSE(shape{} == shape{1});
  CHECK_THROWS_AS(shape{}[0], usage_error);
  CHECK(shape{1, 1, 1, 1, 1, 2}.rank() == 6);
  CHECK_THROWS_AS((shape{1, 1, 1, 1, 1, 1, 1}), usage_error);
  const std::vector<std::uint64_t> many(1'000, 1);
  CHECK_THROWS_AS(shape{std::span{many}}, usage_error);
}

TEST_CASE("an extent of zero leaves no elements wherever it stands", "[tensor]")
{
  CHECK(shape{0}.elements() == 0);
  CHECK(shape{3, 0}.elements() == 0);
  CHECK((shape{0, 3}.elements() == 0 && shape{0, 3}[1] == 3));
  CHECK(shape{2, 0, UINT64_MAX}.elements() == 0);
  CHECK_FALSE(shape{0, 3} == shape{3, 0});
}

TEST_CASE("elements beyond 64 bits are refused", "[tensor]")
{
  constexpr std::uint64_t half = std::uint64_t{1} << 32;
  CHECK(shape{half, half - 1}.elements() == half * (half - 1));
  CHECK_THROWS_AS((shape{half, half}), size_overflow);
  CHECK(shape{UINT64_MAX, 1}.elements() == UINT64_MAX);
  CHECK_THROWS_AS((shape{2, UINT64_MAX}), size_overflow);
}

TEST_CASE("an axis beyond the rank is refused", "[tensor]")
{
  const shape plane{2, 3};
  CHECK(plane[1] == 3);
  CHECK_THROWS_AS(plane[2], usage_error);
  CHECK_THROWS_AS(plane[6], usage_error);
  CHECK_THROWS_AS(plane[SIZE_MAX], usage_error);
}

namespace {

template <class Element>
constexpr bool is_a_handle = sizeof(tensor<Element>) == 8 && std::is_trivially_copyable_v<tensor<Element>> &&
                             std::is_same_v<typename tensor<Element>::element_type, Element> &&
                             std::is_convertible_v<tensor<Element>, tensor_handle>;

static_assert(is_a_handle<float> && is_a_handle<bf16> && is_a_handle<fp16>);
static_assert(is_a_handle<std::int32_t> && is_a_handle<std::int64_t> && is_a_handle<std::uint8_t>);
static_assert(sizeof(tensor_handle) == 8 && std::is_trivially_copyable_v<tensor_handle>);
static_assert(!std::is_convertible_v<tensor<float>, tensor<bf16>> &&
              !std::is_convertible_v<tensor_handle, tensor<float>>);

}  // namespace

TEST_CASE("handles are equal where tensor and manager are", "[tensor]")
{
  const tensor<float> weight{{tensor_id{3}, 7}};
  CHECK(weight == tensor<float>{{tensor_id{3}, 7}});
  CHECK_FALSE(weight == tensor<float>{{tensor_id{4}, 7}});
  CHECK_FALSE(weight == tensor<float>{{tensor_id{3}, 9}});
  CHECK(tensor_handle{}.id == tensor_id::none);
}

}  // namespace tensor_test
