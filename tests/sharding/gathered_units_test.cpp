// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/gathered_units.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/manager/manager.hpp>

#include <support/catch.hpp>
#include <support/told_gatherer.hpp>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace gathered_units_test {

using namespace chunkmem;
using manager_type = manager<backend::host_arena, support::told_gatherer>;

struct rig {
  static constexpr std::uint32_t ranks = 3;
  static constexpr bytes frame{std::uint64_t{ranks} * 4096 * 4};
  backend::host_arena memory{{.device_capacity = frame * 12, .host_capacity = frame * 12}};
  support::told_of_ranks told;
  manager_type m{memory, {.chunk_bytes = frame}, support::told_gatherer{{}, &told, memory.adopt()}};
  sharding::unit_plan<append_layout> plan;
  sharding::gathered_units units;

  explicit rig(std::uint32_t rank)
  {
    plan.add(dtype::float32, group_id{1}, true, 5000);
    plan.add(dtype::bfloat16, group_id{0}, true, 100);
    plan.add(dtype::float32, group_id{1}, true, 100);
    plan.add(dtype::float16, group_id{0}, false, 9000);
    plan.seal(frame, ranks);
    units.declare(
        m, plan, rank_id{rank}, false, [](dtype) { return dtype::float32; },
        [](std::uint32_t tensor) { return tensor + 10; });
  }
};

TEST_CASE("every rank declares tensors of the same sizes, and owns other parts", "[sharding]")
{
  std::vector<std::vector<std::uint64_t>> sizes;
  std::set<std::uint64_t> owned;  // first elements of the first tensor's parts
  for (std::uint32_t rank = 0; rank < rig::ranks; ++rank) {
    rig it{rank};
    sizes.emplace_back();
    it.m.for_each_tensor([&](tensor_handle, const tensor_info& info) {
      sizes.back().push_back(info.extents.elements() * size_of(info.type));
    });
    REQUIRE(it.units.size() == 3);
    CHECK(it.units[0].share_begin == rank * it.units[0].elements / rig::ranks);
    if (const auto* part = it.units.part_of(0, 0); part != nullptr) owned.insert(part->first);
  }
  CHECK(sizes[0] == sizes[1]);
  CHECK(sizes[0] == sizes[2]);
  CHECK(owned == std::set<std::uint64_t>{0, 4096});
}

TEST_CASE("units have the types, groups and gradients of their tensors", "[sharding]")
{
  rig it{0};
  CHECK((it.units[0].type == dtype::float32 && it.units[0].is_trained && it.units[0].elements == 3 * 4096));
  CHECK((it.units[1].type == dtype::bfloat16 && it.units[1].gradient_type == dtype::float32));
  CHECK((it.units[2].type == dtype::float16 && !it.units[2].is_trained));
  std::vector<std::uint32_t> groups;
  it.m.for_each_parameter([&](tensor_handle, const tensor_info& info) { groups.push_back(index_of(info.group)); });
  CHECK(groups == std::vector<std::uint32_t>{1, 0});
  CHECK(it.m.name_of(it.units[1].share) == "unit.1");
  const auto runs = it.units.runs()[it.units[1].share];
  REQUIRE(runs.size() == 1);
  CHECK((runs[0].tensor == 11 && runs[0].begin == 0 && runs[0].elements == 100 && runs[0].first == 0 &&
         !runs[0].has_gradient));
  CHECK(it.units.part_of(0, 3) == nullptr);
}

TEST_CASE("each rank owns its parts of the tensors, under their names and places", "[sharding]")
{
  struct run {
    std::uint32_t unit, tensor;
    std::uint64_t begin, elements, first;
    bool operator==(const run&) const = default;
  };
  const auto runs_of = [](std::uint32_t rank) {
    rig it{rank};
    std::vector<run> all;
    for (std::uint32_t unit = 0; unit < it.units.size(); ++unit) {
      CHECK(it.units[unit].share_elements == it.units[unit].elements / rig::ranks);
      for (const auto& one : it.units.runs()[it.units[unit].share])
        all.push_back({unit, one.tensor, one.begin, one.elements, one.first});
    }
    return all;
  };
  CHECK(runs_of(0) == std::vector<run>{{0, 10, 0, 4096, 0}, {1, 11, 0, 100, 0}, {2, 13, 0, 8192, 0}});
  CHECK(runs_of(1) == std::vector<run>{{0, 10, 0, 904, 4096}, {2, 13, 0, 808, 8192}});
  CHECK(runs_of(2) == std::vector<run>{{0, 12, 0, 100, 0}});
}

TEST_CASE("a unit is gathered with its number, and this rank's share lies in its place there", "[sharding]")
{
  for (std::uint32_t rank = 0; rank < rig::ranks; ++rank) {
    rig it{rank};
    for (std::uint32_t index = 0; index < it.units.size(); ++index) {
      const sharding::unit_tensors& unit = it.units[index];
      {
        const auto change = it.m.acquire(unit.whole, access::write, memory_location::host);
        sharding::with_element(unit.type, [&]<class Element>(Element) {
          for (Element& value : it.m.acquire(tensor<Element>{unit.share}, access::write, memory_location::host).span())
            value = round_to<Element>(static_cast<float>(index + 2));
        });
      }
      const auto whole = it.m.acquire(unit.whole, access::read);
      CHECK(whole.size() == unit.elements * size_of(unit.type));
      sharding::with_element(unit.type, [&]<class Element>(Element) {
        const auto* const share = reinterpret_cast<const Element*>(std::as_const(whole).data()) + unit.share_begin;
        CHECK(to_float(share[0]) == static_cast<float>(index + 2));
        CHECK(to_float(share[unit.share_elements - 1]) == static_cast<float>(index + 2));
      });
    }
    CHECK(it.told.gathered() == std::vector<std::uint32_t>{0, 1, 2});
    CHECK(it.m.report().loaded == rig::frame);  // three units of a frame each, a third of each
  }
}

TEST_CASE("gradients of a unit have room for their own element type", "[sharding]")
{
  rig it{0};
  for (const std::uint32_t index : {0U, 1U}) {
    const auto pin = it.m.acquire(it.units[index].gradients, access::write);
    CHECK(pin.size() == it.units[index].elements * sizeof(float));
  }
}

TEST_CASE("weights of other element types are refused by name", "[sharding]")
{
  CHECK_THROWS_WITH(sharding::with_element(dtype::int32, [](auto) {}),
                    Catch::Matchers::ContainsSubstring("float32, bfloat16 or float16"));
  CHECK(sharding::with_element(dtype::float16, [](auto element) { return sizeof(element); }) == 2);
}

}  // namespace gathered_units_test
