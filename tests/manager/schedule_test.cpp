// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/schedule.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/profile/profile_text.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/failing.hpp>
#include <support/mixed_trainer.hpp>
#include <support/oracles/record_builder.hpp>

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

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
struct trained_on {
  cm::backend::host_arena memory;
  Manager m;
  support::mixed::trainer<Manager, cm::backend::host_arena, float> trainer;

  explicit trained_on(cm::bytes device, cm::bytes chunk = 4_KiB)
      : memory{{.device_capacity = device, .host_capacity = 1_MiB}},
        m{memory, {.chunk_bytes = chunk}},
        trainer{m, memory, support::mixed::usual_recipe(4)}
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
  support::mixed::outcome expected;
  {
    trained_on<manager> first{device};
    (void)first.trainer.train();
    expected = first.trainer.values();
    REQUIRE(first.m.profile("train") != nullptr);
    REQUIRE(first.m.profile("no such loop") == nullptr);
    profile_text::write(file, *first.m.profile("train"));
  }
  const std::string text = file.str();
  const auto train_with = [&]<class Manager>(trained_on<Manager> run) {
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
    return run.trainer.values().difference(expected);
  };
  CHECK(train_with(trained_on<manager>{device}) == "");
  CHECK(train_with(trained_on<manager>{200_KiB, 8_KiB}) == "");
  using on_demand = cm::manager<cm::backend::host_arena, cm::eviction::lru, cm::transfer::no_prefetch>;
  CHECK(train_with(trained_on<on_demand>{device}) == "");
}

TEST_CASE("a profile comes before the first iteration of its name, and not inside one", "[manager]")
{
  using manager = cm::manager<cm::backend::host_arena>;
  trained_on<manager> run{96_KiB};
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

namespace schedule_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;
using planned = cm::manager<arena>;
using on_demand = cm::manager<arena, cm::eviction::lru, cm::transfer::no_prefetch>;

namespace {

/// Eight weights of a frame each, in tiers of so many frames. Each weight holds its number.
template <class Manager>
struct weights_on {
  explicit weights_on(std::uint64_t device, std::uint64_t host = 64)
      : memory{{.device_capacity = cm::bytes{device * 1024}, .host_capacity = cm::bytes{host * 1024}}}
  {
    for (std::uint32_t index = 0; index < 8; ++index)
      m.acquire(w.slice(index), cm::access::write, cm::memory_location::host).span()[0] = static_cast<float>(index);
  }
  [[nodiscard]] auto pin(std::uint32_t index, cm::access how = cm::access::read)
  {
    return m.acquire(w.slice(index), how);
  }
  void use(std::uint32_t index)
  {
    if (pin(index).span()[0] != static_cast<float>(index)) FAIL("weight " << index << " lost its bytes");
  }
  void walk(std::uint32_t count)
  {
    for (std::uint32_t index = 0; index < count; ++index) use(index % 8);
  }
  void run(std::string_view name, std::uint32_t count)
  {
    auto scope = m.iteration(name);
    walk(count);
    scope.end();
  }
  /// Forward and backward again: it ends where it began.
  void run_there_and_back(std::string_view name, std::uint32_t count)
  {
    auto scope = m.iteration(name);
    walk(count);
    for (std::uint32_t index = count; index-- > 0;) use(index);
    scope.end();
  }
  void interrupt(std::uint32_t count, bool otherwise)
  {
    try {
      auto scope = m.iteration();
      walk(count);
      if (otherwise)
        for (const std::uint32_t index : {7U, 3U, 7U}) use(index);
      throw std::runtime_error{"interrupted"};
    } catch (const std::runtime_error&) {
    }
  }

  arena memory;
  Manager m{memory, {.chunk_bytes = 1_KiB}};
  cm::stacked<float> w = m.template add_stacked<float>(8, {256}, cm::role::buffer);
};

struct expected_counts {
  std::uint64_t iterations = 0;
  std::uint64_t divergences = 0;
  std::uint64_t clean_starts = 0;
  std::uint64_t abandoned_plans = 0;
};

void check_counts(const cm::report& seen, const expected_counts& wanted)
{
  CHECK(seen.iterations == wanted.iterations);
  CHECK(seen.divergences == wanted.divergences);
  CHECK(seen.clean_starts == wanted.clean_starts);
  CHECK(seen.abandoned_plans == wanted.abandoned_plans);
}

/// Window `pair` of two frames and two single frames on a device of three; a step needs `single` and `pair` at once.
template <class Manager>
struct narrow {
  narrow()
  {
    for (const auto& it : {single, other, pair})
      for (float& value : m.acquire(it, cm::access::write, cm::memory_location::host).span()) value = 0;
  }
  void one_step()
  {
    auto scope = m.iteration();
    const auto first = m.acquire(single, cm::access::read_write);
    const auto second = m.acquire(pair, cm::access::read_write);
    first.span()[0] += 1;
    second.span()[511] += 1;
  }
  /// `single` comes to lie in the middle.
  void disturb()
  {
    {
      const auto away = m.acquire(single, cm::access::read_write, cm::memory_location::host);
    }
    const auto low = m.acquire(other, cm::access::read);
    const auto middle = m.acquire(single, cm::access::read);
  }

  arena memory{{.device_capacity = 3_KiB, .host_capacity = 16_KiB}};
  Manager m{memory, {.chunk_bytes = 1_KiB}};
  cm::tensor<float> single = m.template add<float>({256}, cm::role::buffer);
  cm::tensor<float> other = m.template add<float>({256}, cm::role::buffer);
  cm::tensor<float> pair = m.template add<float>({512}, cm::role::buffer);
};

}  // namespace

TEMPLATE_TEST_CASE("an iteration is recorded, followed, changed and followed again", "[manager]", planned, on_demand)
{
  weights_on<TestType> it{3};
  it.run("train", 8);
  CHECK(!it.m.drifted());  // there was nothing to repeat
  check_counts(it.m.report(), {.iterations = 1});
  for (int step = 0; step < 4; ++step) it.run("train", 8);
  CHECK(!it.m.drifted());
  check_counts(it.m.report(), {.iterations = 5});
  it.run("train", 5);  // shorter: known only when it ends
  CHECK(it.m.drifted());
  check_counts(it.m.report(), {.iterations = 6, .divergences = 1});
  it.run("train", 5);
  CHECK(!it.m.drifted());
  it.run("train", 11);  // longer: known when the record ends
  CHECK(it.m.drifted());
  const std::uint64_t left = it.m.report().abandoned_plans;
  check_counts(it.m.report(), {.iterations = 8, .divergences = 2, .abandoned_plans = left});
  for (int step = 0; step < 4; ++step) it.run("train", 11);
  CHECK(!it.m.drifted());
  check_counts(it.m.report(), {.iterations = 12, .divergences = 2, .abandoned_plans = left});
  CHECK(left == (std::is_same_v<TestType, planned> ? 1 : 0));
  CHECK(it.m.report().skipped_moves == 0);
}

TEST_CASE("a plan that ends where it began is made once and used from then on", "[manager]")
{
  weights_on<planned> it{3};
  for (int step = 0; step < 6; ++step) it.run_there_and_back("train", 8);
  const cm::report settled = it.m.report();
  CHECK(settled.replans <= 3);
  for (int step = 0; step < 20; ++step) it.run_there_and_back("train", 8);
  const cm::report seen = it.m.report();
  CHECK(seen.replans == settled.replans);
  CHECK(seen.abandoned_plans == 0);
  CHECK(seen.skipped_moves == 0);
  CHECK((seen.loads - settled.loads) % 20 == 0);
  CHECK(seen.waits.other == settled.waits.other);
}

TEMPLATE_TEST_CASE("loops of other names between the steps change no record and settle too", "[manager]", planned,
                   on_demand)
{
  weights_on<TestType> it{3};
  const auto round = [&] {
    it.run_there_and_back("train", 8);
    it.run_there_and_back("train", 8);
    it.run_there_and_back("eval", 5);
  };
  for (int index = 0; index < 6; ++index) round();
  const std::uint64_t replans = it.m.report().replans;
  for (int index = 0; index < 6; ++index) round();
  check_counts(it.m.report(), {.iterations = 36});
  CHECK(it.m.report().skipped_moves == 0);
  CHECK(it.m.report().replans == replans);
}

TEST_CASE("a scan that ends elsewhere each time is soon planned so that it ends where it began", "[manager]")
{
  for (std::uint64_t frames = 3; frames < 8; ++frames) {
    weights_on<planned> it{frames};
    for (int step = 0; step < 12; ++step) it.run("generate", 8);
    const cm::report settled = it.m.report();
    for (int step = 0; step < 21; ++step) it.run("generate", 8);
    const cm::report seen = it.m.report();
    INFO(frames << " frames");
    CHECK(seen.replans == settled.replans);
    // belady alone moves less by less than one chunk an iteration
    CHECK(seen.loads - settled.loads == 21 * (8 - frames + 1));
    CHECK(seen.skipped_moves == 0);
    CHECK(seen.abandoned_plans == 0);
  }
}

TEST_CASE("rounds of steps and of longer and longer generations come to need no new plan", "[manager]")
{
  for (const auto& [train, generate] : {std::pair{1, 1}, {3, 8}, {2, 1}, {1, 3}, {4, 20}}) {
    weights_on<planned> it{4};
    int tokens = generate;
    const auto round = [&, steps = train] {
      for (int index = 0; index < steps; ++index) it.run_there_and_back("train", 8);
      for (int index = 0; index < tokens; ++index) it.run("generate", 8);
    };
    for (int index = 0; index < 8; ++index) round();
    const cm::report equal = it.m.report();
    for (int index = 0; index < 4; ++index) round();
    CHECK(it.m.report().replans == equal.replans);
    for (int index = 0; index < 8; ++index, ++tokens) round();
    const cm::report settled = it.m.report();
    for (int index = 0; index < 8; ++index, ++tokens) round();
    const cm::report seen = it.m.report();
    INFO(train << " steps and " << generate << " generations");
    CHECK(seen.replans == settled.replans);
    CHECK(seen.divergences == 0);
    CHECK(seen.skipped_moves == 0);
    CHECK(seen.clean_starts == 0);
  }
}

TEMPLATE_TEST_CASE("an iteration that an exception ends keeps the record and counts as none that changed it",
                   "[manager]", planned, on_demand)
{
  weights_on<TestType> it{3};
  it.interrupt(4, false);  // nothing is recorded by it
  it.run("train", 8);
  it.run("train", 8);
  CHECK(!it.m.drifted());
  for (std::uint32_t reached = 0; reached <= 8; ++reached) {
    it.interrupt(reached, false);
    CHECK(!it.m.drifted());
    it.run("train", 8);
    CHECK(!it.m.drifted());
  }
  check_counts(it.m.report(), {.iterations = 21});
  it.interrupt(3, true);  // it had diverged, which is counted, and was abandoned
  it.run("train", 8);
  CHECK(!it.m.drifted());
  CHECK(it.m.report().divergences == 1);
}

TEMPLATE_TEST_CASE("a start from which the step would not fit clears the device", "[manager]", planned, on_demand)
{
  narrow<TestType> it;
  for (int step = 0; step < 4; ++step) it.one_step();
  check_counts(it.m.report(), {.iterations = 4});
  it.disturb();
  it.one_step();
  check_counts(it.m.report(), {.iterations = 5, .clean_starts = 1});
  for (int step = 0; step < 3; ++step) it.one_step();
  check_counts(it.m.report(), {.iterations = 8, .clean_starts = 1});
  it.disturb();
  it.one_step();
  check_counts(it.m.report(), {.iterations = 9, .clean_starts = 2});
  CHECK(it.m.acquire(it.single, cm::access::read).span()[0] == 9.0F);
  CHECK(it.m.acquire(it.pair, cm::access::read).span()[511] == 9.0F);
}

TEMPLATE_TEST_CASE("a step that fits from nowhere says so where it fails, and runs when the cause is gone", "[manager]",
                   planned, on_demand)
{
  narrow<TestType> it;
  it.one_step();
  it.disturb();
  auto held = it.m.acquire(it.single, cm::access::read);
  CHECK_THROWS_AS(it.one_step(), cm::out_of_memory);
  check_counts(it.m.report(), {.iterations = 2, .clean_starts = 1, .abandoned_plans = 1});
  held.release();
  it.one_step();
  CHECK(!it.m.drifted());
  check_counts(it.m.report(), {.iterations = 3, .clean_starts = 2, .abandoned_plans = 1});
}

TEST_CASE("a record that became shorter serves misses that come after it", "[manager]")
{
  weights_on<planned> it{2};
  for (int step = 0; step < 3; ++step) it.run("train", 400);
  for (const std::uint32_t shorter : {100U, 3U}) {
    it.run("train", shorter);
    it.walk(16);  // next uses of the longer record would be moments beyond the shorter one
    it.run("train", shorter);
    CHECK(!it.m.drifted());
  }
  it.walk(3);
  CHECK(it.m.report().divergences == 2);
}

TEST_CASE("a device that is large enough for windows apart from each other is never too small for them", "[manager]")
{
  arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  planned m{memory, {.chunk_bytes = 512_B}};
  const auto a = m.add<std::uint8_t>({1024}, cm::role::buffer);
  const auto b = m.add<std::uint8_t>({512}, cm::role::buffer);
  const auto c = m.add<std::uint8_t>({1024}, cm::role::buffer);
  {
    const auto pin = m.acquire(c, cm::access::write);
  }
  const auto second = m.acquire(a, cm::access::write);
  {
    const auto pin = m.acquire(c, cm::access::write, cm::memory_location::host);
  }                                                    // its frame run on the device is free
  const auto small = m.acquire(b, cm::access::write);  // and cut here
  CHECK_NOTHROW(m.acquire(c, cm::access::read));
}

TEST_CASE("pins and leases released earlier than recorded do not stay in the record that changed", "[manager]")
{
  weights_on<planned> it{2};
  {
    auto scope = it.m.iteration();
    auto lease = it.m.lease(cm::tier::device, 512_B);
    auto a = it.pin(0);
    lease.release();
    auto b = it.pin(1);
    a.release();
    b.release();
  }
  const auto otherwise = [&] {
    auto scope = it.m.iteration();
    it.m.lease(cm::tier::device, 512_B).release();
    it.use(0);
    const auto c = it.pin(2);  // not the recorded one
    const auto d = it.pin(3);
  };
  otherwise();
  const cm::report changed = it.m.report();
  for (int step = 0; step < 8; ++step) otherwise();
  const cm::report seen = it.m.report();
  CHECK(seen.divergences == 1);
  CHECK(seen.clean_starts == changed.clean_starts);
  CHECK(seen.abandoned_plans == changed.abandoned_plans);
  CHECK(seen.skipped_moves == 0);
}

TEST_CASE("a lease on the host leaves the plan of the device in force", "[manager]")
{
  weights_on<planned> it{3, 9};  // what the device has too must leave the host for the lease
  const auto step = [&] {
    auto scope = it.m.iteration();
    it.walk(8);
    {
      const auto lease = it.m.lease(cm::tier::host, 2_KiB);
    }
    for (std::uint32_t index = 0; index < 8; ++index) {
      const auto pin = it.pin(index, cm::access::read_write);
    }
  };
  for (int index = 0; index < 12; ++index) step();
  check_counts(it.m.report(), {.iterations = 12});
  CHECK(it.m.report().skipped_moves == 0);
}

TEST_CASE("an iteration that could not begin leaves nothing of the record before it to the policy", "[manager]")
{
  using failing = support::failing<arena>;
  const cm::backend::host_arena_options options{.device_capacity = 2_KiB, .host_capacity = 64_KiB};
  failing memory{{}, options};
  cm::manager<failing> m{memory, {.chunk_bytes = 1_KiB}};
  const auto w = m.add_stacked<float>(8, {256}, cm::role::parameter);
  const auto use = [&](std::uint32_t index, cm::write_access how) {
    m.acquire(w.slice(index), how).span()[0] = static_cast<float>(index);
  };
  for (std::uint32_t index = 0; index < 8; ++index) use(index, cm::access::write);
  const auto pair = [&] {
    const auto scope = m.iteration("short");
    const auto one = m.acquire(w.slice(0), cm::access::read);
    const auto other = m.acquire(w.slice(1), cm::access::read);
  };
  pair();
  for (int round = 0; round < 4; ++round) {
    const auto scope = m.iteration("long");
    for (std::uint32_t index = 0; index < 24; ++index) use(index % 8, cm::access::read_write);
  }
  {
    const auto pin = m.acquire(w.slice(7), cm::access::read);  // in the way: the device has to be cleared first
    memory.set_plan({.copy = memory.copies(), .persistent = true});
    CHECK_THROWS_AS(pair(), cm::device_error);
    memory.set_plan({});
  }
  for (std::uint32_t index = 0; index < 40; ++index)
    CHECK(m.acquire(w.slice(index * 3 % 8), cm::access::read).span()[0] == static_cast<float>(index * 3 % 8));
}

TEST_CASE("a record of an iteration that diverged while a tensor was pinned in two tiers is a good profile",
          "[manager]")
{
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  const auto declared = [](auto& m) {
    const auto weight = m.template add<float>({1024}, cm::role::parameter);
    m.acquire(weight, cm::access::write).release();
    return weight;
  };
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = declared(m);
  for (int step = 0; step < 2; ++step) {
    const auto scope = m.iteration();
    auto on_host = m.acquire(weight, cm::access::read, cm::memory_location::host);
    auto on_device = m.acquire(weight, cm::access::read);
    on_device.release();
    // the device's pin is gone: this may be
    if (step == 1) m.acquire(weight, cm::access::read_write, cm::memory_location::host).release();
    on_host.release();
  }
  REQUIRE(m.report().divergences == 1);
  REQUIRE(m.profile() != nullptr);
  REQUIRE(m.profile()->size() == 3);
  arena other{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> next{other, {.chunk_bytes = 4_KiB}};
  (void)declared(next);
  next.use_profile(*m.profile());
  CHECK(next.profile()->details()[0].until == 3);
  CHECK(next.profile()->details()[1].until == 2);
}

}  // namespace schedule_test
