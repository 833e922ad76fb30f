// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/schedule.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/eviction/policies.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/profile/profile_text.hpp>
#include <chunkmem/transfer/policies.hpp>
#include <support/catch.hpp>
#include <support/oracles/record_builder.hpp>
#include <support/toy_trainer.hpp>

#include <sstream>
#include <string>

namespace record_check_test {

namespace cm = chunkmem;
using namespace chunkmem;

namespace {

registry three_buffers()
{
  registry tensors;
  for (int index = 0; index < 3; ++index) tensors.add({100}, dtype::float32, role::buffer, group_id{0});
  tensors.seal(append_layout{}, 1_KiB);
  return tensors;
}

template <class Manager>
struct toy_run {
  cm::backend::host_arena memory;
  Manager m;
  support::toy::toy_trainer<Manager, cm::backend::host_arena> trainer;

  explicit toy_run(cm::bytes device, cm::bytes chunk = 4_KiB)
      : memory{{.device_capacity = device, .host_capacity = 1_MiB}},
        m{memory, {.chunk_bytes = chunk}},
        trainer{m, memory}
  {
  }
};

}  // namespace

TEST_CASE("a record of another model is refused before anything is changed", "[manager]")
{
  const registry tensors = three_buffers();
  const auto fits = [&](auto write) {
    support::record_builder build;
    write(build);
    try {
      expect_record_fits(build.finish({0, 0, 0, 0}, 1), tensors);
    } catch (const config_error&) {
      return false;
    }
    return true;
  };
  CHECK(fits([](auto& build) {
    const auto pin = build.access(0);
    build.brief(2, entry_kind::read_write);
    build.release(pin);
    build.drop(0);
    build.release(build.lease(entry_kind::lease_device, 1));
  }));
  CHECK_FALSE(fits([](auto& build) { build.brief(3); }));
  CHECK_FALSE(fits([](auto& build) { build.drop(3); }));
  CHECK_FALSE(fits([](auto& build) { build.lease(entry_kind::lease_host, 0); }));
  CHECK_FALSE(fits([](auto& build) {
    build.access(1);
    build.drop(1);
  }));
  CHECK_FALSE(fits([](auto& build) {
    build.access(1);
    build.access(1, entry_kind::write_on_host);
  }));
}

TEST_CASE("a run that is given the profile of another one follows it from the first iteration on", "[manager]")
{
  using manager = cm::manager<cm::backend::host_arena>;
  const cm::bytes device = 96_KiB;
  std::stringstream file;
  support::toy::outcome expected;
  {
    toy_run<manager> first{device};
    expected = first.trainer.train(4);
    REQUIRE(first.m.profile("train") != nullptr);
    REQUIRE(first.m.profile("no such loop") == nullptr);
    profile_text::write(file, *first.m.profile("train"));
  }
  const std::string text = file.str();
  const auto train_with = [&]<class Manager>(toy_run<Manager> run) {
    std::istringstream in{text};
    run.m.use_profile(profile_text::read(in));
    run.trainer.initialise();
    run.trainer.step(0);
    const cm::report after_one = run.m.report();
    CHECK(after_one.divergences == 0);
    CHECK(after_one.iterations == 1);
    for (std::uint32_t now = 1; now < 4; ++now) run.trainer.step(now);
    CHECK(run.m.report().divergences == 0);
    std::ostringstream again;
    profile_text::write(again, *run.m.profile("train"));
    CHECK(again.str() == text);
    return run.trainer.collect();
  };
  const auto values_differ = [&](const support::toy::outcome& other) { return other.values != expected.values; };
  CHECK_FALSE(values_differ(train_with(toy_run<manager>{device})));
  CHECK_FALSE(values_differ(train_with(toy_run<manager>{200_KiB, 8_KiB})));
  CHECK_FALSE(values_differ(
      train_with(toy_run<cm::manager<cm::backend::host_arena, cm::eviction::lru, cm::transfer::no_prefetch>>{device})));
}

TEST_CASE("a profile comes before the first iteration of its name, and not inside one", "[manager]")
{
  using manager = cm::manager<cm::backend::host_arena>;
  toy_run<manager> run{96_KiB};
  run.trainer.initialise();
  run.trainer.step(0);
  const access_record known = *run.m.profile();
  CHECK_THROWS_AS(run.m.use_profile(known), usage_error);
  {
    auto scope = run.m.iteration("other");
    CHECK_THROWS_AS(run.m.use_profile(known, "third"), usage_error);
  }
  run.m.use_profile(known, "third");
  CHECK(run.m.profile("third") != nullptr);
}

}  // namespace record_check_test
