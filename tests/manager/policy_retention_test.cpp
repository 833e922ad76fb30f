// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/iteration_planner.hpp>

#include <chunkmem/eviction/policies.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/replay.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace policy_retention_test {

using namespace chunkmem;

namespace {

constexpr std::uint32_t never = access_record::never;

/// Reads of chunks of one frame, one after the other, as belady serves them once and once again.
struct scan {
  scan(const std::vector<std::uint32_t>& chunks_read, std::uint32_t chunks, std::uint32_t frames) : own(chunks)
  {
    std::iota(own.begin(), own.end(), 0U);
    for (const std::uint32_t chunk : chunks_read) {
      record.make_room();
      record.release(record.append({chunk, 0, 0, entry_kind::read, false, 0}, {}));
    }
    record.finish(own, chunks);
    state.reset(std::vector<std::uint32_t>(chunks, 1), chunks);
    state.reset_tier(tier::device, bytes{frames * 256U}, 256_B, frames);
    state.reset_tier(tier::host, bytes{chunks * 256U}, 256_B, chunks);
    for (std::uint32_t index = 0; index < chunks; ++index) {
      state.acquire(slot_id{index}, chunk_id{index}, entry_kind::write_on_host, never, access_index{0}, log);
      state.unpin(tier::host, chunk_id{index}, true);
    }
    run();
  }
  void run()
  {
    state.start_of(record);
    state.tell_policy(record);
    log.clear();
    runner.run(record, own, state, log, true);
  }
  [[nodiscard]] static std::ptrdiff_t retained(const transfer::retention& plan)
  {
    return std::ranges::count_if(plan.retained_until, [](std::uint32_t until) { return until != never; });
  }
  /// At each moment as many chunks stay as there is room for beside the one that is read.
  [[nodiscard]] bool fits(const transfer::retention& plan, std::uint32_t frames) const
  {
    for (std::uint32_t now = 0; now < record.size(); ++now) {
      std::uint32_t held = 1;
      for (std::uint32_t index = 0; index < record.size(); ++index) {
        const std::uint32_t until = plan.retained_until[index];
        if (until != never)
          held += until > index ? (index < now && now < until ? 1U : 0U) : (now > index || now < until ? 1U : 0U);
      }
      if (held > frames) return false;
    }
    return true;
  }

  access_record record;
  std::vector<std::uint32_t> own;
  chunk_cache<eviction::belady> state;
  replay<eviction::belady> runner;
  decision_log log;
};

}  // namespace

TEST_CASE("a scan by belady keeps every frame but one, wherever its last iteration left it", "[manager]")
{
  std::vector<std::uint32_t> order(9);
  std::iota(order.begin(), order.end(), 0U);
  for (std::uint32_t frames = 2; frames < 9; ++frames) {
    scan it{order, 9, frames};
    policy_retention reader;
    for (int round = 0; round < 20; ++round) {
      it.run();
      const transfer::retention plan = reader.of(it.record, it.own, 9, it.log.moves());
      CHECK(scan::retained(plan) == frames - 1);
      CHECK(reader.saved() == frames - 1);
      CHECK(it.fits(plan, frames));
    }
  }
}

TEST_CASE("what stays inside an iteration and around its end is told apart", "[manager]")
{
  scan it{{0, 1, 0, 2, 3, 0}, 4, 2};  // 0 stays always, and the others come and go
  it.run();
  policy_retention reader;
  const transfer::retention plan = reader.of(it.record, it.own, 4, it.log.moves());
  CHECK(std::vector(plan.retained_until.begin(), plan.retained_until.end()) ==
        std::vector<std::uint32_t>{2, never, 5, never, never, 0});
  CHECK(std::vector(plan.first_use.begin(), plan.first_use.end()) ==
        std::vector<std::uint32_t>{0, never, never, never});
}

TEST_CASE("chunks that nothing moved stay until each of their uses", "[manager]")
{
  scan it{{0, 1, 2, 1, 0}, 3, 3};
  it.run();
  policy_retention reader;
  const transfer::retention plan = reader.of(it.record, it.own, 3, it.log.moves());
  CHECK(scan::retained(plan) == 5);
}

}  // namespace policy_retention_test
