// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/chunk_table.hpp>

#include <support/catch.hpp>

#include <vector>

namespace chunk_table_test {

namespace cm = chunkmem;

namespace {

cm::chunk_table table_of(std::vector<std::uint32_t> frames)
{
  cm::chunk_table table;
  table.reset(frames, 8);
  table.space(cm::tier::device).reset(cm::bytes{4 * 256}, cm::bytes{256}, 4);
  table.space(cm::tier::host).reset(cm::bytes{6 * 256}, cm::bytes{256}, 6);
  return table;
}

}  // namespace

TEST_CASE("a table of chunks starts empty, with the windows it was given", "[manager]")
{
  const cm::chunk_table table = table_of({1, 3, 2});
  REQUIRE(table.chunks() == 3);
  CHECK((table.has(cm::chunk_id{2}) && !table.has(cm::chunk_id{3}) && !table.has(cm::tier_space::leased_frame)));
  CHECK(table[cm::chunk_id{1}].frames == 3);
  for (const cm::chunk_id each : table.chunk_ids()) {
    CHECK_FALSE(table[each].has_frames(cm::tier::device));
    CHECK(table[each].live == 0);
  }
  for (const cm::slot_id slot : cm::ids<cm::slot_id>(8)) CHECK_FALSE(table.is_live(slot));
}

TEST_CASE("a copy may leave when no pin and no byte is lost with it", "[manager]")
{
  cm::chunk_table table = table_of({1});
  CHECK(table.may_leave(cm::tier::device, cm::chunk_id{0}));
  table[cm::chunk_id{0}].pins[cm::tier::device] = 1;
  CHECK_FALSE(table.may_leave(cm::tier::device, cm::chunk_id{0}));
  table[cm::chunk_id{0}].pins[cm::tier::device] = 0;

  table[cm::chunk_id{0}].put(cm::tier::host, cm::frame_id{0}, true);
  CHECK_FALSE(table.may_leave(cm::tier::host, cm::chunk_id{0}));  // the only copy
  table[cm::chunk_id{0}].put(cm::tier::device, cm::frame_id{2}, true);
  CHECK(table.may_leave(cm::tier::host, cm::chunk_id{0}));  // the device has it too
  table[cm::chunk_id{0}].pins[cm::tier::host] = 1;
  CHECK_FALSE(table.may_leave(cm::tier::host, cm::chunk_id{0}));
  table[cm::chunk_id{0}].pins[cm::tier::host] = 0;
  table[cm::chunk_id{0}].take_away(cm::tier::device);
  table[cm::chunk_id{0}].set_valid(cm::tier::host, false);
  CHECK(table.may_leave(cm::tier::host, cm::chunk_id{0}));  // a host copy without bytes
}

TEST_CASE("a shortage counts pinned chunks and leases, and cannot wrap", "[manager]")
{
  cm::chunk_table table = table_of({1, 2});
  table[cm::chunk_id{1}].put(cm::tier::device, cm::frame_id{0}, true);
  table[cm::chunk_id{1}].pins[cm::tier::device] = 3;
  table.space(cm::tier::device).take_lease(512, 256);
  const cm::memory_shortage it = table.shortage(cm::tier::device, 1024);
  CHECK(it.where == cm::tier::device);
  CHECK(it.capacity == 1024);
  CHECK(it.pinned == 2 * 256 + 256);
  CHECK(it.needed == it.pinned + 1024);
  CHECK(table.shortage(cm::tier::device, UINT64_MAX - 1).needed == UINT64_MAX);
  CHECK(table.shortage(cm::tier::host, 1).pinned == 0);
}

TEST_CASE("a derived chunk is not what the host is short of", "[manager]")
{
  cm::chunk_table table = table_of({1, 2, 1});
  for (const std::uint32_t index : {0U, 1U}) {
    table[cm::chunk_id{index}].set_valid(cm::tier::host, true);
    table[cm::chunk_id{index}].live = 1;
    table[cm::chunk_id{index}].pins[cm::tier::host] = 1;
  }
  table[cm::chunk_id{0}].first_frame[cm::tier::host] = cm::frame_id{0};
  table[cm::chunk_id{1}].first_frame[cm::tier::host] = cm::chunk::elsewhere;
  CHECK(table.shortage(cm::tier::host, 256).pinned == 256);
  table[cm::chunk_id{1}].put(cm::tier::device, cm::frame_id{2}, true);
  table[cm::chunk_id{1}].pins[cm::tier::device] = 1;
  CHECK(table.shortage(cm::tier::device, 256).pinned == 2 * 256);  // there it is like any other
}

TEST_CASE("two tables have the same places whatever their next uses are", "[manager]")
{
  cm::chunk_table left = table_of({1, 1});
  cm::chunk_table right = table_of({1, 1});
  left[cm::chunk_id{0}].next_use = 7;
  CHECK(left.same_places(right));
  left[cm::chunk_id{0}].pins[cm::tier::device] = 1;
  CHECK_FALSE(left.same_places(right));
  left[cm::chunk_id{0}].pins[cm::tier::device] = 0;
  right.space(cm::tier::host).place(cm::chunk_id{1}, cm::frame_id{2}, 1);
  CHECK_FALSE(left.same_places(right));
  right.space(cm::tier::host).vacate(cm::frame_id{2}, 1);
  CHECK(left.same_places(right));
  right.set_live(cm::slot_id{5}, true);
  CHECK_FALSE(left.same_places(right));
  right.exchange_live(cm::slot_id{5}, cm::slot_id{6});
  CHECK((!right.is_live(cm::slot_id{5}) && right.is_live(cm::slot_id{6})));
}

}  // namespace chunk_table_test
