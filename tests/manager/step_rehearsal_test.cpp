// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/rehearsal.hpp>

#include "parts_rig.hpp"

#include <chunkmem/placement/policies.hpp>
#include <support/catch.hpp>

#include <span>
#include <stdexcept>

namespace step_rehearsal_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Weights of a chunk each, and the rehearsal of their steps.
template <class Placement = placement::host_first>
struct fixture {
  using rig_type = manager_parts::parts_rig<Placement>;

  explicit fixture(bytes device = 64_KiB, bytes host = 256_KiB, Placement placement = {})
      : rig{device, host, {.chunk_bytes = 4_KiB}, placement}
  {
    for (int index = 0; index < 4; ++index) rig.template add<float>(1024);
    rig.builder.add_lists(std::span{manager_parts::momentum_and_master}.first(1));
  }
  template <class Step>
  memory_requirement run(Step step)
  {
    return rehearsal.run(step, rehearse_on::nothing);
  }
  /// Nothing is held or has bytes.
  [[nodiscard]] bool is_untouched() const
  {
    for (const slot& each : rig.engine.tensors().slots())
      if (each.pins != 0 || each.state != tensor_state::free) return false;
    return !rehearsal.is_running() && rig.engine.snapshot().in_use[tier::device] == bytes{};
  }

  rig_type rig;
  step_rehearsal<typename rig_type::engine_type, typename rig_type::builder_type> rehearsal{
      rig.engine, rig.builder, rig.ledger, {}};
};

}  // namespace

TEST_CASE("a rehearsed step runs once without bytes, says what it needs at once, and leaves everything as it was",
          "[manager]")
{
  fixture it;
  it.rig.builder.place();
  it.rig.ledger.finish(slot_id{1});
  int runs = 0;
  const memory_requirement need = it.run([&] {
    ++runs;
    CHECK(it.rehearsal.is_running());
    CHECK(it.rig.ledger.is_open(slot_id{1}));
    for (std::uint32_t index = 0; index < 3; ++index) {
      const auto one = it.rig.template hold<const float>(slot_id{index}, access::read);
      const auto two = it.rig.template hold<const float>(slot_id{index + 1}, access::read);
      CHECK((one.data() == nullptr && two.span().empty()));
    }
    it.rig.ledger.finish(slot_id{2});
  });
  CHECK(runs == 1);
  CHECK(need.rehearsed);
  CHECK(need.smallest_device == 8_KiB);
  CHECK(it.is_untouched());
  CHECK_FALSE(it.rig.ledger.is_open(slot_id{1}));
  CHECK(it.rig.ledger.is_open(slot_id{2}));
}

TEST_CASE("a step that throws ends its rehearsal, and a step that fits makes a model known to fit", "[manager]")
{
  fixture it{8_KiB, 4_KiB};  // 16 KiB of weights
  const tensor_handle last = it.rig.builder.handle_of(tensor_id{3});
  CHECK_THROWS_AS(it.run([&] {
    const auto pin = it.rig.template hold<float>(slot_id{0}, access::write);
    it.rig.ledger.begin_update();
    throw std::runtime_error{"a step"};
  }),
                  std::runtime_error);
  CHECK(it.is_untouched());
  it.rig.ledger.expect_no_update("this");
  CHECK_THROWS_AS(it.rig.builder.slot_of(last), config_error);
  const memory_requirement need = it.run([&] {
    for (const slot_id each : ids<slot_id>(4)) {
      (void)it.rig.template hold<float>(each, access::write);
      it.rig.engine.drop(each);
    }
  });
  CHECK(need.smallest_device == 4_KiB);
  CHECK(it.rig.builder.slot_of(last) == slot_id{3});
}

TEST_CASE("a step that needs more than there is is refused with the size that it needs", "[manager]")
{
  fixture it{8_KiB};
  const auto step = [&] {
    const auto pin = it.rig.template hold<const float>(slot_id{0}, access::read);
    it.rig.engine.release(it.rig.engine.lease(tier::device, 3 * 4096, agent::host));
  };
  CHECK_THROWS_WITH(it.run(step),
                    ContainsSubstring("the device capacity is 8192 B") && ContainsSubstring("needs at least 16384 B"));
  CHECK(it.is_untouched());
}

TEST_CASE("a rehearsal inside a rehearsal or an iteration is refused, and what runs goes on", "[manager]")
{
  fixture it;
  int inner = 0;
  const auto count = [&] { ++inner; };
  it.run([&] {
    const auto before = it.rig.template hold<const float>(slot_id{0}, access::read);
    CHECK_THROWS_AS(it.run(count), usage_error);
    CHECK(it.rehearsal.is_running());
    CHECK(it.rig.template hold<const float>(slot_id{1}, access::read).is_live());
  });
  CHECK(it.rig.engine.rehearsing().record().size() == 2);
  CHECK(it.is_untouched());
  const auto scope = it.rig.iterate();
  CHECK_THROWS_AS(it.run(count), usage_error);
  CHECK(it.rig.engine.schedule().is_inside());
  CHECK(inner == 0);
}

TEST_CASE("a step that leaves updates to the next one runs twice, and nothing waits afterwards", "[manager]")
{
  fixture it;
  manager_parts::numbers updated;
  int runs = 0;
  it.run([&] {
    ++runs;
    (void)it.rig.template hold<const float>(slot_id{2}, access::read);
    CHECK(updated == (runs == 1 ? manager_parts::numbers{} : manager_parts::numbers{2}));
    auto& waiting = it.rig.engine.pending();
    waiting.prepare();
    waiting.add(slot_id{2});
    waiting.serve(manager_parts::note_update, &updated);
  });
  CHECK(runs == 2);
  CHECK(it.rig.engine.rehearsing().turns().size() == 2);
  CHECK_FALSE(it.rig.engine.pending().any());
  CHECK(updated == manager_parts::numbers{2});
}

TEST_CASE("the record of a rehearsal is that of the tiers that states have afterwards", "[manager]")
{
  const auto place_of_first_state = [](auto& it, int& runs) {
    const slot_id value{0};
    const slot_id state{8};  // behind four values and four gradients
    it.run([&] {
      ++runs;
      (void)it.rig.template hold<float>(state, access::read_write, it.rig.builder.update_place(value));
    });
    const access_entry& last = it.rig.engine.rehearsing().record().entries().back();
    CHECK(slot_id{last.slot} == state);
    CHECK(place_of(last.kind) == it.rig.builder.update_place(value));
    return place_of(last.kind);
  };
  int runs = 0;
  fixture<placement::device_margin> margin;
  CHECK(place_of_first_state(margin, runs) == memory_location::device);
  CHECK(runs > 1);
  // no size that is tried, up to twice everything, has a margin for a state: the device has
  fixture<placement::device_margin> narrow{256_KiB, 256_KiB, {.share = 0.05}};
  CHECK(place_of_first_state(narrow, runs) == memory_location::device);
  fixture<placement::host_first> fixed;
  runs = 0;
  CHECK(place_of_first_state(fixed, runs) == memory_location::host);
  CHECK(runs == 1);
}

}  // namespace step_rehearsal_test
