// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/update_session.hpp>

#include "parts_rig.hpp"

#include <chunkmem/tensor/gradient_policies.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace content_session_test {

using namespace chunkmem;

namespace {

constexpr slot_id weight{0}, neighbour{1};

/// Two weights of 16 bits with their masters, and what a save or a load sees of them.
template <class Gradient = gradient::separate>
struct fixture {
  using rig_type = manager_parts::parts_rig<placement::host_first, Gradient>;
  using engine_type = typename rig_type::engine_type;
  using builder_type = typename rig_type::builder_type;

  void declare()
  {
    for (int index = 0; index < 2; ++index) rig.template add<bf16>(1024);
    rig.builder.add_lists(manager_parts::momentum_and_master);
  }
  void fill()
  {
    rig.builder.prepare();
    for (const slot_id each : {weight, neighbour}) {
      rig.template fill<bf16>(each, 1.5F);
      rig.template fill<float>(rig.master_of(each), 1.5F, memory_location::host);
    }
  }
  void differentiate(slot_id value)
  {
    gradients.template expect<bf16>(value, 0);
    rig.engine.release(gradients.open(value, entry_kind::write, agent::host, false));
  }

  rig_type rig;
  gradient_store<engine_type, builder_type> gradients{rig.engine, rig.builder, rig.ledger, *rig.link};
  content_session<engine_type, builder_type> content{rig.engine, rig.builder, rig.ledger,
                                                     gradients,  rig.states,  rig.changes};
};

/// An object with one state.
struct stateful {
  registration registered;
  std::uint32_t count = 3;

  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(restart_state{"count", std::as_writable_bytes(std::span{&count, 1})});
  }
};

}  // namespace

TEST_CASE("a load drops gradients and voids a step that is half done, and nothing is saved before its end", "[manager]")
{
  fixture it;
  it.declare();
  it.fill();
  it.differentiate(weight);
  it.rig.ledger.begin_update();
  CHECK_THROWS_AS(it.content.expect_updated("a save"), usage_error);
  it.content.expect_loaded("a save");
  it.content.begin_load();
  CHECK(it.gradients.is_fresh(weight));
  CHECK(it.rig.ledger.forgotten() == 1);
  it.content.expect_updated("a save");
  CHECK_THROWS_AS(it.content.expect_loaded("a save"), usage_error);
  it.content.begin_load();  // tried again
  it.content.end_load();
  it.content.expect_loaded("a save");
  CHECK(it.rig.first_of<bf16>(weight) == 1.5F);  // it was not written yet
}

TEST_CASE("updates that wait for a load are never done, and weights that were lent to gradients can be written",
          "[manager]")
{
  fixture<gradient::in_place> it;
  it.declare();
  it.fill();
  it.rig.lend_weights();
  it.differentiate(weight);
  it.differentiate(neighbour);
  manager_parts::numbers updated;
  auto& waiting = it.rig.engine.pending();
  waiting.prepare();
  waiting.add(weight);
  waiting.serve(manager_parts::note_update, &updated);
  REQUIRE(it.rig.state_of(weight) == tensor_state::gradient);
  it.content.begin_load();
  CHECK(updated.empty());
  CHECK_FALSE(waiting.any());
  for (const slot_id each : {weight, neighbour}) {
    CHECK(it.rig.state_of(each) == tensor_state::hold);
    it.rig.fill<bf16>(each, 2.5F, memory_location::host);
  }
  it.content.end_load();
  CHECK(it.rig.first_of<bf16>(neighbour) == 2.5F);
}

TEST_CASE("who takes bytes from where they lie is told of a load, and not of a rehearsed one", "[manager]")
{
  fixture it;
  it.declare();
  it.fill();
  int told = 0;
  it.content.changes().begin(manager_parts::count_call, &told);
  it.rig.engine.rehearsing().begin(it.rig.engine.tensors());
  it.rig.ledger.begin_rehearsal();
  it.content.begin_load();
  it.content.end_load();
  it.rig.engine.rehearsing().end();
  it.rig.ledger.end_rehearsal();
  CHECK(told == 0);
  it.content.begin_load();
  it.content.end_load();
  CHECK(told == 1);
}

TEST_CASE("a load ends the declarations of a model that has parameters", "[manager]")
{
  fixture without;
  without.rig.add<float>(100, role::buffer);
  without.content.begin_load();
  CHECK_FALSE(without.rig.engine.tensors().is_sealed());
  without.rig.add<float>(100, role::buffer);
  fixture with;
  with.declare();
  with.content.begin_load();
  CHECK(with.rig.engine.tensors().is_sealed());
  CHECK_THROWS_AS(with.rig.add<float>(100, role::buffer), usage_error);
}

TEST_CASE("a load that a lost device stopped is half done", "[manager]")
{
  fixture it;
  it.declare();
  it.fill();
  it.differentiate(weight);
  it.rig.lose_device();
  CHECK_THROWS_AS(it.content.begin_load(), device_error);
  CHECK_FALSE(it.gradients.is_fresh(weight));
  CHECK_THROWS_AS(it.content.expect_loaded("a save"), usage_error);
}

TEST_CASE("a load that is abandoned leaves nothing to read, and one under a pin does not begin", "[manager]")
{
  fixture it;
  it.declare();
  it.fill();
  {
    const auto held = it.rig.hold<bf16>(weight, access_mode::read, memory_location::host);
    CHECK_THROWS_AS(it.content.expect_unpinned(), usage_error);
  }
  it.content.expect_unpinned();
  it.content.begin_load();
  it.content.abandon_load();
  for (const slot_id each : {weight, neighbour}) {
    CHECK(it.rig.state_of(each) == tensor_state::free);
    CHECK(it.rig.state_of(it.rig.master_of(each)) == tensor_state::free);
  }
  CHECK_THROWS_AS(it.content.expect_loaded("a save"), usage_error);
  it.fill();  // the next load
  it.content.end_load();
  it.content.expect_loaded("a save");
}

TEST_CASE("a save is refused where the owner of a state is gone, and its name is visited without content", "[manager]")
{
  fixture it;
  std::optional<stateful> owner{std::in_place};
  it.rig.states.add(*owner, [] {});
  it.content.expect_states();
  CHECK(it.content.check_of_state("count") == nullptr);
  std::size_t size = 0;
  const auto measure = [&](std::string_view name, std::span<std::byte> content) {
    CHECK(name == "count");
    size = content.size();
  };
  it.content.for_each_state(measure);
  CHECK(size == sizeof(std::uint32_t));
  owner.reset();
  it.content.for_each_state(measure);
  CHECK(size == 0);
  CHECK_THROWS_AS(it.content.expect_states(), usage_error);
}

}  // namespace content_session_test
