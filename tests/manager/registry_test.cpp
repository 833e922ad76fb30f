// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/registry.hpp>

#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace slot_table_test {

using namespace chunkmem;

namespace {

slot_table of_sizes(const std::vector<std::uint64_t>& sizes)
{
  slot_table table;
  table.slots.resize(sizes.size());
  for (std::size_t index = 0; index < sizes.size(); ++index) table.slots[index].size = sizes[index];
  return table;
}

}  // namespace

TEST_CASE("slots are placed in the order that is given, each list in chunks of its own", "[manager]")
{
  slot_table table = of_sizes({100, 256, 600, 300});
  table.place(std::vector<slot_id>{slot_id{2}, slot_id{0}}, append_layout{}, bytes{512});
  table.place(std::vector<slot_id>{slot_id{3}}, append_layout{}, bytes{512});
  table.finish();
  CHECK((table.slots[2].chunk == chunk_id{0} && table.slots[2].offset == 0));
  CHECK((table.slots[0].chunk == chunk_id{1} && table.slots[0].offset == 0));
  CHECK(table.slots[3].chunk == chunk_id{2});
  CHECK(table.slots[1].chunk == chunk_id::none);
  CHECK(table.frames_of_chunk == sequence<std::uint32_t>{2, 1, 1});
  CHECK(table.used == sequence<std::uint64_t>{768, 256, 512});
  CHECK(table.chunk_of_slot == sequence<std::uint32_t>{1, index_of(chunk_id::none), 0, 2});
}

TEST_CASE("a layout that arranges sees all slots of a list at once", "[manager]")
{
  slot_table table = of_sizes({512, 512, 1'024, 1'024});
  table.place(std::vector<slot_id>{slot_id{0}, slot_id{1}, slot_id{2}, slot_id{3}}, size_class_layout{}, bytes{1'536});
  CHECK(table.frames_of_chunk.size() == 2);
  CHECK(table.slots[0].chunk == table.slots[2].chunk);
}

}  // namespace slot_table_test

namespace stacked_test {

using namespace chunkmem;

TEST_CASE("a slice of a stack is the tensor of that layer", "[manager]")
{
  constexpr stacked<bf16> layers{{{tensor_id{5}, 77}}, 3};
  static_assert(layers.slice(0) == layers.first);
  CHECK(layers.slice(2) == tensor<bf16>{{tensor_id{7}, 77}});
  CHECK_THROWS_AS(layers.slice(3), usage_error);
  CHECK_THROWS_AS(layers.slice(UINT32_MAX), usage_error);
  CHECK_THROWS_AS(stacked<float>{}.slice(0), usage_error);
}

}  // namespace stacked_test

namespace registry_test {

using namespace chunkmem;

namespace {

/// Every slot is aligned, inside its chunk and apart from the others; a chunk holds one list of one role.
std::string mistake_in(const registry& it, std::uint64_t frame)
{
  std::map<chunk_id, std::vector<std::pair<std::uint64_t, std::uint64_t>>> taken;
  std::map<chunk_id, std::set<std::string>> streams;
  std::vector<std::uint64_t> used(it.frames_of_chunk().size(), 0);
  for (const slot_id each : it.slot_ids()) {
    const slot& place = it[each];
    const auto [tensor, list] = it.describe(each);
    if (tensor == tensor_id::none) return "a slot that belongs to nothing";
    if (it.chunk_of_slot()[index_of(each)] != index_of(place.chunk)) return "a slot with two chunks";
    if ((place.chunk == chunk_id::none) != (list == "master" && size_of(it.info(tensor).type) != 2))
      return "a slot without a place";
    if (place.chunk == chunk_id::none) continue;
    streams[place.chunk].insert(std::string{list} + "/" + std::string{name_of(it.info(tensor).part)});
    if (place.offset % 256 != 0) return "a slot is not aligned";
    if (index_of(place.chunk) >= used.size() ||
        place.offset + place.size > it.frames_of_chunk()[index_of(place.chunk)] * frame)
      return "a slot reaches beyond its chunk";
    for (const auto& [begin, end] : taken[place.chunk])
      if (begin < place.offset + place.size && place.offset < end) return "two slots share a byte";
    taken[place.chunk].emplace_back(place.offset, place.offset + place.size);
    used[index_of(place.chunk)] = std::max(used[index_of(place.chunk)], (place.offset + place.size + 255) / 256 * 256);
  }
  for (const auto& [chunk, kinds] : streams)
    if (kinds.size() != 1) return "two lists or roles share a chunk";
  if (streams.size() != used.size()) return "an empty chunk";
  return std::equal(used.begin(), used.end(), it.used().begin(), it.used().end()) ? "" : "used bytes are wrong";
}

/// Two bf16 parameters around a buffer, with a list of fp32.
registry small()
{
  registry it;
  it.add({10}, dtype::bfloat16, role::parameter, group_id{0});
  it.add({300}, dtype::float32, role::buffer, group_id{0});
  it.add({5, 4}, dtype::bfloat16, role::parameter, group_id{2});
  it.add_list({.name = "adam/momentum"});
  it.add_list({.name = "adam/variance"});
  return it;
}

}  // namespace

TEST_CASE("random models are placed without a shared byte, each list and role in chunks of its own", "[manager]")
{
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    support::dice dice{seed};
    registry it;
    const std::uint32_t tensors = dice.between(1, 20);
    const role roles[] = {role::parameter, role::parameter, role::buffer, role::activation, role::frozen};
    for (std::uint32_t index = 0; index < tensors; ++index) {
      const dtype types[] = {dtype::float32, dtype::bfloat16, dtype::uint8, dtype::int64};
      const shape extents{dice.between(1, 400), dice.between(1, 4)};
      const dtype type = types[dice.below(4)];
      CHECK(it.add(extents, type, roles[dice.below(5)], group_id{0}) == tensor_id{index});
    }
    const std::uint32_t lists = dice.below(4);
    const char* const names[] = {"a", "b", "c"};
    for (std::uint32_t index = 0; index < lists; ++index)
      CHECK(it.add_list({.name = names[index]}) == list_id{index + 2});
    const bool masters = dice.below(2) == 0;
    if (masters) CHECK(it.add_list(master_list) == list_id{lists + 2});
    const std::uint64_t frame = 256 * std::uint64_t{dice.between(1, 12)};
    it.seal(append_layout{}, bytes{frame});
    if (const std::string wrong = mistake_in(it, frame); !wrong.empty()) FAIL("seed " << seed << ": " << wrong);
    std::set<slot_id> slots;
    for (std::uint32_t id = 0; id < tensors; ++id) {
      const tensor_info& info = it.info(tensor_id{id});
      const std::uint64_t count = info.extents.elements();
      slots.insert(it.value_slot(tensor_id{id}));
      if (it[it.value_slot(tensor_id{id})].size != count * size_of(info.type))
        FAIL("seed " << seed << ": a wrong size");
      if (info.part != role::parameter) continue;
      if (it.gradient_of(it.value_slot(tensor_id{id})) != it.slot_in(tensor_id{id}, gradient_list))
        FAIL("seed " << seed);
      for (std::uint32_t list = 1; list < it.lists(); ++list) {
        const slot& place = it[it.slot_in(tensor_id{id}, list_id{list})];
        slots.insert(it.slot_in(tensor_id{id}, list_id{list}));
        if (!it.is_in(tensor_id{id}, list_id{list})) continue;
        if (place.size != count * (list == 1 ? size_of(info.type) : 4))
          FAIL("seed " << seed << ": a list of a wrong size");
        if (place.starts_at_zero != (list > 1 && !(masters && list == it.lists() - 1)))
          FAIL("seed " << seed << ": lists of optimizers alone start at zero");
      }
    }
    if (slots.size() != it.slots().size()) FAIL("seed " << seed << ": a slot without a name");
  }
}

TEST_CASE("masters stand beside 16-bit parameters only", "[manager]")
{
  registry it;
  it.add({10}, dtype::bfloat16, role::parameter, group_id{0});
  it.add({10}, dtype::float32, role::parameter, group_id{0}, dtype::float32);
  it.add({10}, dtype::float16, role::parameter, group_id{0}, dtype::float32);
  CHECK_THROWS_AS(it.add_list({"half master", dtype::float16, 1, list_use::master}), usage_error);
  CHECK_FALSE(it.has_masters());
  it.add_list(master_list);
  CHECK_THROWS_AS(it.add_list({"second", dtype::float32, 1, list_use::master}), usage_error);
  it.add_list({.name = "momentum"});
  it.seal(append_layout{}, bytes{1'024});
  CHECK(it.masters() == list_id{2});
  CHECK(it.master_of(slot_id{0}) == slot_id{6});
  CHECK(it.master_of(slot_id{1}) == slot_id::none);
  CHECK(it.master_of(slot_id{2}) == slot_id{8});
  CHECK(it.master_of(slot_id{6}) == slot_id::none);
  CHECK((it.value_type(slot_id{2}) == dtype::float16 && it.gradient_type(slot_id{2}) == dtype::float32 &&
         it.gradient_type(slot_id{0}) == dtype::bfloat16));
  CHECK(it.bytes_of(role::gradient) == 100_B);
  CHECK(it.bytes_of(role::optimizer_state) == 80_B + 120_B);
  CHECK_THROWS_AS(it.expect_exchangeable(list_id{2}, list_id{3}), usage_error);
  it.move_gradient(slot_id{0}, chunk_id{0}, 512);
  CHECK((it[slot_id{3}].offset == 512 && it.chunk_of_slot()[3] == 0));
}

TEST_CASE("a registry names what belongs to each slot and counts bytes by role", "[manager]")
{
  registry it = small();
  it.seal(append_layout{}, bytes{1'024});
  CHECK(it.slots().size() == 2 * 4 + 1);
  CHECK(it.list("value") == value_list);
  CHECK(it.list("adam/variance") == list_id{3});
  CHECK_THROWS_AS(it.list("adam/master"), usage_error);
  CHECK((it.is_value_of_parameter(slot_id{1}) && !it.is_value_of_parameter(slot_id{2})));
  CHECK((it.is_gradient(slot_id{2}) && it.is_gradient(slot_id{3})));
  CHECK_FALSE((it.is_gradient(slot_id{1}) || it.is_gradient(slot_id{4})));
  CHECK((it.is_of_parameter(slot_id{7}) && !it.is_of_parameter(slot_id{8})));  // 8 is the buffer
  CHECK((it.value_of(slot_id{7}) == slot_id{1} && it.value_of(it.gradient_of(slot_id{0})) == slot_id{0}));
  CHECK(it.chunk_of(tensor_id{1}) == it.chunk_of(slot_id{8}));
  CHECK(it.describe(it.value_slot(tensor_id{1})) == std::pair{tensor_id{1}, std::string_view{"value"}});
  CHECK(it.describe(it.slot_in(tensor_id{2}, list_id{2})) ==
        std::pair{tensor_id{2}, std::string_view{"adam/momentum"}});
  CHECK(it.describe(slot_id{999}).first == tensor_id::none);
  CHECK(it.bytes_of(role::parameter) == 60_B);
  CHECK(it.bytes_of(role::gradient) == 60_B);
  CHECK(it.bytes_of(role::optimizer_state) == 2 * 120_B);
  CHECK(it.bytes_of(role::buffer) == 1'200_B);
  CHECK(it.type_in(tensor_id{0}, gradient_list) == dtype::bfloat16);
  CHECK(it.type_in(tensor_id{0}, list_id{2}) == dtype::float32);
}

TEST_CASE("declarations that cannot be are refused and change nothing", "[manager]")
{
  registry it = small();
  CHECK_THROWS_AS(it.add({1}, dtype::float32, role::gradient, group_id{0}), usage_error);
  CHECK_THROWS_AS(it.add({1}, dtype::float32, role::optimizer_state, group_id{0}), usage_error);
  CHECK_THROWS_AS(it.add({UINT64_MAX}, dtype::float32, role::parameter, group_id{0}), size_overflow);
  for (const char* const taken : {"value", "gradient", "adam/momentum"})
    CHECK_THROWS_AS(it.add_list({.name = taken}), usage_error);
  CHECK((it.tensors() == 3 && it.lists() == 4));
  it.seal(append_layout{}, bytes{1'024});
  CHECK(mistake_in(it, 1'024).empty());
  CHECK_THROWS_AS(it.add({1}, dtype::float32, role::parameter, group_id{0}), usage_error);
  CHECK_THROWS_AS(it.add_list({.name = "late"}), usage_error);
  CHECK((it.tensors() == 3 && it.lists() == 4));
}

TEST_CASE("a seal that fails seals nothing and may be tried again", "[manager]")
{
  registry it = small();
  CHECK_THROWS_AS(it.seal(append_layout{}, bytes{1'000}), usage_error);
  CHECK_FALSE(it.is_sealed());
  it.seal(append_layout{}, bytes{512});
  CHECK(it.is_sealed());
  CHECK(mistake_in(it, 512).empty());
  registry large;
  large.add({UINT64_MAX / 2}, dtype::uint8, role::parameter, group_id{0});
  large.add_list({.name = "adam/momentum"});  // four bytes for each of them do not fit
  CHECK_THROWS_AS(large.seal(append_layout{}, bytes{512}), size_overflow);
  CHECK_FALSE(large.is_sealed());
}

TEST_CASE("lists that are exchanged exchange places and keep their names", "[manager]")
{
  registry it = small();
  CHECK_THROWS_AS(it.expect_exchangeable(list_id{2}, list_id{3}), usage_error);
  it.seal(append_layout{}, bytes{1'024});
  const registry before = it;
  const slot_id left = it.slot_in(tensor_id{2}, list_id{2});
  const slot_id right = it.slot_in(tensor_id{2}, list_id{3});
  it[left].next_access_index = 7;
  it[right].next_access_index = 9;
  it[left].state = tensor_state::hold;
  std::vector<std::pair<slot_id, slot_id>> told;
  it.exchange(list_id{2}, list_id{3}, [&](slot_id a, slot_id b) { told.emplace_back(a, b); });
  CHECK(told == std::vector<std::pair<slot_id, slot_id>>{
                    {it.slot_in(tensor_id{0}, list_id{2}), it.slot_in(tensor_id{0}, list_id{3})}, {left, right}});
  CHECK((it[left].chunk == before[right].chunk && it[right].chunk == before[left].chunk));
  CHECK((it[left].next_access_index == 7 && it[right].next_access_index == 9));
  CHECK((it[right].state == tensor_state::hold && it[left].state == tensor_state::free));
  CHECK(it.chunk_of_slot()[index_of(left)] == index_of(it[left].chunk));
  CHECK(mistake_in(it, 1'024).empty());
}

TEST_CASE("an exchange that cannot be is refused", "[manager]")
{
  registry it = small();
  it.seal(append_layout{}, bytes{1'024});
  CHECK_NOTHROW(it.expect_exchangeable(list_id{2}, list_id{3}));
  CHECK_THROWS_AS(it.expect_exchangeable(value_list, list_id{2}), usage_error);   // another element type
  CHECK_THROWS_AS(it.expect_exchangeable(list_id{2}, list_id{99}), usage_error);  // no such list
  it[it.slot_in(tensor_id{2}, list_id{3})].pins = 1;
  CHECK_THROWS_AS(it.expect_exchangeable(list_id{2}, list_id{3}), usage_error);
}

TEST_CASE("tensors placed again by first use lie together as they are used", "[manager]")
{
  registry it;
  for (int tensor = 0; tensor < 6; ++tensor) it.add({64}, dtype::float32, role::parameter, group_id{0});
  CHECK_THROWS_AS(it.place_by_use(std::vector<std::uint32_t>(12), append_layout{}, bytes{512}), usage_error);
  it.add({64}, dtype::float32, role::buffer, group_id{0});
  it.seal(append_layout{}, bytes{512});
  const registry declared = it;
  it[slot_id{4}].state = tensor_state::hold;
  //                               values: used 4, 1, 3, then 0 = 5 never; the gradients as declared
  std::vector<std::uint32_t> first_use{UINT32_MAX, 2, 9, 7, 1, UINT32_MAX, 3, 3, 3, 3, 3, 3, 0};
  it.place_by_use(first_use, append_layout{}, bytes{512});
  CHECK(mistake_in(it, 512).empty());
  const std::vector<std::uint32_t> chunks{2, 0, 1, 1, 0, 2};
  for (std::uint32_t index = 0; index < 6; ++index) CHECK(it[slot_id{index}].chunk == chunk_id{chunks[index]});
  CHECK((it[slot_id{4}].offset == 0 && it[slot_id{0}].offset == 0 && it[slot_id{5}].offset == 256));
  CHECK(it[slot_id{4}].state == tensor_state::hold);
  for (std::uint32_t index = 6; index < 13; ++index)
    CHECK((it[slot_id{index}].chunk == declared[slot_id{index}].chunk &&
           it[slot_id{index}].offset == declared[slot_id{index}].offset));
}

TEST_CASE("placing again that cannot be changes nothing", "[manager]")
{
  registry it = small();
  it.seal(append_layout{}, bytes{1'024});
  const auto places = [&] {
    std::vector<std::pair<chunk_id, std::uint64_t>> all;
    for (const slot& each : it.slots()) all.emplace_back(each.chunk, each.offset);
    return all;
  };
  const auto before = places();
  std::vector<std::uint32_t> first_use(it.slots().size(), 0);
  CHECK_THROWS_AS(it.place_by_use(std::span{first_use}.first(3), append_layout{}, bytes{1'024}), usage_error);
  CHECK_THROWS_AS(it.place_by_use(first_use, append_layout{}, bytes{1'000}), usage_error);
  it[slot_id{0}].pins = 1;
  CHECK_THROWS_AS(it.place_by_use(first_use, append_layout{}, bytes{1'024}), usage_error);
  CHECK(places() == before);
  CHECK(mistake_in(it, 1'024).empty());
}

TEST_CASE("a registry takes layouts that arrange, by value", "[manager]")
{
  registry it = small();
  it.seal(size_class_layout{}, bytes{256});
  CHECK(mistake_in(it, 256).empty());
}

}  // namespace registry_test
