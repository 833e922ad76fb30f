// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/model_builder.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/placement/policies.hpp>
#include <support/catch.hpp>
#include <support/own_policies.hpp>
#include <support/toy_trainer.hpp>

#include <cstddef>

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
  state_tiers<placement::host_first> tiers{{}};
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
  tiers.measured(1_KiB);  // the highest tide counts
  CHECK(tiers.tide() == 2_KiB);
  tiers.measured(4_KiB);
  CHECK(tiers.assign(working + 2_KiB + 6_KiB));
  CHECK(on_device(tiers) == 2);
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

using margin_manager = cm::manager<cm::backend::host_arena, cm::placement::device_margin>;

/// Losses of some steps of the toy network, and where its states were at the end.
struct margin_run {
  support::toy::outcome result;
  cm::report report;
  std::size_t on_device = 0;
};

template <class Manager>
margin_run train(cm::bytes device, bool rehearsed)
{
  cm::backend::host_arena memory{{.device_capacity = device, .host_capacity = 1_MiB}};
  Manager m{memory, {.chunk_bytes = 4_KiB}};
  support::toy::toy_trainer<Manager, cm::backend::host_arena> trainer{m, memory};
  if (rehearsed) trainer.rehearse();
  margin_run run{trainer.train(5), m.report()};
  for (const auto& it : trainer.parameters())
    run.on_device += m.updates().place_of_update(it) == memory_location::device ? 1 : 0;
  return run;
}

template <class Manager>
cm::memory_requirement need()
{
  cm::backend::host_arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  Manager m{memory, {.chunk_bytes = 4_KiB}};
  support::toy::toy_trainer<Manager, cm::backend::host_arena> trainer{m, memory};
  return trainer.rehearse();
}

}  // namespace

TEST_CASE("states move into the margin once it is known, by a rehearsal or after the recorded iteration", "[manager]")
{
  using plain_manager = cm::manager<cm::backend::host_arena>;
  const cm::bytes everything = need<margin_manager>().everything;
  const margin_run plain = train<plain_manager>(everything, true);
  for (const cm::bytes device : {everything, everything - 40_KiB, everything - 80_KiB}) {
    const margin_run rehearsed = train<margin_manager>(device, true);
    const margin_run recorded = train<margin_manager>(device, false);
    INFO(device.count() << " B on the device");
    CHECK(rehearsed.on_device > 0);
    CHECK(recorded.on_device == rehearsed.on_device);
    CHECK(plain.result.difference(rehearsed.result) == "");
    CHECK(plain.result.difference(recorded.result) == "");
    CHECK(rehearsed.report.divergences == plain.report.divergences);
    CHECK(recorded.report.divergences == plain.report.divergences + 1);  // tiers were given after the record was made
  }
  CHECK(train<margin_manager>(everything, true).on_device > train<margin_manager>(everything - 80_KiB, true).on_device);
}

TEST_CASE("what rides in the margin is not moved any more", "[manager]")
{
  const auto moved_by_a_step = []<class Manager>(Manager*, cm::bytes device) {
    cm::backend::host_arena memory{{.device_capacity = device, .host_capacity = 1_MiB}};
    Manager m{memory, {.chunk_bytes = 4_KiB}};
    support::toy::toy_trainer<Manager, cm::backend::host_arena> trainer{m, memory};
    trainer.rehearse();
    trainer.initialise();
    for (std::uint32_t now = 0; now < 3; ++now) trainer.step(now);
    const cm::report before = m.report();
    trainer.step(3);
    const cm::report moved = m.report().copies_since(before);
    return moved.loaded + moved.written_back;
  };
  const cm::bytes everything = need<margin_manager>().everything;
  CHECK(moved_by_a_step(static_cast<margin_manager*>(nullptr), everything) <
        moved_by_a_step(static_cast<cm::manager<cm::backend::host_arena>*>(nullptr), everything));
}

TEST_CASE("the smallest device of a placement is that of the tiers it would give there", "[manager]")
{
  const cm::memory_requirement roomy = need<margin_manager>();
  // no margin is left there
  CHECK(roomy.smallest_device == need<cm::manager<cm::backend::host_arena>>().smallest_device);
  CHECK(train<margin_manager>(roomy.smallest_device, true).on_device == 0);
  CHECK_THROWS_AS(train<margin_manager>(roomy.smallest_device - 4_KiB, true), config_error);
  using split_manager = cm::manager<cm::backend::host_arena, cm::placement::fixed_split>;
  const cm::memory_requirement whole = need<split_manager>();
  CHECK(whole.smallest_device > roomy.smallest_device);
  CHECK(train<split_manager>(whole.smallest_device, true).result.losses.size() > 0);
  CHECK_THROWS_AS(train<split_manager>(whole.smallest_device - 4_KiB, true), config_error);
  CHECK_THROWS_AS(train<split_manager>(whole.smallest_device - 4_KiB, false), config_error);
}

}  // namespace state_tiers_test
