#include <chunkmem/sharding/gathered_units.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/append_layout.hpp>
#include <chunkmem/collective/self.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/sharding/gathering.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace gathered_units_test {

using namespace chunkmem;
using manager_type = sharding::rank_manager<manager<backend::host_arena, sharding::gathering<collective::self>>>;

struct rig {
  static constexpr std::uint32_t ranks = 3;
  static constexpr bytes frame{std::uint64_t{ranks} * 4096 * 4};
  backend::host_arena memory{{.device_capacity = frame * 8, .host_capacity = frame * 8}};
  collective::self alone;
  manager_type m{memory, {.chunk_bytes = frame}, sharding::gathering<collective::self>{alone, memory.adopt()}};
  sharding::unit_plan<append_layout> plan;
  sharding::gathered_units units;

  explicit rig(std::uint32_t rank)
  {
    plan.add(dtype::float32, group_id{1}, true, 5000);
    plan.add(dtype::bfloat16, group_id{0}, true, 100);
    plan.add(dtype::float32, group_id{1}, true, 100);
    plan.add(dtype::float16, group_id{0}, false, 9000);
    plan.seal(frame, ranks);
    units.declare(m, plan, rank_id{rank}, [](dtype) { return dtype::float32; }, [](std::uint32_t tensor) { return tensor + 10; });
  }
};

TEST_CASE("every rank declares tensors of the same sizes, and owns other parts", "[sharding]")
{
  std::vector<std::vector<std::uint64_t>> sizes;
  std::set<std::uint64_t> owned;  // first elements of the first tensor's parts
  for (std::uint32_t rank = 0; rank < rig::ranks; ++rank) {
    rig it{rank};
    sizes.emplace_back();
    it.m.for_each_tensor([&](tensor_handle, const tensor_info& info) { sizes.back().push_back(info.extents.elements() * size_of(info.type)); });
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
  const auto runs = it.m.runs_of(it.units[1].share);
  REQUIRE(runs.size() == 1);
  CHECK((runs[0].tensor == 11 && runs[0].begin == 0 && runs[0].elements == 100 && runs[0].first == 0 && !runs[0].has_gradient));
  CHECK(it.units.part_of(0, 3) == nullptr);
}

TEST_CASE("weights of other element types are refused by name", "[sharding]")
{
  CHECK_THROWS_WITH(sharding::with_element(dtype::int32, [](auto) {}), Catch::Matchers::ContainsSubstring("float32, bfloat16 or float16"));
  CHECK(sharding::with_element(dtype::float16, [](auto element) { return sizeof(element); }) == 2);
}

}  // namespace gathered_units_test
