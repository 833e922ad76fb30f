// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/registered_states.hpp>

#include <chunkmem/chunk/layouts.hpp>

#include <support/catch.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace registered_states_test {

using namespace chunkmem;

namespace {

/// An object as `use` takes one.
struct counter {
  static constexpr std::string_view name = "counter";
  registration registered;
  std::uint32_t count = 3;
  std::uint16_t kind = 1;

  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(restart_state{"count", std::as_writable_bytes(std::span{&count, 1}),
                        [](std::span<const std::byte>) { throw config_error{"no"}; }});
    visit(restart_state{.name = "kind", .content = std::as_writable_bytes(std::span{&kind, 1}), .is_constant = true});
  }
};
constexpr auto no_lists = [] {};

std::string names_of(const registered_states& states)
{
  std::string all;
  states.for_each([&](std::string_view name, std::span<std::byte> content) {
    all.append(name).append(":").append(std::to_string(content.size())).append(" ");
  });
  return all;
}

}  // namespace

TEST_CASE("states are found by name, with the bytes of their owners", "[manager]")
{
  registered_states states;
  std::array<std::byte, 8> cursor{};
  counter steps;
  states.add("cursor", cursor);
  states.add(steps, no_lists);
  CHECK(names_of(states) == "cursor:8 counter/count:4 counter/kind:2 ");
  states.for_each([&](std::string_view name, std::span<std::byte> content) {
    if (name == "counter/count") CHECK(content.data() == reinterpret_cast<std::byte*>(&steps.count));
  });
  CHECK(states.check_of("cursor") == nullptr);
  CHECK_THROWS_AS(states.check_of("counter/count")({}), config_error);
  CHECK(states.is_constant("counter/kind"));
  CHECK(!states.is_constant("counter/count"));
  states.expect_used(steps.registered, "a counter");
  states.expect_whole();
}

TEST_CASE("a registration that is refused changes nothing", "[manager]")
{
  registered_states states;
  counter first, second;
  states.add(first, no_lists);
  CHECK_THROWS_AS(states.add(first, no_lists), usage_error);   // twice
  CHECK_THROWS_AS(states.add(second, no_lists), usage_error);  // the name is taken
  registered_states others;
  CHECK_THROWS_AS(others.add(first, no_lists), usage_error);  // it counts the updates of another manager
  CHECK_THROWS_AS(others.add(second, [] { throw std::runtime_error{"lists"}; }), std::runtime_error);
  CHECK(names_of(others).empty());
  CHECK_THROWS_AS(others.expect_used(second.registered, "a counter"), usage_error);
  others.add(second, no_lists);
  CHECK(names_of(states) == "counter/count:4 counter/kind:2 ");
}

TEST_CASE("an owner that is gone leaves its names, and a save is refused", "[manager]")
{
  registered_states states;
  std::optional<counter> steps{std::in_place};
  states.add(*steps, no_lists);
  steps.reset();
  CHECK(names_of(states) == "counter/count:0 counter/kind:0 ");
  CHECK_THROWS_WITH(states.expect_whole(), Catch::Matchers::ContainsSubstring("counter/count"));
}

}  // namespace registered_states_test

namespace pending_updates_test {

namespace cm = chunkmem;
using namespace cm::literals;

namespace {

/// Parameters of a whole chunk or half of one, and who updates them; the parameter `bad` cannot be updated.
struct updater {
  /// @param elements   of each parameter; 1024 fill a chunk
  explicit updater(const std::vector<std::uint64_t>& elements)
  {
    for (const std::uint64_t count : elements)
      tensors.add({count}, cm::dtype::float32, cm::role::parameter, cm::group_id{0});
    tensors.seal(cm::append_layout{}, 4_KiB);
    pending.prepare();
  }

  static void update(void* self, cm::slot_id value)
  {
    auto& it = *static_cast<updater*>(self);
    CHECK_FALSE(it.pending.has(value));
    it.pending.catch_up(value);  // what an update uses waits for nothing
    if (value == it.bad) throw std::runtime_error{"bad"};
    it.done.push_back(cm::index_of(value));
  }
  void wait(const std::vector<std::uint32_t>& parameters)
  {
    for (const std::uint32_t parameter : parameters) pending.add(cm::slot_id{parameter});
    pending.serve(&updater::update, this);
  }

  cm::registry tensors;
  cm::pending_updates pending{tensors};
  cm::slot_id bad{99};
  std::vector<std::uint32_t> done;
};

using list = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("updates wait by the chunks of their weights", "[manager]")
{
  updater it{{1024, 512, 256, 256, 1024}};  // chunks: 0, 1 with three of them, 2
  CHECK_FALSE(it.pending.any());
  it.wait({4, 3, 1});
  CHECK(it.pending.count() == 3);
  CHECK((it.pending.has(cm::slot_id{1}) && it.pending.has(cm::slot_id{3}) && it.pending.has(cm::slot_id{4}) &&
         !it.pending.has(cm::slot_id{0}) && !it.pending.has(cm::slot_id{2})));
  it.pending.catch_up(cm::slot_id{0});
  CHECK(it.done.empty());
  it.pending.catch_up(cm::slot_id{2});  // waits for nothing itself, but lies beside what does
  CHECK(it.done == list{1, 3});
  CHECK((it.pending.count() == 1 && it.pending.has(cm::slot_id{4})));
  it.pending.add(cm::slot_id{0});
  it.pending.finish();
  CHECK(it.done == list{1, 3, 0, 4});
  CHECK_FALSE(it.pending.any());
  it.pending.finish();
  CHECK(it.done.size() == 4);
}

TEST_CASE("a gradient waits for its own update alone", "[manager]")
{
  updater it{{512, 512}};
  it.wait({1});
  it.pending.catch_up(it.tensors.gradient_of(cm::slot_id{0}));
  CHECK(it.done.empty());
  it.pending.catch_up(it.tensors.gradient_of(cm::slot_id{1}));
  CHECK(it.done == list{1});
}

TEST_CASE("no resident access passes by what waits", "[manager]")
{
  updater it{{1024, 512, 512}};
  for (cm::slot& each : it.tensors.slots()) each.next_access_index = 7;
  it.wait({1});
  CHECK(it.tensors[cm::slot_id{0}].next_access_index == 7);
  CHECK(it.tensors[cm::slot_id{1}].next_access_index == cm::access_record::never);
  CHECK(it.tensors[cm::slot_id{2}].next_access_index == cm::access_record::never);  // in the same chunk
  CHECK(it.tensors[it.tensors.gradient_of(cm::slot_id{0})].next_access_index == 7);
  CHECK(it.tensors[it.tensors.gradient_of(cm::slot_id{1})].next_access_index == cm::access_record::never);
}

TEST_CASE("an update that fails waits on, with those behind it", "[manager]")
{
  updater it{{256, 256, 256, 256}};
  it.wait({3, 2, 1, 0});
  it.bad = cm::slot_id{1};
  CHECK_THROWS_AS(it.pending.catch_up(cm::slot_id{3}), std::runtime_error);
  CHECK(it.done == list{0});
  CHECK((it.pending.count() == 3 && it.pending.has(cm::slot_id{1}) && !it.pending.has(cm::slot_id{0})));
  CHECK_THROWS_AS(it.pending.finish(), std::runtime_error);
  it.bad = cm::slot_id{99};
  it.pending.finish();
  CHECK(it.done == list{0, 1, 2, 3});
}

TEST_CASE("what waits is unusable when its updater leaves, until it is discarded", "[manager]")
{
  updater it{{256, 256}};
  const updater other{{256}};
  it.wait({1});
  it.pending.leave(&other);
  it.pending.catch_up(cm::slot_id{1});
  CHECK(it.done == list{1});
  it.wait({0});
  it.pending.leave(&it);
  CHECK_THROWS_AS(it.pending.catch_up(cm::slot_id{0}), cm::usage_error);
  CHECK_THROWS_AS(it.pending.finish(), cm::usage_error);
  CHECK(it.pending.any());
  it.pending.discard();
  it.pending.catch_up(cm::slot_id{0});
  CHECK((!it.pending.any() && !it.pending.has(cm::slot_id{0})));
}

}  // namespace pending_updates_test
