// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/core/ids.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <type_traits>
#include <vector>

namespace ids_test {

using namespace chunkmem;

namespace {

template <class Id>
constexpr bool is_an_id =
    sizeof(Id) == 4 && std::is_enum_v<Id> && !std::is_convertible_v<Id, std::uint32_t> &&
    !std::is_convertible_v<std::uint32_t, Id> && index_of(Id::none) == UINT32_MAX && index_of(Id{5}) == 5;

static_assert(is_an_id<tensor_id> && is_an_id<list_id> && is_an_id<slot_id> && is_an_id<chunk_id>);
static_assert(is_an_id<frame_id> && is_an_id<group_id> && is_an_id<access_index>);
static_assert(!std::is_same_v<chunk_id, frame_id> && !std::is_convertible_v<chunk_id, frame_id>);

}  // namespace

TEST_CASE("ids are four bytes, ordered, and types of their own", "[core]")
{
  CHECK(chunk_id{3} < chunk_id{4});
  CHECK(access_index{7} == access_index{7});
  CHECK(access_index{UINT32_MAX} == access_index::none);
}

TEST_CASE("a range of ids has each of them once, in order", "[core]")
{
  std::vector<slot_id> seen;
  for (const slot_id each : ids<slot_id>(3)) seen.push_back(each);
  CHECK(seen == std::vector<slot_id>{slot_id{0}, slot_id{1}, slot_id{2}});
  for (const slot_id each : ids<slot_id>(0)) FAIL("slot " << index_of(each) << " of none");
  CHECK(frame_id{5} + 3 == frame_id{8});
}

}  // namespace ids_test
