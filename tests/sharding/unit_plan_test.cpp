// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/unit_plan.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace unit_plan_test {

using namespace chunkmem;
using sharding::tensor_part;
using sharding::unit;
using sharding::unit_plan;

struct wish {
  dtype type;
  group_id group;
  bool trained;
  std::uint64_t elements;
};

std::vector<wish> random_wishes(std::uint64_t seed)
{
  std::mt19937_64 random{seed};
  std::vector<wish> result;
  const std::uint64_t sizes[] = {1, 4095, 4096, 4097, 100'000};
  const dtype types[] = {dtype::float32, dtype::bfloat16, dtype::float16};
  for (std::uint64_t left = 1 + random() % 40; left > 0; --left)
    result.push_back({types[random() % 3], group_id{static_cast<std::uint32_t>(random() % 2)}, random() % 4 != 0,
                      random() % 2 == 0 ? sizes[random() % 5] : 1 + random() % 30'000});
  return result;
}

/// The mistake in a plan, element by element; empty: none.
template <class Layout>
std::string complaint(const std::vector<wish>& wishes, std::uint32_t ranks)
{
  const bytes frame{std::uint64_t{ranks} * measure_block * 4 * 3};
  unit_plan<Layout> plan;
  for (const wish& it : wishes) plan.add(it.type, it.group, it.trained, it.elements);
  plan.seal(frame, ranks);
  std::uint64_t padding = 0;
  std::uint32_t first_of_next = 0;  // the unit that a tensor of a kind not seen yet begins
  std::vector<std::vector<int>> owners;
  for (const wish& it : wishes) owners.emplace_back(it.elements, 0);
  std::vector<std::vector<std::uint8_t>> taken;
  for (std::uint32_t index = 0; index < plan.units().size(); ++index) {
    const unit& it = plan.units()[index];
    if (it.elements == 0 || it.elements * size_of(it.type) % frame.count() != 0) return "a unit is not whole frames";
    if (!std::ranges::is_sorted(it.tensors, {}, [&](std::uint32_t tensor) { return plan.place(tensor).first; }))
      return "tensors of a unit are not in order";
    padding += it.elements;
    for (const std::uint32_t tensor : it.tensors) {
      if (plan.place(tensor).unit != index) return "a unit names a tensor of another";
      if (plan.place(tensor).first % measure_block != 0) return "a tensor begins within a block";
    }
    const auto shares = collective::shares::of(bytes{it.elements * size_of(it.type)}, ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (shares.begin(rank) != plan.share_begin(index, rank_id{rank}) * size_of(it.type))
        return "shares are not those of a communicator";
      for (const tensor_part& part : plan.parts(index, rank_id{rank})) {
        if (part.first % measure_block != 0 || part.begin % measure_block != 0) return "a block is cut";
        if (part.begin < plan.share_begin(index, rank_id{rank}) ||
            part.begin + part.elements > plan.share_end(index, rank_id{rank}))
          return "a part beyond its share";
        for (std::uint64_t i = 0; i < part.elements; ++i) ++owners[part.tensor].at(part.first + i);
      }
    }
    taken.emplace_back(it.elements, 0);
  }
  std::size_t named = 0;
  for (const unit& it : plan.units()) named += it.tensors.size();
  if (named != wishes.size()) return "units do not name every tensor once";
  for (std::uint32_t tensor = 0; tensor < wishes.size(); ++tensor) {
    padding -= wishes[tensor].elements;
    const auto place = plan.place(tensor);
    const unit& it = plan.units()[place.unit];
    if (it.type != wishes[tensor].type || it.group != wishes[tensor].group || it.trained != wishes[tensor].trained)
      return "kinds are mixed";
    if (std::ranges::any_of(owners[tensor], [](int count) { return count != 1; }))
      return "an element is not owned once";
    for (std::uint64_t i = 0; i < wishes[tensor].elements; ++i)
      if (std::exchange(taken[place.unit].at(place.first + i), std::uint8_t{1}) != 0) return "two tensors overlap";
    const auto is_like = [&](const wish& other) {
      return other.type == wishes[tensor].type && other.group == wishes[tensor].group &&
             other.trained == wishes[tensor].trained;
    };
    if (std::any_of(wishes.begin(), wishes.begin() + tensor, is_like)) continue;
    const auto units_of_kind = std::ranges::count_if(plan.units(), [&](const unit& one) {
      return one.type == it.type && one.group == it.group && one.trained == it.trained;
    });
    if (place.unit < first_of_next || place.unit >= first_of_next + units_of_kind)
      return "units are not in the order of their kinds' first tensors";
    first_of_next += static_cast<std::uint32_t>(units_of_kind);
  }
  return padding == plan.padding() ? "" : "padding is counted wrongly";
}

TEST_CASE("every element of every tensor has one owner, and no block of a norm has two", "[sharding]")
{
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
      INFO("seed " << seed << ", " << ranks << " ranks");
      CHECK(complaint<append_layout>(random_wishes(seed), ranks) == "");
      CHECK(complaint<best_fit_layout>(random_wishes(seed), ranks) == "");
      CHECK(complaint<size_class_layout>(random_wishes(seed), ranks) == "");
    }
}

TEST_CASE("a chunk that ranks cannot divide into blocks is refused, with the next size that they can", "[sharding]")
{
  unit_plan<append_layout> plan;
  plan.add(dtype::bfloat16, group_id{0}, true, 10);
  CHECK_THROWS_WITH(
      plan.seal(bytes{100'000}, 3),
      "chunkmem: chunk_bytes, or unit_bytes where it is given, is 100000 B, which 3 ranks cannot divide into blocks of "
      "4096 elements (use 147456)");
  CHECK_THROWS_AS(plan.seal(bytes{0}, 3), config_error);
  plan.seal(bytes{147'456}, 3);
  CHECK(plan.units().size() == 1);
  CHECK(plan.units()[0].elements == 73'728);
  CHECK(plan.padding() == 73'718);
  CHECK_THROWS_AS(plan.add(dtype::float32, group_id{0}, true, 1), usage_error);
}

TEST_CASE(
    "a size of chunks is refused just where shares would cut blocks of any element type, and the size named is the "
    "least good one",
    "[sharding]")
{
  for (std::uint64_t ranks = 1; ranks <= 9; ++ranks) {
    const std::uint64_t grain = ranks * 4096 * 4;
    for (const std::uint64_t frame : {std::uint64_t{0}, std::uint64_t{1}, ranks * 4096, ranks * 8192, grain - 1, grain,
                                      grain + 1, grain + 256, 2 * grain, 3 * grain - 256}) {
      INFO(ranks << " ranks, " << frame << " B");
      unit_plan<append_layout> plan;
      plan.add(dtype::float16, group_id{0}, true, 10'000);
      const auto seal = [&](std::uint64_t size) { plan.seal(bytes{size}, static_cast<std::uint32_t>(ranks)); };
      if (frame != 0 && frame % grain == 0) {
        CHECK_NOTHROW(seal(frame));
        continue;
      }
      const std::uint64_t next = frame == 0 ? grain : (frame + grain - 1) / grain * grain;
      CHECK_THROWS_WITH(seal(frame), Catch::Matchers::EndsWith("(use " + std::to_string(next) + ")"));
      CHECK_NOTHROW(seal(next));
      CHECK(plan.units().size() == 1);
    }
  }
}

namespace {

/// Places as append_layout does, and one step of alignment further.
struct ragged_layout : append_layout {
  chunk_place place(bytes size)
  {
    chunk_place result = append_layout::place(size);
    result.offset += 256;
    return result;
  }
};

}  // namespace

TEST_CASE("a layout that does not keep blocks whole is refused", "[sharding]")
{
  unit_plan<ragged_layout> plan;
  plan.add(dtype::float32, group_id{0}, true, 10);
  CHECK_THROWS_AS(plan.seal(bytes{16'384}, 1), usage_error);
}

TEST_CASE("a tensor of more elements than 64 bits of bytes hold is refused", "[sharding]")
{
  unit_plan<append_layout> plan;
  plan.add(dtype::float32, group_id{0}, true, UINT64_MAX / 2);
  CHECK_THROWS_AS(plan.seal(bytes{1U << 20U}, 2), size_overflow);
  unit_plan<append_layout> rounded;
  rounded.add(dtype::bfloat16, group_id{0}, true, UINT64_MAX);  // no whole number of blocks
  CHECK_THROWS_AS(rounded.seal(bytes{1U << 20U}, 2), size_overflow);
}

/// Its author did not think of blocks: what has one size is moved.
struct shifting_layout : append_layout {
  static inline bytes moved{};
  chunk_place place(bytes size)
  {
    chunk_place result = append_layout::place(size);
    if (size == moved) result.offset += tensor_alignment.count();
    return result;
  }
};

TEST_CASE("a layout that cuts blocks is refused, and nothing of it stays", "[sharding]")
{
  unit_plan<shifting_layout> plan;
  plan.add(dtype::float32, group_id{0}, true, 4096);
  plan.add(dtype::bfloat16, group_id{0}, true, 4096);
  shifting_layout::moved = bytes{8192};  // the second kind, when the first one is placed
  CHECK_THROWS_AS(plan.seal(bytes{1U << 16U}, 2), usage_error);
  shifting_layout::moved = bytes{};
  CHECK_THROWS_AS(plan.seal(bytes{1U << 16U}, 0), usage_error);
  plan.seal(bytes{1U << 16U}, 2);
  REQUIRE(plan.units().size() == 2);
  CHECK((plan.place(0).unit == 0 && plan.place(1).unit == 1));
  CHECK(plan.units()[0].tensors == std::vector<std::uint32_t>{0});
  CHECK_THROWS_AS(plan.seal(bytes{1U << 16U}, 2), usage_error);
}

}  // namespace unit_plan_test
