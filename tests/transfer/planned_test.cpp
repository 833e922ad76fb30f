// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/planned.hpp>

#include <chunkmem/manager/replay.hpp>
#include <conformance/transfer_policy.hpp>
#include <support/catch.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace planned_test {

using namespace chunkmem;

namespace {

constexpr int part = support::sanitized ? 4 : 1;  // of all seeds

}  // namespace

TEST_CASE("planned keeps the laws of a transfer policy and starts copies early", "[transfer]")
{
  CHECK(conformance::transfer_policy_laws<transfer::planned>() > 200);
}

TEST_CASE("what planned solves is what its run moves, where no lease and no window is in the way", "[transfer]")
{
  int equal = 0;
  int runs = 0;
  transfer::planned policy;
  for (std::uint64_t seed = 1; seed <= 300 / part; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    conformance::demand_run run;
    const support::iteration_traits traits{.entries = dice.between(4, 60), .drops = false, .device_leases = false};
    if (!conformance::roll_demand(seed, traits, false, run)) continue;
    const transfer::iteration_plan wanted = policy.retain(run.request());
    REQUIRE(wanted.retained_until.size() == run.iteration.record.size());
    REQUIRE(wanted.first_use.size() == run.iteration.chunks());
    retained_run planned;
    planned.start(run.start.table(), wanted);
    const auto moved = planned.frames_moved(run.iteration.record, run.iteration.chunk_of_slot);
    REQUIRE(moved.has_value());
    ++runs;
    equal += *moved * support::frame_bytes == 2 * policy.solution().moved_bytes ? 1 : 0;
  }
  CHECK(runs > 100 / part);
  CHECK(equal == runs);
}

TEST_CASE("what planned solves is what its run moves, where every window has its frames", "[transfer]")
{
  int equal = 0;
  int less = 0;
  int without = 0;  // some stays found no frames
  transfer::planned policy;
  for (std::uint64_t seed = 1; seed <= 800 / part; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    conformance::demand_run run;
    const support::iteration_traits traits{.entries = dice.between(4, 60),
                                           .longest_chunk = dice.between(2, 3),
                                           .drops = false,
                                           .device_leases = dice.one_in(2)};
    if (!conformance::roll_demand(seed, traits, false, run)) continue;
    const transfer::iteration_plan wanted = policy.retain(run.request());
    if (wanted.places.empty()) continue;
    REQUIRE(wanted.places.size() == run.iteration.record.size());
    const auto has_place = [&](std::uint32_t index) {
      const entry_kind kind = run.iteration.record.entries()[index].kind;
      return !is_access(kind) || place_of(kind) == memory_location::host ||
             wanted.places[index] != index_of(frame_id::none);
    };
    bool all = true;
    for (std::uint32_t index = 0; index < wanted.places.size(); ++index) all = all && has_place(index);
    without += all ? 0 : 1;
    if (!all) continue;
    retained_run planned;
    planned.start(run.start.table(), wanted);
    const auto moved = planned.frames_moved(run.iteration.record, run.iteration.chunk_of_slot);
    REQUIRE(moved.has_value());
    const std::uint64_t solved = 2 * policy.solution().moved_bytes / support::frame_bytes;
    REQUIRE(*moved <= solved);
    (*moved == solved ? equal : less) += 1;  // a chunk that the plan gives up may still be there for its next use
  }
  CHECK(equal > 200 / part);
  CHECK(less < equal / 20);
  CHECK(without > 10 / part);
}

TEST_CASE("a plan that leaves frames open names none and gives up no stay for them", "[transfer]")
{
  int cheaper = 0;
  transfer::planned policy;
  for (std::uint64_t seed = 1; seed <= 400 / part; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    conformance::demand_run run;
    const support::iteration_traits traits{
        .entries = dice.between(4, 60), .longest_chunk = dice.between(2, 3), .drops = false};
    if (!conformance::roll_demand(seed, traits, false, run)) continue;
    transfer::retention_request request = run.request();
    (void)policy.retain(request);
    const std::uint64_t in_frames = policy.solution().moved_bytes;
    request.finds_places = false;
    const transfer::iteration_plan open = policy.retain(request);
    REQUIRE(open.places.empty());
    REQUIRE(policy.solution().moved_bytes <= in_frames);
    cheaper += policy.solution().moved_bytes < in_frames ? 1 : 0;
  }
  CHECK(cheaper > 0);
}

TEST_CASE("what planned solves is what its run moves, where the host has no room for every host copy", "[transfer]")
{
  int equal = 0;
  int runs = 0;
  int cannot = 0;  // from where everything lies no chunk can make the first step
  transfer::planned policy;
  for (std::uint64_t seed = 1; seed <= 1'200 / part; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    conformance::demand_run run;
    const support::iteration_traits traits{
        .entries = dice.between(4, 60), .host = dice.one_in(2), .drops = dice.one_in(2), .device_leases = false};
    if (!conformance::roll_demand(seed, traits, true, run)) continue;
    const transfer::iteration_plan wanted = policy.retain(run.request());
    if (wanted.device_only.empty()) continue;
    REQUIRE(wanted.device_only.size() == run.iteration.chunks());
    retained_run planned;
    planned.start(run.start.table(), wanted);
    const auto moved = planned.frames_moved(run.iteration.record, run.iteration.chunk_of_slot);
    cannot += moved ? 0 : 1;
    if (!moved) continue;
    ++runs;
    equal += *moved * support::frame_bytes == 2 * policy.solution().moved_bytes ? 1 : 0;
    for (const chunk_id chunk : planned.state().table().chunk_ids())
      if (wanted.device_only[index_of(chunk)] != 0 && planned.state()[chunk].live > 0)
        CHECK(planned.state()[chunk].has_frames(tier::device));
  }
  CHECK(cannot < runs / 10);
  CHECK(runs > 100 / part);
  CHECK(equal == runs);
}

TEST_CASE("the same record is solved to the same plan, whatever was solved before", "[transfer]")
{
  transfer::planned used;
  int plans = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    support::dice dice{seed};
    conformance::demand_run run;
    if (!conformance::roll_demand(seed, {.entries = dice.between(1, 60), .longest_chunk = 2}, false, run)) continue;
    transfer::planned fresh;
    const transfer::iteration_plan once = used.retain(run.request());
    REQUIRE(once == fresh.retain(run.request()));
    plans += once.retained_until.empty() ? 0 : 1;
  }
  CHECK(plans > 20);
}

TEST_CASE("a record that asks for more than there is has no plan", "[transfer]")
{
  support::record_builder build;
  build.access(0);
  build.access(1);
  const std::vector<std::uint32_t> own{0, 1};
  const access_record record = build.finish(own, 2);
  const std::vector<chunk> chunks(2);
  const std::vector<std::uint8_t> live{1, 1};
  transfer::planned policy;
  const auto accesses_planned = [&](const access_record& what, std::uint64_t device, std::uint64_t host) {
    return policy.retain({what, own, chunks, live, bytes{512}, bytes{device}, bytes{host}}).retained_until.size();
  };
  CHECK(accesses_planned(record, 1024, 1024) == 2);
  CHECK(accesses_planned(record, 512, 1024) == 0);
  CHECK(accesses_planned(record, 1024, 0) == 2);  // both stay on the device
  CHECK(accesses_planned(record, 512, 1023) == 0);
  build.access(1, entry_kind::read_on_host);
  const access_record with_host = build.finish(own, 2);
  CHECK(accesses_planned(with_host, 1024, 512) == 3);
  CHECK(accesses_planned(with_host, 1024, 511) == 0);  // a chunk without the host copy that it has to have
  CHECK(accesses_planned(access_record{}, 1024, 1024) == 0);
}

TEST_CASE("leases on the host take room from host copies, and derived chunks need none", "[transfer]")
{
  const std::vector<std::uint32_t> own{0, 1, 2};
  const std::vector<std::uint8_t> live{1, 1, 1};
  transfer::planned policy;
  const auto without_host_copy = [&](bool leases, bool derived, std::uint64_t host) {
    support::record_builder build;
    for (const std::uint32_t chunk : own) build.release(build.access(chunk));
    if (leases) build.release(build.lease(entry_kind::lease_host, 512));
    const access_record record = build.finish(own, 3);
    std::vector<chunk> chunks(3);
    if (derived) chunks[1].first_frame[tier::host] = chunk::elsewhere;
    const transfer::iteration_plan plan =
        policy.retain({record, own, chunks, live, bytes{512}, bytes{1024}, bytes{host}});
    REQUIRE(plan.retained_until.size() == record.size());
    return std::count(plan.device_only.begin(), plan.device_only.end(), 1);
  };
  CHECK(without_host_copy(false, false, 3 * 512) == 0);
  CHECK(without_host_copy(false, false, 2 * 512) == 1);
  CHECK(without_host_copy(true, false, 3 * 512) == 1);
  CHECK(without_host_copy(true, false, 4 * 512) == 0);
  CHECK(without_host_copy(false, true, 2 * 512) == 0);
}

}  // namespace planned_test
