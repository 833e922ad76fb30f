// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/ordered_sum.hpp>

#include <support/catch.hpp>
#include <support/rank_schedule.hpp>

#include <cfenv>
#include <cstdint>
#include <vector>

namespace ordered_sum_test {

using namespace chunkmem;
using collective::add_in_order;
using collective::require_summable;

TEST_CASE("add_in_order adds as plain loops do, hostile numbers included, in place or not", "[collective]")
{
  for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::float16})
    for (const std::uint32_t ranks : {1U, 2U, 5U})
      for (const std::uint64_t elements : {0U, 1U, 511U, 512U, 513U, 1'300U})
        for (const float scale : {1.0F, 0.2F, 1e-30F}) {
          std::vector<support::rank_bytes> all;
          for (std::uint32_t rank = 0; rank < ranks; ++rank)
            all.push_back(support::bytes_of_rank(type, elements * size_of(type), rank, 3));
          std::vector<const std::byte*> places;
          for (const auto& it : all) places.push_back(it.data());
          auto expected = all.back();
          support::add_plainly(expected, all, 0, expected.size(), {.type = type, .scale = scale});
          support::rank_bytes elsewhere(expected.size());
          add_in_order(elsewhere.data(), places, bytes{expected.size()}, {.type = type, .scale = scale});
          CHECK(elsewhere == expected);
          add_in_order(all.back().data(), places, bytes{expected.size()}, {.type = type, .scale = scale});
          CHECK(all.back() == expected);
        }
}

TEST_CASE("the order of ranks decides a sum, the caller's rounding mode does not", "[collective]")
{
  const float values[] = {1e8F, 1.0F, -1e8F};
  const std::byte* const forward[] = {reinterpret_cast<const std::byte*>(&values[0]),
                                      reinterpret_cast<const std::byte*>(&values[1]),
                                      reinterpret_cast<const std::byte*>(&values[2])};
  const std::byte* const other[] = {forward[0], forward[2], forward[1]};
  float result = 7;
  const int mode = std::fegetround();
  std::fesetround(FE_UPWARD);
  add_in_order(reinterpret_cast<std::byte*>(&result), forward, 4_B, {});
  std::fesetround(mode);
  CHECK(result == 0);
  add_in_order(reinterpret_cast<std::byte*>(&result), other, 4_B, {});
  CHECK(result == 1);
}

TEST_CASE("only real elements that are whole are added", "[collective]")
{
  CHECK_NOTHROW(require_summable({.type = dtype::bfloat16}, 6));
  CHECK_THROWS_AS(require_summable({.type = dtype::bfloat16}, 7), usage_error);
  CHECK_THROWS_AS(require_summable({.type = dtype::float32}, 6), usage_error);
  for (const dtype type : {dtype::int32, dtype::int64, dtype::uint8})
    CHECK_THROWS_AS(require_summable({.type = type}, 8), usage_error);
}

}  // namespace ordered_sum_test
