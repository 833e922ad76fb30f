// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/hazard_tracker.hpp>

#include <chunkmem/backend/simulated.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/listening_backend.hpp>

#include <algorithm>
#include <map>
#include <vector>

namespace hazard_tracker_test {

using namespace chunkmem;
using support::call;
using support::listening_backend;

namespace {

constexpr agent caller_stream{4};

/// What really happened to a frame: the numbers of the work that read and wrote it, by agent.
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
