// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/hazard_tracker.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/manager/manager.hpp>

#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/failing.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/listening_backend.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace device_health_test {

using namespace chunkmem;

namespace {

device_error fault(const char* what, bool sticky)
{
  return {error_text{} << what, {.number = 700, .is_sticky = sticky, .call = 3}};
}

}  // namespace

TEST_CASE("a device that failed in passing is alive", "[manager]")
{
  device_health health;
  health.expect_alive();
  REQUIRE_THROWS_AS(health.starting([]() -> int { throw fault("copy", false); }), device_error);
  REQUIRE_FALSE(health.is_lost());
  health.expect_alive();
  REQUIRE(health.starting([] { return 7; }) == 7);
}

TEST_CASE("a sticky fault is the first cause of all that is refused afterwards", "[manager]")
{
  device_health health;
  REQUIRE_THROWS_AS(health.starting([] { throw fault("the first", true); }), device_error);
  REQUIRE_THROWS_AS(health.starting([] { throw fault("the second", true); }), device_error);
  REQUIRE(health.is_lost());
  try {
    health.expect_alive();
    FAIL("a lost device was taken for alive");
  } catch (const device_error& cause) {
    REQUIRE(std::string{cause.what()} == "the first");
    REQUIRE(cause.fault().number == 700);
    REQUIRE(cause.fault().is_sticky);
    REQUIRE(cause.fault().call == 3);
  }
}

TEST_CASE("where the order of work is lost, every error is the end", "[manager]")
{
  device_health health;
  for (int turn = 0; turn < 2; ++turn) {
    try {
      turn == 0 ? health.ordering([] { throw fault("an event", false); }) : health.expect_alive();
      FAIL("the order of work was lost, and nobody said so");
    } catch (const device_error& cause) {
      REQUIRE(std::string{cause.what()}.find("order of work on the device is lost") != std::string::npos);
      REQUIRE(std::string{cause.what()}.find("an event") != std::string::npos);
      REQUIRE(cause.fault().is_sticky);
      REQUIRE(cause.fault().number == 700);
    }
  }
}

TEST_CASE("whoever asked hears of the loss, once", "[manager]")
{
  int heard = 0;
  device_health health{[](void* count) noexcept { ++*static_cast<int*>(count); }, &heard};
  REQUIRE_THROWS_AS(health.starting([] { throw fault("in passing", false); }), device_error);
  REQUIRE(heard == 0);
  for (int i = 0; i < 2; ++i) REQUIRE_THROWS_AS(health.starting([] { throw fault("for good", true); }), device_error);
  REQUIRE(heard == 1);
}

TEST_CASE("errors that are no device's end nothing", "[manager]")
{
  device_health health;
  REQUIRE_THROWS_AS(health.starting([] { throw usage_error{"a mistake"}; }), usage_error);
  REQUIRE_THROWS_AS(health.ordering([] { throw usage_error{"a mistake"}; }), usage_error);
  REQUIRE_FALSE(health.is_lost());
}

}  // namespace device_health_test

namespace arena_set_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;

TEST_CASE("arenas are all allocated or none, and given back once", "[manager]")
{
  using failing = support::failing<support::adversarial>;
  for (const std::uint64_t which : {0U, 1U}) {
    failing memory{support::failure_plan{.allocation = which},
                   support::adversarial_options{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
    cm::device_health health;
    cm::arena_set<failing> arenas{memory, health};
    CHECK((arenas.capacities()[cm::tier::device] == 8_KiB && arenas.capacities()[cm::tier::host] == 64_KiB));
    CHECK_THROWS_AS(arenas.allocate(), cm::out_of_memory);
    for (const cm::tier where : cm::all_tiers) CHECK(arenas.begins()[where] == nullptr);
    arenas.allocate();
    for (const cm::tier where : cm::all_tiers) CHECK(arenas.begins()[where] != nullptr);
    arenas.release();
    arenas.release();
    for (const cm::tier where : cm::all_tiers) CHECK(arenas.begins()[where] == nullptr);
    memory.inner().drain();
    CHECK(memory.inner().faults().empty());
  }
}

TEST_CASE("memory goes back when all agents are done", "[manager]")
{
  arena memory{{.device_capacity = 4_KiB, .host_capacity = 4_KiB, .async_compute = true}};
  cm::device_health health;
  int done = 0;
  {
    cm::arena_set<arena> arenas{memory, health};
    arenas.allocate();
    memory.launch(cm::agent::compute, [&done, begin = arenas.begins()[cm::tier::device]] {
      *begin = std::byte{1};
      done = 1;
    });
  }
  CHECK(done == 1);
}

TEST_CASE("arenas that cannot be allocated are asked for again", "[manager]")
{
  using failing = support::failing<support::adversarial>;
  for (const std::uint64_t which : {0U, 1U}) {
    failing memory{support::failure_plan{.allocation = which, .persistent = true},
                   support::adversarial_options{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
    {
      cm::manager<failing> m{memory, {.chunk_bytes = 4_KiB}};
      const auto weight = m.add<float>({100}, cm::role::parameter);
      for (int attempt = 0; attempt < 3; ++attempt) {
        CHECK_THROWS_AS(m.acquire(weight, cm::access::write), cm::out_of_memory);
        CHECK_THROWS_AS(m.iteration(), cm::out_of_memory);
        CHECK_THROWS_AS(m.lease(cm::tier::host, 256_B), cm::out_of_memory);
        CHECK(m.state_of(weight) == cm::tensor_state::free);
      }
      memory.set_plan({});
      auto scope = m.iteration();
      CHECK(m.acquire(weight, cm::access::write).size() == 100);
    }
    memory.inner().drain();
    CHECK(memory.inner().faults().empty());
  }
}

TEST_CASE("a manager ends while copies are still queued", "[manager]")
{
  support::adversarial memory{
      {.device_capacity = 8_KiB, .host_capacity = 64_KiB, .when = support::schedule::latest, .async_compute = true}};
  {
    cm::manager<support::adversarial> m{memory, {.chunk_bytes = 4_KiB}};
    const auto weights = m.add_stacked<float>(6, {1024}, cm::role::parameter);
    for (int round = 0; round < 2; ++round)
      for (std::uint32_t index = 0; index < 6; ++index) {
        const auto pin = m.acquire(weights.slice(index), cm::access::write, cm::agent::compute);
        memory.launch(cm::agent::compute, [to = pin.data()] { *to = 1; });
      }
  }
  memory.drain();
  CHECK(memory.faults().empty());
}

TEST_CASE("two managers on one backend share its capacity and nothing else", "[manager]")
{
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> first{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = first.add<float>({100}, cm::role::parameter);
  {
    const auto pin = first.acquire(weight, cm::access::write);
  }
  cm::manager<arena> second{memory, {.chunk_bytes = 4_KiB}};
  const auto other = second.add<float>({100}, cm::role::parameter);
  CHECK_THROWS_AS(second.acquire(other, cm::access::write), cm::out_of_memory);  // the first one took it all
  CHECK(first.acquire(weight, cm::access::read).size() == 100);
}

TEST_CASE("the report counts what happened and prints it", "[manager]")
{
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto weights = m.add_stacked<float>(5, {1000}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 5; ++index) {
    const auto pin = m.acquire(weights.slice(index), cm::access::write);
  }
  const cm::report seen = m.report();
  CHECK(seen.capacity[cm::tier::device] == 8_KiB);
  CHECK(seen.in_use[cm::tier::device] == 8_KiB);
  CHECK(seen.peak[cm::tier::device] == 8_KiB);
  CHECK(seen.evictions == 3);
  CHECK(seen.write_backs == 3);
  CHECK(seen.written_back == cm::bytes{3 * 4096});
  CHECK(seen.loads == 0);
  CHECK(seen.in_use[cm::tier::host] == 12_KiB);
  {
    const auto pin = m.acquire(weights.slice(0), cm::access::read);
  }
  CHECK(m.report().loads == 1);
  CHECK(m.report().json().find("\"loads\": 1,") != std::string::npos);
}

}  // namespace arena_set_test

namespace hazard_tracker_test {

using namespace chunkmem;
using support::call;
using support::listening_backend;

namespace {

constexpr agent caller_stream{4};

/// The true history of a frame: the numbers of the work that read and wrote it, by agent.
struct history {
  std::map<agent, std::uint64_t> readers;
  std::map<agent, std::uint64_t> writers;
};

/// New work of `stream` follows all of these.
bool follows(listening_backend& backend, agent stream, const std::map<agent, std::uint64_t>& work)
{
  return std::all_of(work.begin(), work.end(), [&](const auto& it) {
    return it.first == agent::host || it.first == stream || backend.knows(stream, it.first) >= it.second;
  });
}

}  // namespace

TEST_CASE("a reader follows all writers and a writer all users, whatever happens", "[manager]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice dice{seed};
    listening_backend backend;
    device_health health;
    hazard_tracker<listening_backend> tracker{backend, health};
    std::vector<frame_hazards> hazards(dice.between(1, 4));
    std::vector<history> frames(hazards.size());
    const auto check = [&](agent stream, const history& frame, bool writing) {
      if (!follows(backend, stream, frame.writers)) FAIL("seed " << seed << ": an agent does not follow a writer");
      if (writing && !follows(backend, stream, frame.readers))
        FAIL("seed " << seed << ": a writer does not follow a reader");
    };
    for (int step = 0; step < 120; ++step) {
      const std::uint32_t index = dice.below(static_cast<std::uint32_t>(hazards.size()));
      const std::uint32_t other = dice.below(static_cast<std::uint32_t>(hazards.size()));
      if (dice.one_in(3) && index != other) {  // a copy from one frame into another
        const agent stream = dice.one_in(2) ? agent::to_device : agent::to_host;
        tracker.follow(stream, hazards[index], hazards[index].writers, wait_cause::other);
        tracker.follow(stream, hazards[other], hazards[other].users, wait_cause::other);
        check(stream, frames[index], false);
        check(stream, frames[other], true);
        const std::uint64_t number = backend.work(stream);
        const event done = tracker.copied(stream);
        tracker.stamp_copy(done, hazards[other], true);
        tracker.stamp_copy(done, hazards[index], false);
        frames[other].writers[stream] = number;
        frames[index].readers[stream] = number;
      } else {  // a pin of the caller, of the compute stream or of a stream of the caller's own
        const agent users[] = {agent::host, agent::compute, caller_stream};
        const agent stream = users[dice.below(3)];
        const bool writing = dice.one_in(2);
        tracker.follow(stream, hazards[index], writing ? hazards[index].users : hazards[index].writers,
                       wait_cause::demand_miss);
        check(stream, frames[index], writing);
        const std::uint64_t number = backend.work(stream);
        tracker.stamp(stream, hazards[index], writing);
        (writing ? frames[index].writers : frames[index].readers)[stream] = number;
      }
    }
  }
}

TEST_CASE("a release records nothing and an epoch becomes an event once", "[manager]")
{
  listening_backend backend;
  device_health health;
  hazard_tracker<listening_backend> tracker{backend, health};
  frame_hazards frames[3];
  for (frame_hazards& frame : frames)
    for (int use = 0; use < 100; ++use) tracker.stamp(agent::compute, frame, true);
  CHECK(backend.heard.empty());
  for (frame_hazards& frame : frames) tracker.follow(agent::to_host, frame, frame.writers, wait_cause::other);
  CHECK(backend.count(call::kind::record) == 1);
  CHECK(backend.count(call::kind::wait) == 1);  // one event covers what was stamped before it
  tracker.follow(agent::to_device, frames[1], frames[1].users, wait_cause::other);
  CHECK(backend.count(call::kind::record) == 1);  // the same event, for another agent
  CHECK(backend.count(call::kind::wait) == 2);
  tracker.stamp(agent::compute, frames[2], false);  // later than the event
  tracker.follow(agent::to_host, frames[0], frames[0].users, wait_cause::other);
  CHECK(backend.count(call::kind::record) == 1);
  tracker.follow(agent::to_host, frames[2], frames[2].users, wait_cause::other);
  CHECK(backend.count(call::kind::record) == 2);
}

TEST_CASE("who follows an early use does not wait for what was enqueued since, as long as its event is remembered",
          "[manager]")
{
  listening_backend backend;
  device_health health;
  hazard_tracker<listening_backend> tracker{backend, health};
  std::vector<frame_hazards> frames(400);
  for (std::size_t index = 0; index < frames.size(); ++index) {
    backend.work(agent::compute);
    tracker.stamp(agent::compute, frames[index], true);
    tracker.follow(agent::to_host, frames[index], frames[index].writers, wait_cause::other);
  }
  tracker.follow(agent::to_device, frames[390], frames[390].users, wait_cause::other);
  CHECK(backend.knows(agent::to_device, agent::compute) == 391);
  tracker.follow(caller_stream, frames[10], frames[10].users, wait_cause::other);  // too long ago: a later event
  CHECK(backend.knows(caller_stream, agent::compute) >= 11);
  CHECK(backend.knows(caller_stream, agent::compute) < 200);
}

TEST_CASE("an agent that is made a copy agent is followed to the event of its work, and records no other", "[manager]")
{
  listening_backend backend;
  device_health health;
  hazard_tracker<listening_backend> tracker{backend, health};
  tracker.add_copy_agent(caller_stream);
  std::vector<frame_hazards> frames(20);
  for (frame_hazards& frame : frames) {
    backend.work(caller_stream);
    hazard_tracker<listening_backend>::stamp_copy(tracker.copied(caller_stream), frame, true);
  }
  CHECK(backend.count(call::kind::record) == frames.size());
  tracker.follow(agent::compute, frames[4], frames[4].writers, wait_cause::other);
  CHECK(backend.knows(agent::compute, caller_stream) == 5);
  tracker.follow(agent::to_device, frames[19], frames[19].users, wait_cause::other);
  CHECK(backend.knows(agent::to_device, caller_stream) == 20);
  for (const agent copies : {agent::to_device, agent::to_host}) {  // which they still are
    frame_hazards frame;
    backend.work(copies);
    hazard_tracker<listening_backend>::stamp_copy(tracker.copied(copies), frame, true);
    backend.work(copies);
    tracker.follow(agent::compute, frame, frame.writers, wait_cause::other);
    CHECK(backend.knows(agent::compute, copies) == 1);
  }
  CHECK(backend.count(call::kind::record) == frames.size() + 2);
}

TEST_CASE("a reader does not follow reads of an agent whose write another one has followed and written over",
          "[manager]")
{
  listening_backend backend;
  device_health health;
  hazard_tracker<listening_backend> tracker{backend, health};
  frame_hazards frame;
  backend.work(caller_stream);
  tracker.stamp(caller_stream, frame, true);  // a gradient
  tracker.follow(agent::compute, frame, frame.users, wait_cause::other);
  backend.work(agent::compute);
  tracker.stamp(agent::compute, frame, true);  // its update
  CHECK(frame.users == 1U << static_cast<unsigned>(agent::compute));
  tracker.follow(caller_stream, frame, frame.writers, wait_cause::other);
  backend.work(caller_stream);
  tracker.stamp(caller_stream, frame, false);  // a gather
  backend.work(caller_stream);
  backend.heard.clear();
  tracker.follow(agent::compute, frame, frame.writers, wait_cause::other);
  CHECK(backend.heard.empty());
  tracker.follow(agent::compute, frame, frame.users, wait_cause::other);  // before the next write
  CHECK(backend.knows(agent::compute, caller_stream) == 3);

  frame_hazards other;  // what nobody followed stays
  backend.work(caller_stream);
  tracker.stamp(caller_stream, other, true);
  tracker.stamp(agent::compute, other, true);
  tracker.follow(agent::to_host, other, other.writers, wait_cause::other);
  CHECK(backend.knows(agent::to_host, caller_stream) == 4);
}

TEST_CASE("nothing is waited for twice, and nobody waits for itself or for the caller", "[manager]")
{
  listening_backend backend;
  device_health health;
  hazard_tracker<listening_backend> tracker{backend, health};
  frame_hazards frame;
  backend.work(agent::to_device);
  tracker.stamp_copy(tracker.copied(agent::to_device), frame, true);
  backend.heard.clear();
  tracker.follow(agent::to_device, frame, frame.users, wait_cause::other);
  CHECK(backend.heard.empty());
  tracker.follow(agent::compute, frame, frame.writers, wait_cause::other);
  tracker.follow(agent::compute, frame, frame.users, wait_cause::other);
  CHECK(backend.count(call::kind::wait) == 1);
  frame_hazards untouched;
  tracker.stamp(agent::host, untouched, true);
  CHECK((untouched.users == 0 && untouched.writers == 0));
}

TEST_CASE("waits of the caller are counted by cause and forgotten by the frame", "[manager]")
{
  listening_backend backend;
  device_health health;
  hazard_tracker<listening_backend> tracker{backend, health};
  frame_hazards frame;
  tracker.stamp_copy(tracker.copied(agent::to_device), frame, true);
  tracker.stamp(agent::compute, frame, false);
  tracker.follow(agent::compute, frame, frame.writers, wait_cause::demand_miss);
  CHECK(tracker.waited(wait_cause::demand_miss).count == 0);  // the caller did not wait
  tracker.follow(agent::host, frame, frame.writers, wait_cause::demand_miss);
  CHECK(tracker.waited(wait_cause::demand_miss).count == 1);
  CHECK(frame.writers == 0);
  CHECK(frame.users != 0);  // the reader is still there
  tracker.follow(agent::host, frame, frame.users, wait_cause::optimizer_input);
  CHECK((tracker.waited(wait_cause::optimizer_input).count == 1 && tracker.waited(wait_cause::other).count == 0));
  CHECK(frame.users == 0);
  tracker.follow(agent::host, frame, frame.users, wait_cause::other);
  CHECK(tracker.waited(wait_cause::other).count == 0);
}

TEST_CASE("streams of kernels and the caller have their waits told, and agents that copy do not", "[manager]")
{
  backend::simulated machine{{.device_capacity = 1_MiB, .host_capacity = 1_MiB, .host_runs_ahead = true}};
  device_health health;
  hazard_tracker<backend::simulated> tracker{machine, health};
  frame_hazards frame;
  machine.advance(agent::to_device, 500);
  tracker.stamp_copy(tracker.copied(agent::to_device), frame, true);
  tracker.follow(agent::to_host, frame, frame.writers, wait_cause::other);
  CHECK(tracker.waited(wait_cause::other) == wait_total{});
  tracker.follow(agent::compute, frame, frame.writers, wait_cause::demand_miss);
  CHECK(tracker.waited(wait_cause::demand_miss) == wait_total{1, 500});
  tracker.follow(agent::compute, frame, frame.writers, wait_cause::demand_miss);  // it follows it already
  CHECK(tracker.waited(wait_cause::demand_miss) == wait_total{1, 500});
  machine.advance(agent::host, 400);
  tracker.follow(agent::host, frame, frame.writers, wait_cause::optimizer_input);
  CHECK(tracker.waited(wait_cause::optimizer_input) == wait_total{1, 100});

  const agent own = machine.adopt();
  frame_hazards shared;
  machine.advance(agent::compute, 1'000);
  tracker.stamp(agent::compute, shared, true);
  tracker.follow(own, shared, shared.writers, wait_cause::demand_miss);  // the trainer's order of its streams
  CHECK(tracker.waited(wait_cause::demand_miss) == wait_total{1, 500});
  CHECK(machine.clock(own) == machine.clock(agent::compute));

  frame_hazards left;
  machine.advance(agent::to_host, 2'000);
  tracker.stamp_copy(tracker.copied(agent::to_host), left, false);
  const std::uint64_t waits_for = machine.clock(agent::to_host) - machine.clock(agent::compute);
  tracker.follow(agent::compute, left, left.users, wait_cause::other);  // it overwrites what is written back
  CHECK(tracker.waited(wait_cause::demand_miss) == wait_total{2, 500 + waits_for});
  CHECK(tracker.waited(wait_cause::other) == wait_total{});

  const agent beside = machine.adopt();
  tracker.add_side_agent(beside);
  machine.advance(agent::to_device, 50'000);
  frame_hazards added;
  tracker.stamp_copy(tracker.copied(agent::to_device), added, true);
  tracker.follow(beside, added, added.writers, wait_cause::demand_miss);
  CHECK(machine.clock(beside) == machine.clock(agent::to_device));
  CHECK(tracker.waited(wait_cause::demand_miss) == wait_total{2, 500 + waits_for});
}

TEST_CASE("a wait that fails is made again by the next who asks", "[manager]")
{
  for (const std::uint64_t failing : {0u, 1u}) {
    listening_backend backend;
    device_health health;
    hazard_tracker<listening_backend> tracker{backend, health};
    frame_hazards frame;
    const std::uint64_t number = backend.work(agent::compute);
    tracker.stamp(agent::compute, frame, true);
    backend.fail_in = failing;  // the record, or the wait
    CHECK_THROWS_AS(tracker.follow(agent::to_host, frame, frame.writers, wait_cause::other), device_error);
    tracker.follow(agent::to_host, frame, frame.writers, wait_cause::other);
    CHECK(backend.knows(agent::to_host, agent::compute) >= number);
  }
}

}  // namespace hazard_tracker_test
