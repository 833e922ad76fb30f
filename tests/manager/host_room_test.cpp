// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/host_room.hpp>

#include <chunkmem/eviction/lru.hpp>
#include <chunkmem/manager/decision_log.hpp>

#include <support/catch.hpp>

#include <cstdint>
#include <vector>

namespace host_room_test {

namespace cm = chunkmem;

namespace {

/// The host's half alone, with chunks of one frame and of two in a host of `frames` frames.
struct room : cm::host_room<cm::eviction::lru> {
  using base = cm::host_room<cm::eviction::lru>;

  room(std::vector<std::uint32_t> frames_of_chunk, std::uint32_t frames) : base{{}}
  {
    reset(frames_of_chunk, 16);
    space(cm::tier::device).reset(cm::bytes{16 * 256}, cm::bytes{256}, 16);
    space(cm::tier::host).reset(cm::bytes{frames * std::uint64_t{256}}, cm::bytes{256}, frames);
  }

  void home(std::uint32_t at, bool valid)
  {
    take_host_window(at, log);
    chunks_[at].host_valid = valid;
  }

  cm::decision_log log;
};

}  // namespace

TEST_CASE("what a plan wants on the device alone gives up its window first, whatever is in it", "[manager]")
{
  for (const bool windows : {false, true}) {
    const std::uint32_t frames = windows ? 2 : 1;
    room it{std::vector<std::uint32_t>(4, frames), 3 * frames};
    for (std::uint32_t at = 0; at < 3; ++at) {
      it.home(at, at == 2);
      it[at].device = at * frames;
    }
    it[2].device_only = true;
    it.home(3, true);
    CHECK(it[2].host == cm::chunk::nowhere);  // though its copy is good, and those of 0 and 1 are not
    CHECK(it[0].host != cm::chunk::nowhere);
    CHECK(it[1].host != cm::chunk::nowhere);
  }
}

TEST_CASE("single frames come from the bottom of the host and windows from the top", "[manager]")
{
  room it{{1, 2, 1, 2}, 6};
  for (std::uint32_t at = 0; at < 4; ++at) it.home(at, true);
  CHECK(it[0].host == 0);
  CHECK(it[2].host == 1);
  CHECK(it[1].host == 4);
  CHECK(it[3].host == 2);
  CHECK(it.reclaims() == 0);
}

TEST_CASE("a home without bytes is given up before a copy that the device also has", "[manager]")
{
  room it{{1, 1, 1}, 2};
  it.home(0, true);
  it[0].device = 3;
  it.home(1, false);
  it.home(2, true);
  CHECK(it[2].host == 1);
  CHECK(it[1].host == cm::chunk::nowhere);
  CHECK(it[0].host_valid);
  CHECK(it.reclaims() == 1);
  it.home(1, true);  // now the copy of what the device has must go: its chunk lives on the device alone
  CHECK(it[0].host == cm::chunk::nowhere);
  CHECK_FALSE(it[0].host_valid);
}

TEST_CASE("a window is taken where the least is given up, and nothing is where none can be had", "[manager]")
{
  room it{{1, 1, 1, 1, 2}, 4};
  for (std::uint32_t at = 0; at < 4; ++at) it.home(at, true);
  it[0].device = 5;  // a copy
  it[3].host_valid = false;
  CHECK_THROWS_AS(it.home(4, true), cm::out_of_memory);  // frames 0 and 3 may leave, but are no neighbours
  CHECK(it[0].host == 0);
  CHECK(it[3].host == 3);
  it[2].host_valid = false;
  it.home(4, true);
  CHECK(it[4].host == 2);
  CHECK(it[0].host == 0);
}

TEST_CASE("what is pinned on the host stays there", "[manager]")
{
  room it{{1, 1}, 1};
  it.home(0, false);
  it[0].host_pins = 1;
  CHECK_THROWS_AS(it.home(1, true), cm::out_of_memory);
  it[0].host_pins = 0;
  it.home(1, true);
  CHECK(it[1].host == 0);
}

TEST_CASE("a derived chunk takes no frame of the host and has none to give up", "[manager]")
{
  for (const bool device_only : {false, true})
    for (const std::uint32_t frames : {1U, 2U}) {
      room it{std::vector<std::uint32_t>(3, frames), frames};
      it[0].host = cm::chunk::elsewhere;
      it[0].host_valid = true;
      it[0].live = 1;
      it[0].device = 4;
      it[0].device_only = device_only;
      it.home(0, true);
      CHECK(it[0].host == cm::chunk::elsewhere);
      CHECK(it.space(cm::tier::host).pool().is_free(0, frames));
      it.home(1, true);
      CHECK_THROWS_AS(it.home(2, true), cm::out_of_memory);  // 1 has the only copy of its bytes
      it[1].device = 6;
      it.home(2, true);
      CHECK(it.reclaims() == 1);
      CHECK(it[1].host == cm::chunk::nowhere);
      CHECK((it[0].host == cm::chunk::elsewhere && it[0].host_valid));
      it[2].host_pins = 1;
      CHECK_THROWS_AS(it.home(1, true), cm::out_of_memory);  // nor where it is all that could leave
      CHECK((it[0].host == cm::chunk::elsewhere && it[0].host_valid));
    }
}

}  // namespace host_room_test
