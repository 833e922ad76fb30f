// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/device_room.hpp>

#include <chunkmem/eviction/cost_aware.hpp>
#include <chunkmem/manager/decision_log.hpp>
#include <support/catch.hpp>
#include <support/oracles/record_builder.hpp>

#include <cstdint>
#include <vector>

namespace device_room_test {

namespace cm = chunkmem;

namespace {

constexpr std::uint32_t frames = 4;
constexpr std::uint64_t frame_bytes = 256;

/// The device's half alone: chunks of one frame in four frames, and a record whose leases reach the upper two.
struct room : cm::device_room<cm::eviction::cost_aware> {
  using base = cm::device_room<cm::eviction::cost_aware>;

  explicit room(std::uint64_t leased, bool wanted_on_host = true) : base{{}}
  {
    start_over();
    support::record_builder build;
    if (leased > 0) build.release(build.lease(cm::entry_kind::lease_device, leased));
    for (std::uint32_t at = 0; at < 5; ++at) build.brief(at);
    record_ = build.finish({0, 1, 2, 3, 4}, 5);
    expect_leases(record_);
    chunks_[1].left_for_host = wanted_on_host;
  }

  /// Nothing lies on the device, and each chunk has a window on the host.
  void start_over()
  {
    reset(std::vector<std::uint32_t>(5, 1), 5);
    space(cm::tier::device).reset(cm::bytes{frames * frame_bytes}, cm::bytes{frame_bytes}, frames);
    space(cm::tier::host).reset(cm::bytes{5 * frame_bytes}, cm::bytes{frame_bytes}, 5);
    for (std::uint32_t at = 0; at < 5; ++at) take_host_window(at, log);
  }

  /// The chunk lies in a frame, and its next use is known.
  void put(std::uint32_t at, std::uint32_t frame, std::uint32_t next_use, bool host_valid)
  {
    space(cm::tier::device).place(at, frame, 1);
    chunks_[at].device = frame;
    chunks_[at].next_use = next_use;
    chunks_[at].host_valid = host_valid;
    chunks_[at].live = 1;
    candidates_.tell(record_, chunks_);
  }
  void loses_its_window(std::uint32_t at) { leave_host(at, log); }
  std::uint32_t next_frame() { return make_room(1, cm::moment{0}, log); }

  cm::access_record record_;
  cm::decision_log log;
};

constexpr std::uint32_t never = cm::access_record::never;

}  // namespace

TEST_CASE("a frame that leases come down to is spared where a chunk below leaves at no price", "[manager]")
{
  for (const bool host_valid : {true, false}) {
    room it{2 * frame_bytes};
    it.put(0, 0, 3, true);
    it.put(1, 1, never, host_valid);
    CHECK(it.next_frame() == 1);
    CHECK_FALSE(it[1].on_device());
    CHECK(it[1].host_valid);
    CHECK(it[0].on_device());
  }
}

TEST_CASE("a free frame is taken where leases never come, or nothing below leaves at no price", "[manager]")
{
  room without_leases{0};
  without_leases.put(0, 0, never, true);
  without_leases.put(1, 1, never, true);
  CHECK(without_leases.next_frame() == 2);

  room below_them{frame_bytes};
  below_them.put(0, 0, never, true);
  CHECK(below_them.next_frame() == 1);

  room loaded_again{2 * frame_bytes};
  loaded_again.put(0, 0, 3, true);
  loaded_again.put(1, 1, 4, true);
  CHECK(loaded_again.next_frame() == 2);

  room above{2 * frame_bytes};
  above.put(0, 0, 3, true);
  above.put(1, 1, 4, true);
  above.put(2, 3, never, true);
  CHECK(above.next_frame() == 2);

  room overwritten_later{2 * frame_bytes, false};
  overwritten_later.put(0, 0, 3, true);
  overwritten_later.put(1, 1, never, false);
  CHECK(overwritten_later.next_frame() == 2);

  room without_window{2 * frame_bytes};
  without_window.put(0, 0, 3, true);
  without_window.put(1, 1, never, false);
  without_window.loses_its_window(1);
  CHECK(without_window.next_frame() == 2);
  CHECK(without_window[1].on_device());
}

TEST_CASE("a reset forgets the leases that were expected", "[manager]")
{
  room it{2 * frame_bytes};
  it.start_over();
  it.put(0, 0, 3, true);
  it.put(1, 1, never, true);
  CHECK(it.next_frame() == 2);
  CHECK(it[1].on_device());
}

}  // namespace device_room_test
