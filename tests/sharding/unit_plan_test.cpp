#include <chunkmem/sharding/unit_plan.hpp>

#include <chunkmem/chunk/append_layout.hpp>
#include <chunkmem/chunk/best_fit_layout.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/collective/shares.hpp>
#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
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

/// What is wrong with a plan, element by element; empty: nothing.
template <class Layout>
std::string complaint(const std::vector<wish>& wishes, std::uint32_t ranks)
{
  const bytes frame{std::uint64_t{ranks} * measure_block * 4 * 3};
  unit_plan<Layout> plan;
  for (const wish& it : wishes) plan.add(it.type, it.group, it.trained, it.elements);
  plan.seal(frame, ranks);
  std::vector<std::vector<int>> owners;
  for (const wish& it : wishes) owners.emplace_back(it.elements, 0);
  std::vector<std::vector<std::uint8_t>> taken;
  for (std::uint32_t at = 0; at < plan.units().size(); ++at) {
    const unit& it = plan.units()[at];
    if (it.elements * size_of(it.type) % frame.count() != 0) return "a unit is not whole frames";
    const auto shares = collective::shares::of(bytes{it.elements * size_of(it.type)}, ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (shares.begin(rank) != plan.share_begin(at, rank_id{rank}) * size_of(it.type)) return "shares are not those of a communicator";
      for (const tensor_part& part : plan.parts(at, rank_id{rank})) {
        if (part.first % measure_block != 0 || part.begin % measure_block != 0) return "a block is cut";
        if (part.begin < plan.share_begin(at, rank_id{rank}) || part.begin + part.elements > plan.share_end(at, rank_id{rank})) return "a part beyond its share";
        for (std::uint64_t i = 0; i < part.elements; ++i) ++owners[part.tensor].at(part.first + i);
      }
    }
    taken.emplace_back(it.elements, 0);
  }
  for (std::uint32_t tensor = 0; tensor < wishes.size(); ++tensor) {
    const auto place = plan.place(tensor);
    const unit& it = plan.units()[place.unit];
    if (it.type != wishes[tensor].type || it.group != wishes[tensor].group || it.trained != wishes[tensor].trained) return "kinds are mixed";
    if (std::ranges::any_of(owners[tensor], [](int count) { return count != 1; })) return "an element is not owned once";
    for (std::uint64_t i = 0; i < wishes[tensor].elements; ++i)
      if (std::exchange(taken[place.unit].at(place.first + i), std::uint8_t{1}) != 0) return "two tensors overlap";
  }
  return {};
}

TEST_CASE("every element of every tensor has one owner, and no block of a norm has two", "[sharding]")
{
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (const std::uint32_t ranks : {1U, 2U, 3U, 7U, 8U}) {
      INFO("seed " << seed << ", " << ranks << " ranks");
      CHECK(complaint<append_layout>(random_wishes(seed), ranks) == "");
      CHECK(complaint<best_fit_layout>(random_wishes(seed), ranks) == "");
    }
}

TEST_CASE("a chunk that ranks cannot divide into blocks is refused, with the next size that they can", "[sharding]")
{
  unit_plan<append_layout> plan;
  plan.add(dtype::bfloat16, group_id{0}, true, 10);
  CHECK_THROWS_WITH(plan.seal(bytes{100'000}, 3), "chunkmem: chunk_bytes is 100000 B, which 3 ranks cannot divide into blocks of 4096 elements (take 147456)");
  CHECK_THROWS_AS(plan.seal(bytes{0}, 3), config_error);
  plan.seal(bytes{147'456}, 3);
  CHECK(plan.units().size() == 1);
  CHECK(plan.units()[0].elements == 73'728);
  CHECK(plan.padding() == 73'718);
  CHECK_THROWS_AS(plan.add(dtype::float32, group_id{0}, true, 1), usage_error);
}

TEST_CASE("a tensor of more elements than 64 bits of bytes hold is refused", "[sharding]")
{
  unit_plan<append_layout> plan;
  plan.add(dtype::float32, group_id{0}, true, UINT64_MAX / 2);
  CHECK_THROWS_AS(plan.seal(bytes{1U << 20U}, 2), size_overflow);
}

}  // namespace unit_plan_test
