// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/chunk_table.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <vector>

namespace frame_reclaim_test {

namespace cm = chunkmem;

namespace {

/// Chunks and a host of `frames` frames. The test plays the cache: it places chunks and gives frames up.
struct host_tier {
  host_tier(std::vector<std::uint32_t> frames_of_chunk, std::uint32_t frames)
  {
    table.reset(frames_of_chunk, 16);
    table.space(cm::tier::host).reset(cm::bytes{frames * std::uint64_t{256}}, cm::bytes{256}, frames);
  }

  cm::chunk& operator[](std::uint32_t index) { return table[cm::chunk_id{index}]; }

  /// The chunk gets frames, and a copy of its bytes or none.
  void place(std::uint32_t index, bool valid)
  {
    const cm::chunk_id id{index};
    const cm::frame_id first = reclaim.find_frames(table, id, [this](cm::chunk_id victim) { leave(victim); });
    table.space(cm::tier::host).place(id, first, table[id].frames);
    table[id].put(cm::tier::host, first, valid);
  }

  void leave(cm::chunk_id id)
  {
    ++reclaims;
    table.space(cm::tier::host).vacate(table[id].first_frame[cm::tier::host], table[id].frames);
    table[id].take_away(cm::tier::host);
  }

  cm::chunk_table table;
  cm::frame_reclaim reclaim{cm::tier::host};
  int reclaims = 0;
};

}  // namespace

TEST_CASE("what a plan wants on the device alone gives up its window first, whatever is in it", "[manager]")
{
  for (const bool windows : {false, true}) {
    const std::uint32_t frames = windows ? 2 : 1;
    host_tier it{std::vector<std::uint32_t>(4, frames), 3 * frames};
    for (std::uint32_t index = 0; index < 3; ++index) {
      it.place(index, index == 2);
      it[index].put(cm::tier::device, cm::frame_id{index * frames}, true);
    }
    it[2].keep_on_device(true);
    it.place(3, true);
    CHECK(it[2].first_frame[cm::tier::host] ==
          cm::chunk::nowhere);  // though its copy is good, and those of 0 and 1 are not
    CHECK(it[0].first_frame[cm::tier::host] != cm::chunk::nowhere);
    CHECK(it[1].first_frame[cm::tier::host] != cm::chunk::nowhere);
  }
}

TEST_CASE("single frames come from the bottom of the host and windows from the top", "[manager]")
{
  host_tier it{{1, 2, 1, 2}, 6};
  for (std::uint32_t index = 0; index < 4; ++index) it.place(index, true);
  CHECK(it[0].first_frame[cm::tier::host] == cm::frame_id{0});
  CHECK(it[2].first_frame[cm::tier::host] == cm::frame_id{1});
  CHECK(it[1].first_frame[cm::tier::host] == cm::frame_id{4});
  CHECK(it[3].first_frame[cm::tier::host] == cm::frame_id{2});
  CHECK(it.reclaims == 0);
}

TEST_CASE("a host copy without bytes is given up before a copy that the device also has", "[manager]")
{
  host_tier it{{1, 1, 1}, 2};
  it.place(0, true);
  it[0].put(cm::tier::device, cm::frame_id{3}, true);
  it.place(1, false);
  it.place(2, true);
  CHECK(it[2].first_frame[cm::tier::host] == cm::frame_id{1});
  CHECK(it[1].first_frame[cm::tier::host] == cm::chunk::nowhere);
  CHECK(it[0].is_valid(cm::tier::host));
  CHECK(it.reclaims == 1);
  it.place(1, true);  // now the copy of what the device has must go: its chunk lives on the device alone
  CHECK(it[0].first_frame[cm::tier::host] == cm::chunk::nowhere);
  CHECK_FALSE(it[0].is_valid(cm::tier::host));
}

TEST_CASE("a window is taken where the least is given up, and nothing is where none can be had", "[manager]")
{
  host_tier it{{1, 1, 1, 1, 2}, 4};
  for (std::uint32_t index = 0; index < 4; ++index) it.place(index, true);
  it[0].put(cm::tier::device, cm::frame_id{5}, true);  // a copy
  it[3].set_valid(cm::tier::host, false);
  CHECK_THROWS_AS(it.place(4, true), cm::out_of_memory);  // frames 0 and 3 may leave, but are no neighbours
  CHECK(it[0].first_frame[cm::tier::host] == cm::frame_id{0});
  CHECK(it[3].first_frame[cm::tier::host] == cm::frame_id{3});
  it[2].set_valid(cm::tier::host, false);
  it.place(4, true);
  CHECK(it[4].first_frame[cm::tier::host] == cm::frame_id{2});
  CHECK(it[0].first_frame[cm::tier::host] == cm::frame_id{0});
}

TEST_CASE("what is pinned on the host stays there", "[manager]")
{
  host_tier it{{1, 1}, 1};
  it.place(0, false);
  it[0].pins[cm::tier::host] = 1;
  CHECK_THROWS_AS(it.place(1, true), cm::out_of_memory);
  it[0].pins[cm::tier::host] = 0;
  it.place(1, true);
  CHECK(it[1].first_frame[cm::tier::host] == cm::frame_id{0});
}

TEST_CASE("a derived chunk has no frames on the host to give up", "[manager]")
{
  for (const bool device_only : {false, true})
    for (const std::uint32_t frames : {1U, 2U}) {
      host_tier it{std::vector<std::uint32_t>(3, frames), frames};
      it[0].first_frame[cm::tier::host] = cm::chunk::elsewhere;
      it[0].set_valid(cm::tier::host, true);
      it[0].live = 1;
      it[0].put(cm::tier::device, cm::frame_id{4}, true);
      it[0].keep_on_device(device_only);
      it.place(1, true);
      CHECK_THROWS_AS(it.place(2, true), cm::out_of_memory);  // 1 has the only copy of its bytes
      it[1].put(cm::tier::device, cm::frame_id{6}, true);
      it.place(2, true);
      CHECK(it.reclaims == 1);
      CHECK(it[1].first_frame[cm::tier::host] == cm::chunk::nowhere);
      CHECK((it[0].first_frame[cm::tier::host] == cm::chunk::elsewhere && it[0].is_valid(cm::tier::host)));
      it[2].pins[cm::tier::host] = 1;
      CHECK_THROWS_AS(it.place(1, true), cm::out_of_memory);  // nor where it is all that could leave
      CHECK((it[0].first_frame[cm::tier::host] == cm::chunk::elsewhere && it[0].is_valid(cm::tier::host)));
    }
}

}  // namespace frame_reclaim_test
