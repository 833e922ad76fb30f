// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/replay.hpp>

#include <support/catch.hpp>

namespace decision_log_test {

using namespace chunkmem;
using transfer::move;
using transfer::move_kind;

namespace {

bool is(const move& it, std::uint32_t access_index, move_kind kind, std::uint32_t chunk, std::uint64_t place,
        std::uint32_t frames)
{
  return it.access_index == access_index && it.kind == kind && it.chunk == chunk && it.place == place &&
         it.frames == frames;
}

}  // namespace

TEST_CASE("a decision log writes down what was decided and when", "[manager]")
{
  decision_log log;
  const auto chunk_at = [](std::uint32_t device) {
    return chunk{.frames = 2, .first_frame = {{frame_id{device}, frame_id{9}}}};
  };
  log.at(3, 4);
  log.placed(tier::device, frame_id{7}, 2);  // follows from the load
  log.copy(chunk_id{11}, chunk_at(7), tier::host, tier::device);
  log.claimed(chunk_id{12}, chunk_at(8), tier::device);
  log.copy(chunk_id{13}, chunk_at(5), tier::device, tier::host);
  log.evicted(chunk_id{14}, chunk_at(5), tier::device);
  log.discarded(chunk_id{15}, chunk_at(6), tier::device);  // its frames become free, and no plan has to move anything
  log.vacated(tier::device, frame_id{5}, 2, true);         // follows from the eviction
  log.leased(tier::device, 1'024, 512);
  log.at(6, 7);
  log.vacated(tier::device, frame_id{2}, 3, false);
  log.vacated(tier::host, frame_id{2}, 3, false);  // nobody plans host frames
  REQUIRE(log.moves().size() == 6);
  CHECK(is(log.moves()[0], 3, move_kind::load, 11, 7, 2));
  CHECK(is(log.moves()[1], 3, move_kind::claim, 12, 8, 2));
  CHECK(is(log.moves()[2], 3, move_kind::write_back, 13, 5, 2));
  CHECK(is(log.moves()[3], 3, move_kind::evict, 14, 5, 2));
  CHECK(is(log.moves()[4], 3, move_kind::lease, UINT32_MAX, 1'024, 0));
  CHECK(is(log.moves()[5], 7, move_kind::vacate, UINT32_MAX, 2, 3));  // free from the next moment on
  log.clear();
  CHECK(log.moves().empty());
}

}  // namespace decision_log_test
