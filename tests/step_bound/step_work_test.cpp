// SPDX-License-Identifier: Apache-2.0
#include <step_bound/step_work.hpp>

#include <chunkmem/transfer/retention_problem.hpp>
#include <chunkmem/transfer/retention_solution.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/retention_trace.hpp>

#include <array>
#include <cstdint>
#include <vector>

namespace step_work_test {

using namespace chunkmem;
using step_bound::compute_clock;
using step_bound::host_task;
using step_bound::step_input;
using step_bound::step_work;
using step_bound::work_piece;
using transfer::retention_use;
using transfer::use_kind;

namespace {

const std::vector<std::uint64_t> ten_each(6, 10);

}  // namespace

TEST_CASE("the copies of an iteration move the bytes of its plan", "[step_bound]")
{
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    support::dice random{seed};
    const support::retention_trace trace =
        support::roll_small_trace(random, {true, random.one_in(2), random.one_in(2)});
    const transfer::retention_solution plan = transfer::plan_retention(transfer::retention_problem{trace.input()});
    const std::vector<std::uint64_t> nanoseconds(trace.device_bytes.size(), 1);
    const backend::link_cost link{0, 1e9};  // a nanosecond for each byte
    const step_work work{
        {nanoseconds, trace.chunk_bytes, trace.uses, plan.retained, trace.device_bytes, {}, link, link, 0}};
    double bytes_moved = 0;
    for (const work_piece& it : work.loads()) bytes_moved += it.nanoseconds;
    for (const work_piece& it : work.write_backs()) bytes_moved += it.nanoseconds;
    CHECK(bytes_moved == static_cast<double>(plan.moved_bytes));
  }
}

TEST_CASE("what a chunk's copies and updates wait for is what was done to it before", "[step_bound]")
{
  // Read at 0, written at 2, updated on the host at 4, in 70 ns; a copy takes 100 ns.
  const std::vector<retention_use> uses{
      {0, 0, 1, use_kind::read}, {0, 2, 3, use_kind::update}, {0, 4, 5, use_kind::host_update}};
  const std::vector<std::uint64_t> sizes{100};
  const std::vector<std::uint64_t> room(6, 150);
  std::vector<host_task> tasks{{4, 5, 70, host_task::none}};
  const backend::link_cost link{0, 1e9};
  const std::vector<std::uint8_t> retained{1, 0, 0};
  const step_work work{{ten_each, sizes, uses, retained, room, tasks, link, link, 0}};
  REQUIRE(work.loads().size() == 1);  // for the read, of the weight that the iteration before made
  REQUIRE(work.write_backs().size() == 1);
  const work_piece& load = work.loads()[0];
  CHECK((load.from == 2 - 6 && load.ready == 30 + 100 + 70 - 60));
  CHECK((load.to == 0 && load.due == 0));
  const work_piece& save = work.write_backs()[0];
  CHECK((save.from == 2 && save.ready == 30));
  CHECK((save.to == 6 && save.due == 60 - 100 - 70 && save.leaves == 3));
  const work_piece& update = work.updates()[0];
  CHECK((update.from == 2 && update.ready == 130));
  CHECK((update.to == 6 && update.due == 60 - 100));
  CHECK(work.room()[0] == 50);
  CHECK(work.room()[1] == 50);  // it stays
  CHECK(work.room()[2] == 50);
  CHECK(work.room()[3] == 150);

  tasks[0].after = 3;  // a norm
  const step_work held{{ten_each, sizes, uses, retained, room, tasks, link, link, 0}};
  CHECK((held.updates()[0].from == 3 && held.updates()[0].ready == 40));
  CHECK((held.loads()[0].from == 3 - 6 && held.loads()[0].ready == 40 + 70 - 60));
}

TEST_CASE("a dirty chunk that leaves is written back before it is loaded again", "[step_bound]")
{
  const std::vector<retention_use> uses{{0, 0, 2, use_kind::update}, {0, 3, 4, use_kind::read}};
  const std::vector<std::uint64_t> sizes{100};
  const std::vector<std::uint64_t> room(6, 100);
  const std::vector<std::uint8_t> leaves(2, 0);
  const step_work work{{ten_each, sizes, uses, leaves, room, {}, {7, 1e9}, {0, 0.5e9}, 0}};
  REQUIRE(work.loads().size() == 2);
  REQUIRE(work.write_backs().size() == 1);  // the second time it is clean
  CHECK((work.write_backs()[0].from == 1 && work.write_backs()[0].ready == 20 &&
         work.write_backs()[0].nanoseconds == 200));
  CHECK((work.write_backs()[0].to == 3 && work.write_backs()[0].due == 30 - 107));
  CHECK((work.loads()[0].from == 3 - 6 && work.loads()[0].ready == 40 - 60 && work.loads()[0].nanoseconds == 107));
  CHECK((work.loads()[1].from == 1 && work.loads()[1].ready == 20 + 200 && work.loads()[1].due == 30));
}

TEST_CASE("an iteration whose numbers do not fit each other is refused", "[step_bound]")
{
  const std::vector<retention_use> uses{{0, 0, 1, use_kind::read}, {0, 3, 4, use_kind::read}};
  const std::vector<std::uint64_t> sizes{100};
  const std::vector<std::uint64_t> room(6, 100);
  const std::vector<std::uint8_t> leaves(2, 0);
  const step_input good{ten_each, sizes, uses, leaves, room, {}, {}, {}, 0};
  CHECK_NOTHROW(step_work{good});
  step_input bad = good;
  bad.access_nanoseconds = bad.access_nanoseconds.first(5);
  CHECK_THROWS_AS(step_work{bad}, usage_error);
  bad = good;
  bad.retained = bad.retained.first(1);
  CHECK_THROWS_AS(step_work{bad}, usage_error);
  bad = good;
  const std::vector<std::uint64_t> short_room(6, 99);
  bad.device_bytes = short_room;
  CHECK_THROWS_AS(step_work{bad}, usage_error);
  bad = good;
  const std::vector<host_task> overlapping{{1, 3, 1, host_task::none}, {2, 4, 1, host_task::none}};
  bad.host_tasks = overlapping;
  CHECK_THROWS_AS(step_work{bad}, usage_error);
  const std::vector<host_task> behind{{1, 3, 1, 6}};
  bad.host_tasks = behind;
  CHECK_THROWS_AS(step_work{bad}, usage_error);
  CHECK_THROWS_AS(step_work{step_input{}}, usage_error);
}

TEST_CASE("a task takes the uses of its moments, and a use without one takes no time", "[step_bound]")
{
  const std::array<std::uint64_t, 4> nanoseconds{1, 1, 1, 1};
  const std::array<std::uint64_t, 1> sizes{8};
  const std::array<retention_use, 4> uses{{{0, 0, 1, use_kind::update},
                                           {0, 1, 2, use_kind::host_read},
                                           {0, 2, 3, use_kind::host_update},
                                           {0, 3, 4, use_kind::host_read}}};
  const std::array<std::uint8_t, 4> retained{};
  const std::array<std::uint64_t, 4> room{8, 8, 8, 8};
  const std::array<host_task, 1> tasks{{{1, 3, 100, host_task::none}}};
  const step_work work{{nanoseconds, sizes, uses, retained, room, tasks, {0, 1e9}, {0, 1e9}, 0}};
  REQUIRE(work.updates().size() == 2);
  CHECK(work.updates()[0].nanoseconds == 100);
  CHECK(work.updates()[1].nanoseconds == 0);
}

TEST_CASE("compute is counted through the iterations before and after", "[step_bound]")
{
  const std::array<std::uint64_t, 3> nanoseconds{10, 20, 30};
  const compute_clock clock{nanoseconds};
  CHECK(clock.access_count() == 3);
  CHECK(clock.whole() == 60);
  double expected = -180;
  for (std::int64_t access_index = -9; access_index < 9; ++access_index) {
    CHECK(clock.at(access_index) == expected);
    expected += static_cast<double>(nanoseconds[static_cast<std::size_t>((access_index + 9) % 3)]);
  }
}

TEST_CASE("of what a piece follows the latest moment counts, of what it precedes the earliest time", "[step_bound]")
{
  const std::array<std::uint64_t, 3> nanoseconds{10, 20, 30};
  const compute_clock clock{nanoseconds};
  work_piece it;
  clock.follow(it, -1, 5);
  CHECK((it.from == -1 && it.ready == 5));
  clock.follow(it, -2, 500);  // an earlier access
  CHECK((it.from == -1 && it.ready == 5));
  clock.follow(it, -1, 7);
  CHECK((it.from == -1 && it.ready == 7));
  clock.follow(it, 0, 0);
  CHECK((it.from == 0 && it.ready == 10));
  clock.precede(it, 4, 0);
  CHECK((it.to == 4 && it.due == 70));
  clock.precede(it, 5, 10);
  CHECK((it.to == 4 && it.due == 70));
  clock.precede(it, 5, 50);
  CHECK((it.to == 5 && it.due == 40));
}

}  // namespace step_work_test
