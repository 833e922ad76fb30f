// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/tensor.hpp>

#include <support/catch.hpp>

#include <type_traits>

namespace tensor_test {

using namespace chunkmem;

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
