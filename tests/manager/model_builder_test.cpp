// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/model_builder.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/manager/registry.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/tensor/gradient_policies.hpp>

#include <support/any_manager.hpp>
#include <support/catch.hpp>
#include <support/mixed_trainer.hpp>
#include <support/oracles/record_builder.hpp>
#include <support/own_policies.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>
#include "parts_rig.hpp"

namespace state_tiers_test {

namespace cm = chunkmem;
using namespace chunkmem;

namespace {

constexpr bytes frame = 1_KiB;

/// Four parameters of one frame in float32, and as much again in each of three lists; a buffer, which has no states.
registry four_parameters()
{
  registry tensors;
  for (int index = 0; index < 4; ++index) tensors.add({256}, dtype::float32, role::parameter, group_id{0});
  tensors.add({256}, dtype::float32, role::buffer, group_id{0});
  tensors.add_list({"momentum", dtype::float32, 1});
  tensors.add_list({"variance", dtype::float32, 1});
  tensors.seal(append_layout{}, frame);
  return tensors;
}
// What works on the device: four values, four gradients, a buffer.
constexpr bytes working = 9_KiB;

template <class Placement>
int on_device(const state_tiers<Placement>& tiers)
{
  int count = 0;
  for (const slot_id value : ids<slot_id>(4)) count += tiers.preferred_tier(value) == tier::device ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("tiers by role alone never change", "[manager]")
{
  const registry tensors = four_parameters();
  state_tiers<placement::optimizer_on_host> tiers{{}};
  CHECK(!tiers.is_ready());
  tiers.reset(tensors, frame, 100_KiB);
  CHECK(tiers.is_ready());
  CHECK(on_device(tiers) == 0);
  tiers.measured(1_KiB);
  CHECK(!tiers.assign(1_MiB));
  CHECK(on_device(tiers) == 0);
  state_tiers<support::device_only> other{{}};
  other.reset(tensors, frame, 1_KiB);
  CHECK(on_device(other) == 4);
}

TEST_CASE("a placement by size sees the bytes of all states of a parameter, measured or not", "[manager]")
{
  const registry tensors = four_parameters();  // 2 KiB of states beside 1 KiB of values
  state_tiers<support::small_on_device> tiers{{.limit = 2_KiB}};
  tiers.reset(tensors, frame, 100_KiB);
  CHECK(on_device(tiers) == 4);
  state_tiers<support::small_on_device> none{{.limit = 2_KiB - 1_B}};
  none.reset(tensors, frame, 100_KiB);
  CHECK(on_device(none) == 0);
}

TEST_CASE("tiers follow what was measured and the size of the device", "[manager]")
{
  const registry tensors = four_parameters();
  state_tiers<placement::device_margin> tiers{{.share = 1.0}};
  tiers.reset(tensors, frame, 100_KiB);
  CHECK(on_device(tiers) == 0);  // nothing was measured
  tiers.measured(2_KiB);
  CHECK(tiers.assign(working + 2_KiB + 6_KiB));  // room for three times momentum and variance
  CHECK(on_device(tiers) == 3);
  CHECK(!tiers.assign(working + 2_KiB + 7_KiB));
  CHECK(tiers.assign(working + 2_KiB));
  CHECK(on_device(tiers) == 0);
  tiers.measured(1_KiB);  // the peak of leases counts
  CHECK(tiers.peak_leased() == 2_KiB);
  tiers.measured(4_KiB);
  CHECK(tiers.assign(working + 2_KiB + 6_KiB));
  CHECK(on_device(tiers) == 2);
}

TEST_CASE("tiers follow other settings of their placement, and a refused one changes nothing", "[manager]")
{
  const registry tensors = four_parameters();
  state_tiers<placement::update_share> tiers{placement::update_share{}};
  tiers.change_policy({.device_share = 0.25}, 100_KiB);  // before anything is known
  tiers.reset(tensors, frame, 100_KiB);
  CHECK(on_device(tiers) == 1);
  tiers.change_policy({.device_share = 0.5, .in_turn = true}, 100_KiB);
  CHECK(tiers.preferred_tier(slot_id{0}) == tier::host);
  CHECK(tiers.preferred_tier(slot_id{1}) == tier::device);
  CHECK(on_device(tiers) == 2);
  CHECK_THROWS_AS(tiers.change_policy({.device_share = 2}, 100_KiB), usage_error);
  CHECK(tiers.policy().device_share == 0.5);
  CHECK(on_device(tiers) == 2);
}

TEST_CASE("a placement is asked for parameters of one chunk together", "[manager]")
{
  registry tensors;
  for (int index = 0; index < 4; ++index) tensors.add({128}, dtype::float32, role::parameter, group_id{0});
  tensors.add_list({"momentum", dtype::float32, 1});
  tensors.seal(append_layout{}, frame);  // two in a chunk
  state_tiers<placement::update_share> tiers{placement::update_share{.device_share = 0.5, .in_turn = true}};
  tiers.reset(tensors, frame, 100_KiB);
  for (const slot_id value : ids<slot_id>(4))
    CHECK(tiers.preferred_tier(value) == (index_of(value) < 2 ? tier::host : tier::device));
  tiers.change_policy({.device_share = 0.7}, 100_KiB);
  for (const slot_id value : ids<slot_id>(4))
    CHECK(tiers.preferred_tier(value) == (index_of(value) < 2 ? tier::device : tier::host));
}

TEST_CASE("a placement that refuses leaves the tiers as they were", "[manager]")
{
  const registry tensors = four_parameters();
  state_tiers<placement::fixed_split> tiers{{.device_share = 0.5}};
  CHECK_THROWS_AS(tiers.reset(tensors, frame, working), config_error);
  CHECK(!tiers.is_ready());
  tiers.reset(tensors, frame, working + 4_KiB);
  CHECK(on_device(tiers) == 2);
  tiers.measured(1_KiB);
  CHECK_THROWS_AS(tiers.assign(working + 4_KiB), config_error);
  CHECK(on_device(tiers) == 2);
  CHECK(!tiers.assign(working + 5_KiB));
}

namespace {

/// The results of some steps of the mixed trainer, and where its states were at the end.
struct margin_run {
  support::mixed::outcome result;
  cm::report report;
  std::size_t on_device = 0;
};

constexpr std::string_view plain = "optimizer_on_host", margin = "device_margin", split = "fixed_split";  // placements

/// A trainer whose placement is chosen when the program runs.
struct placed_trainer {
  using manager = support::any_manager<cm::backend::host_arena>;

  placed_trainer(std::string_view placement, cm::bytes device)
      : memory{{.device_capacity = device, .host_capacity = 1_MiB}},
        m{support::make_manager<manager>(memory, {.chunk_bytes = 4_KiB},
                                         {.placement = support::every_placement{placement}})}
  {
  }
  cm::backend::host_arena memory;
  manager m;
  support::mixed::trainer<manager, cm::backend::host_arena, float> trainer{m, memory, support::mixed::usual_recipe(5)};
};

margin_run train(std::string_view placement, cm::bytes device, bool rehearsed)
{
  placed_trainer it{placement, device};
  if (rehearsed) it.trainer.rehearse();
  margin_run run{it.trainer.train(), it.m.report()};
  it.m.for_each_parameter([&](cm::tensor_handle each, const cm::tensor_info&) {
    run.on_device += it.m.updates().place_of_update(each) == memory_location::device ? 1 : 0;
  });
  return run;
}

cm::memory_requirement need(std::string_view placement)
{
  return placed_trainer{placement, 1_MiB}.trainer.rehearse();
}

}  // namespace

TEST_CASE("states move into the margin once it is known, by a rehearsal or after the recorded iteration", "[manager]")
{
  const cm::bytes everything = need(margin).everything;
  const margin_run without = train(plain, everything, true);
  for (const cm::bytes device : {everything, everything - 40_KiB, everything - 80_KiB}) {
    const margin_run rehearsed = train(margin, device, true);
    const margin_run recorded = train(margin, device, false);
    INFO(device.count() << " B on the device");
    CHECK(rehearsed.on_device > 0);
    CHECK(recorded.on_device == rehearsed.on_device);
    CHECK(without.result.difference(rehearsed.result) == "");
    CHECK(without.result.difference(recorded.result) == "");
    CHECK(rehearsed.report.divergences == without.report.divergences);
    CHECK(recorded.report.divergences == without.report.divergences + 1);  // tiers were given after the record was made
  }
  CHECK(train(margin, everything, true).on_device > train(margin, everything - 80_KiB, true).on_device);
}

TEST_CASE("what rides in the margin is not moved any more", "[manager]")
{
  const auto moved_by_a_step = [](std::string_view placement, cm::bytes device) {
    placed_trainer it{placement, device};
    it.trainer.rehearse();
    it.trainer.initialise();
    for (std::uint32_t now = 0; now < 3; ++now) it.trainer.step(now);
    const cm::report before = it.m.report();
    it.trainer.step(3);
    const cm::report moved = it.m.report().copies_since(before);
    return moved.loaded + moved.written_back;
  };
  const cm::bytes everything = need(margin).everything;
  CHECK(moved_by_a_step(margin, everything) < moved_by_a_step(plain, everything));
}

TEST_CASE("the smallest device of a placement is that of the tiers it would give there", "[manager]")
{
  const cm::memory_requirement roomy = need(margin);
  // no margin is left there
  CHECK(roomy.smallest_device == need(plain).smallest_device);
  CHECK(train(margin, roomy.smallest_device, true).on_device == 0);
  CHECK_THROWS_AS(train(margin, roomy.smallest_device - 4_KiB, true), config_error);
  const cm::memory_requirement whole = need(split);
  CHECK(whole.smallest_device > roomy.smallest_device);
  CHECK(train(split, whole.smallest_device, true).result.difference(train(plain, 1_MiB, true).result) == "");
  CHECK_THROWS_AS(train(split, whole.smallest_device - 4_KiB, true), config_error);
  CHECK_THROWS_AS(train(split, whole.smallest_device - 4_KiB, false), config_error);
}

}  // namespace state_tiers_test

namespace model_places_test {

using namespace chunkmem;

namespace {

registry six_buffers()
{
  registry tensors;
  for (int index = 0; index < 6; ++index) tensors.add({128}, dtype::float32, role::buffer, group_id{0});
  return tensors;
}

}  // namespace

TEST_CASE("tensors lie in the order of declaration until a step showed another one", "[manager]")
{
  registry tensors = six_buffers();
  const manager_options by_use{.order = tensor_order::first_use};
  model_places<append_layout, placement::optimizer_on_host> places{{}, {}};
  CHECK(places.seal(tensors, 1_KiB, 1_MiB) == 1_KiB);
  const auto chunks = [&] {
    return std::vector<std::uint32_t>(tensors.chunk_of_slot().begin(), tensors.chunk_of_slot().end());
  };
  CHECK(chunks() == std::vector<std::uint32_t>{0, 0, 1, 1, 2, 2});
  CHECK(places.wants_order(by_use));
  support::record_builder build;
  for (const std::uint32_t slot : {5U, 0U, 5U, 3U}) build.brief(slot);
  places.order_by_first_use(tensors, build.finish({0, 0, 0, 0, 0, 0}, 1), 1_KiB, 1_MiB);
  CHECK(chunks() == std::vector<std::uint32_t>{0, 1, 2, 1, 2, 0});  // 5 and 0, then 3, then what was not used
  CHECK(!places.wants_order(by_use));
  CHECK(!model_places<append_layout, placement::optimizer_on_host>{{}, {}}.wants_order({}));
}

TEST_CASE("the size of chunks is searched once, within a sixteenth of the device", "[manager]")
{
  registry tensors = six_buffers();
  model_places<size_class_layout, placement::optimizer_on_host> places{{}, {}};
  const bytes found = places.seal(tensors, least_waste_chunks, 1_MiB);
  CHECK(found.count() * tensors.frames_of_chunk().size() == 6 * 512);  // nothing is wasted
  CHECK(found <= 64_KiB);
  CHECK(places.seal(tensors, found, 8_KiB) == found);
}

}  // namespace model_places_test

namespace model_builder_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using manager_parts::momentum_and_master;
using manager_parts::parts_rig;

TEST_CASE("the first handle that is resolved ends the declarations, and each resolves to a slot in each list",
          "[manager]")
{
  parts_rig<> it;
  const auto frozen = it.add<float>(100, role::frozen);
  const auto first = it.add<float>(100);
  const auto second = it.add<float>(100);
  it.builder.add_lists(std::span{momentum_and_master}.first(1));
  CHECK_FALSE(it.engine.tensors().is_sealed());
  CHECK(it.builder.slot_of(second) == slot_id{1});
  CHECK(it.engine.tensors().is_sealed());
  CHECK(it.engine.gradients().order().all().size() == 2);
  CHECK(it.builder.slot_of(first) == slot_id{0});
  CHECK(it.builder.slot_in(second, gradient_list) == slot_id{3});
  CHECK(it.builder.slot_in(first, it.engine.tensors().list("momentum")) == slot_id{4});
  CHECK(it.builder.slot_of(frozen) == slot_id{6});
  CHECK_THROWS_AS(it.add<float>(100), usage_error);
  CHECK_THROWS_AS(it.builder.add_lists(std::span{momentum_and_master}.last(1)), usage_error);
  CHECK(it.engine.tensors().tensors() == 3);
  CHECK(it.engine.tensors().lists() == 3);
}

TEST_CASE("lists are added all or none", "[manager]")
{
  parts_rig<> it;
  const list_spec twice[] = {{"momentum"}, {"variance"}, {"momentum"}};
  CHECK_THROWS_AS(it.builder.add_lists(twice), usage_error);
  CHECK(it.engine.tensors().lists() == 2);
  CHECK_THROWS_AS(it.engine.tensors().list("variance"), usage_error);
  it.builder.add_lists(std::span{twice}.first(2));
  CHECK(it.engine.tensors().list("variance") == list_id{3});
}

TEST_CASE("a model that does not fit is refused at each use, until a rehearsed step is known to fit", "[manager]")
{
  parts_rig<> it{8_KiB, 4_KiB};
  for (int index = 0; index < 4; ++index) it.add<float>(1024);
  const tensor_handle last = it.builder.handle_of(tensor_id{3});
  CHECK_THROWS_WITH(it.builder.seal(), ContainsSubstring("the host capacity is 4096 B") &&
                                           ContainsSubstring("needs at least 8192 B") &&
                                           !ContainsSubstring("the device capacity"));
  CHECK_THROWS_AS(it.builder.slot_of(last), config_error);
  CHECK(it.builder.place().chunks == 32_KiB);  // a rehearsal finds out what fits
  it.engine.rehearsing().begin(it.engine.tensors());
  CHECK(it.builder.slot_of(last) == slot_id{3});
  it.engine.rehearsing().end();
  it.builder.forget_ready();  // it found nothing out
  CHECK_THROWS_AS(it.builder.slot_of(last), config_error);
  it.builder.note_fit();
  CHECK(it.builder.slot_of(last) == slot_id{3});
}

TEST_CASE("tensors that lie as they are used first have no slot before a step was seen, and the same slot afterwards",
          "[manager]")
{
  parts_rig<> it{64_KiB, 256_KiB, {.chunk_bytes = 1_KiB, .order = tensor_order::first_use}};
  for (int index = 0; index < 4; ++index) it.add<float>(128, role::frozen);  // two in a chunk
  const tensor_handle last = it.builder.handle_of(tensor_id{3});
  CHECK_THROWS_WITH(it.builder.slot_of(last), ContainsSubstring("first_use"));
  it.builder.place();
  CHECK(it.engine.tensors().chunk_of(slot_id{3}) != it.engine.tensors().chunk_of(slot_id{0}));
  CHECK_THROWS_AS(it.builder.slot_of(last), config_error);
  support::record_builder step;
  for (const std::uint32_t slot : {3U, 0U, 1U, 2U}) step.brief(slot);
  it.builder.learn_order(step.finish({0, 0, 1, 1}, 2));
  CHECK(it.builder.slot_of(last) == slot_id{3});
  CHECK(it.engine.tensors().chunk_of(slot_id{3}) == it.engine.tensors().chunk_of(slot_id{0}));
}

TEST_CASE(
    "states are updated where the leases of iterations leave them room, and leave for a higher peak of leases alone",
    "[manager]")
{
  // 16 KiB of values and gradients, 8 KiB of states, 4 KiB besides
  parts_rig<placement::device_margin> it{28_KiB, 256_KiB, {.chunk_bytes = 4_KiB}, {.share = 1.0}};
  for (int index = 0; index < 2; ++index) it.add<float>(1024);
  it.builder.add_lists(std::span{momentum_and_master}.first(1));
  it.builder.seal();
  const auto on_device_after = [&](bytes leased) {
    {
      const auto scope = it.iterate();
      it.engine.release(it.engine.lease(tier::device, leased.count(), agent::host));
    }
    it.builder.revise_tiers();
    int count = 0;
    for (const slot_id value : ids<slot_id>(2))
      count += it.builder.update_place(value) == memory_location::device ? 1 : 0;
    return count;
  };
  it.builder.revise_tiers();
  CHECK(it.builder.update_place(slot_id{0}) == memory_location::host);  // nothing was measured
  CHECK(on_device_after(4_KiB) == 2);
  CHECK(on_device_after(8_KiB) == 1);
  CHECK(on_device_after(4_KiB) == 1);
  CHECK(on_device_after(12_KiB) == 0);
}

}  // namespace model_builder_test
