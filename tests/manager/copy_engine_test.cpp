#include <chunkmem/manager/copy_engine.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/listening_backend.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

namespace copy_engine_test {

using namespace chunkmem;
using support::call;
using support::listening_backend;

namespace {

struct list_sink {
  using policy_kind = sink_kind;
  static constexpr std::string_view name = "list_sink";
  std::vector<trace_event>* seen;
  void record(const trace_event& event) noexcept { seen->push_back(event); }
};

constexpr std::uint64_t frame_size = 1'024;

/// Six frames in each tier, and chunks of one, two and one frames.
template <class Sink = trace::null_sink>
struct set_up {
  explicit set_up(Sink sink = {}) : copies{backend, health, copy_mover{}, sink}
  {
    const std::vector<std::uint64_t> used{1'000, 1'500, 256};
    copies.reset(used, frame_size, {{device.data(), host.data(), nullptr}}, {{6, 6, 0}});
  }
  listening_backend backend;
  std::array<std::byte, 7 * frame_size> device{};
  std::array<std::byte, 7 * frame_size> host{};
  device_health health;
  copy_engine<listening_backend, copy_mover, Sink> copies;
};

}  // namespace

TEST_CASE("a copy moves the used bytes of its chunk between its windows", "[manager]")
{
  set_up it;
  it.copies.load(1, chunk{.frames = 2, .host = 4}, 3);
  it.copies.write_back(0, chunk{.frames = 1, .device = 2, .host = 5});
  it.copies.evicted(0, chunk{});
  std::vector<call> copies;
  std::copy_if(it.backend.heard.begin(), it.backend.heard.end(), std::back_inserter(copies),
               [](const call& heard) { return heard.what == call::kind::copy; });
  REQUIRE(copies.size() == 2);
  CHECK(copies[0] == support::copied(agent::to_device, &it.device[3 * frame_size], &it.host[4 * frame_size], 1'500));
  CHECK(copies[1] == support::copied(agent::to_host, &it.host[5 * frame_size], &it.device[2 * frame_size], 1'000));
  report told;
  it.copies.describe(told);
  CHECK((told.loads == 1 && told.loaded == bytes{1'500} && told.write_backs == 1 && told.written_back == bytes{1'000}));
  CHECK((told.evictions == 1 && told.waits.throttle == 7));
}

TEST_CASE("a copy follows the writers of its source and all users of its target, and both see it", "[manager]")
{
  set_up it;
  auto& keeper = it.copies.keeper();
  const std::uint64_t written = it.backend.work(agent::compute);
  keeper.stamp(agent::compute, it.copies.fence_at(tier::device, 2), true);
  it.copies.write_back(0, chunk{.frames = 1, .device = 2, .host = 5});
  CHECK(it.backend.knows(agent::to_host, agent::compute) >= written);
  const std::uint64_t copied = it.backend.knows(agent::to_host, agent::to_host);
  it.copies.load(2, chunk{.frames = 1, .host = 5}, 2);  // out of what was written, over what was read
  CHECK(it.backend.knows(agent::to_device, agent::to_host) >= copied);
  keeper.follow(agent::compute, it.copies.fence_at(tier::device, 2), it.copies.fence_at(tier::device, 2).writers, wait_cause::other);
  CHECK(it.backend.knows(agent::compute, agent::to_device) >= 1);
}

TEST_CASE("windows that open and close forget no use of any frame", "[manager]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice dice{seed};
    set_up it;
    std::vector<std::set<std::uint64_t>> used(6);  // work of the compute stream on each frame
    std::vector<std::pair<std::uint32_t, std::uint32_t>> windows;
    std::vector<bool> taken(6, false);
    for (int step = 0; step < 60; ++step) {
      const std::uint32_t first = dice.below(6);
      const std::uint32_t count = std::min(dice.between(1, 3), 6 - first);
      const bool is_free = std::none_of(taken.begin() + first, taken.begin() + first + count, [](bool held) { return held; });
      if (is_free && dice.one_in(2)) {
        it.copies.placed(tier::device, first, count);
        windows.emplace_back(first, count);
        std::fill_n(taken.begin() + first, count, true);
      } else if (!windows.empty() && dice.one_in(2)) {
        std::swap(dice.pick(windows), windows.back());
        const auto [begin, length] = windows.back();
        windows.pop_back();
        it.copies.vacated(tier::device, begin, length, true);
        std::fill_n(taken.begin() + begin, length, false);
      } else if (!windows.empty()) {
        const auto [begin, length] = dice.pick(windows);
        const std::uint64_t number = it.backend.work(agent::compute);
        it.copies.keeper().stamp(agent::compute, it.copies.fence_at(tier::device, begin), true);
        for (std::uint32_t frame = begin; frame < begin + length; ++frame) used[frame].insert(number);
      }
    }
    for (const auto& [begin, length] : windows) it.copies.vacated(tier::device, begin, length, true);
    for (std::uint32_t frame = 0; frame < 6; ++frame) {
      fence& last = it.copies.fence_at(tier::device, frame);
      it.copies.keeper().follow(agent::to_device, last, last.users, wait_cause::other);
      if (!used[frame].empty() && it.backend.knows(agent::to_device, agent::compute) < *used[frame].rbegin())
        FAIL("seed " << seed << ": a use of frame " << frame << " was forgotten");
    }
  }
}

TEST_CASE("a lease meets the fence of each frame it touches and of the rest behind the last", "[manager]")
{
  set_up it;
  const auto met = [&](std::uint64_t begin, std::uint64_t size) {
    std::set<std::ptrdiff_t> frames;
    const fence* const base = &it.copies.fence_at(tier::device, 0);
    it.copies.for_lease(tier::device, begin, size, [&](fence& each) { frames.insert(&each - base); });
    return frames;
  };
  using frames = std::set<std::ptrdiff_t>;
  CHECK(met(0, 256) == frames{0});
  CHECK(met(768, 256) == frames{0});
  CHECK(met(768, 257) == frames{0, 1});
  CHECK(met(1'024, 2'048) == frames{1, 2});
  CHECK(met(5 * 1'024, 2'000) == frames{5, 6});
  CHECK(met(6 * 1'024, 256) == frames{6});
  CHECK(met(8 * 1'024, 256) == frames{6});  // any of the rest is one fence
  CHECK(met(0, 7 * 1'024) == frames{0, 1, 2, 3, 4, 5, 6});
  CHECK(it.copies.address(tier::host, 2) == &it.host[2 * frame_size]);
  CHECK(it.copies.lease_address(tier::device, 768) == &it.device[768]);
}

TEST_CASE("a sink sees each copy with its chunk and bytes", "[manager]")
{
  std::vector<trace_event> seen;
  set_up<list_sink> it{list_sink{&seen}};
  it.copies.load(2, chunk{.frames = 1, .host = 0}, 1);
  it.copies.write_back(1, chunk{.frames = 2, .device = 2, .host = 3});
  it.copies.evicted(1, chunk{});
  it.copies.leased(tier::device, 0, 512);
  REQUIRE(seen.size() == 4);
  CHECK((seen[0].what == happening::load && seen[0].chunk == chunk_id{2} && seen[0].bytes == 256));
  CHECK((seen[0].from == tier::host && seen[0].to == tier::device));
  CHECK((seen[1].what == happening::write_back && seen[1].chunk == chunk_id{1} && seen[1].bytes == 1'500));
  CHECK((seen[1].from == tier::device && seen[1].to == tier::host));
  CHECK(seen[2].what == happening::evict);
  CHECK((seen[3].what == happening::lease && seen[3].bytes == 512));
}

TEST_CASE("a copy that cannot be started is not counted", "[manager]")
{
  set_up it;
  it.backend.fail_in = 0;
  CHECK_THROWS_AS(it.copies.load(0, chunk{.frames = 1, .host = 0}, 0), device_error);
  report told;
  it.copies.describe(told);
  CHECK((told.loads == 0 && told.loaded == bytes{0}));
}

TEST_CASE("after a replay everything was used by compute, and its copies are counted", "[manager]")
{
  set_up it;
  report moved;
  moved.loads = 3;
  moved.loaded = bytes{3'000};
  moved.write_backs = 2;
  moved.written_back = bytes{512};
  moved.evictions = 1;
  it.copies.replayed(moved);
  it.copies.replayed(moved);
  for (const tier where : {tier::device, tier::host}) {
    for (std::uint32_t frame = 0; frame <= 6; ++frame) {
      const std::size_t before = it.backend.heard.size();
      it.copies.keeper().follow(agent::to_host, it.copies.fence_at(where, frame), it.copies.fence_at(where, frame).writers, wait_cause::other);
      const bool waited = it.backend.heard.size() > before;
      CHECK(waited == (where == tier::device && frame == 0));  // one event covers them all
      CHECK(it.copies.fence_at(where, frame).writers != 0);
    }
  }
  report told;
  it.copies.describe(told);
  CHECK((told.loads == 6 && told.loaded == bytes{6'000} && told.write_backs == 4 && told.written_back == bytes{1'024}));
  CHECK(told.evictions == 2);
}

}  // namespace copy_engine_test
