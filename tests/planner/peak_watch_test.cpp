// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/planner/peak_watch.hpp>

#include <chunkmem/planner/training_forecast.hpp>
#include <support/catch.hpp>

#include <cstdint>

namespace peak_watch_test {

using namespace chunkmem;
using namespace chunkmem::planner;

namespace {

/// The part of a manager that a watch uses.
struct pretended {
  std::uint64_t iterations = 0;
  bool is_recorded = false;
  bytes values;
  mutable int looks = 0;

  struct counts {
    std::uint64_t iterations;
  };
  [[nodiscard]] counts report() const { return {iterations}; }
  [[nodiscard]] const int* profile() const { return is_recorded ? &looks : nullptr; }
  [[nodiscard]] residency_snapshot residency() const
  {
    ++looks;
    residency_snapshot now;
    now.frame = 1_KiB;
    now.tiers[tier::device].capacity = 100_KiB;
    now.chunks.resize(1);
    now.chunks[0].place.frames = static_cast<std::uint32_t>(values.count() / 1'024);
    now.chunks[0].place.put(tier::device, frame_id{0}, true);
    return now;
  }
};

}  // namespace

TEST_CASE("a snapshot's bytes are counted by what they are for", "[planner]")
{
  residency_snapshot now;
  now.frame = 1_KiB;
  now.tiers[tier::device].capacity = 100_KiB;
  now.tiers[tier::device].leased = 30_KiB;
  for (const std::uint32_t list : {0U, 0U, 1U, 2U, 4U}) {  // values, gradients, two lists of states
    chunk_snapshot it;
    it.list = list;
    it.place.frames = list + 1;
    it.place.put(tier::device, frame_id{0}, true);
    now.chunks.push_back(it);
  }
  now.chunks[1].place.take_away(tier::device);
  const device_use use = device_use_of(now);
  CHECK(use == device_use{3_KiB, 8_KiB, 30_KiB, 59_KiB});
  CHECK(use.sum() == 100_KiB);
}

TEST_CASE("a watch looks once in an iteration, where the most is leased, and not while recording", "[planner]")
{
  pretended it;
  peak_watch watch;
  device_use found;
  for (const bytes leased : {5_KiB, 9_KiB, 0_KiB, 9_KiB}) watch.see(it, leased, found);
  CHECK(it.looks == 0);
  it.is_recorded = true;
  for (it.iterations = 1; it.iterations < 4; ++it.iterations) {
    it.values = it.iterations * 1_KiB;
    for (const bytes leased : {5_KiB, 9_KiB, 8_KiB}) watch.see(it, leased, found);
    it.values = 50_KiB;
    watch.see(it, 9_KiB, found);
    CHECK(it.looks == static_cast<int>(it.iterations));
    CHECK(found.values == it.iterations * 1_KiB);
  }
  watch.see(it, 10_KiB, found);
  CHECK(found.values == 50_KiB);
}

TEST_CASE("a simulated rank says what its device holds at the peak of its leases", "[planner]")
{
  const workload::transformer_shape shape{workload::transformer_style::gpt, 3, 64, 4, 4, 256, 500, 64, 32, 32, false};
  const workload::rank_share share{1, 1, 900_KiB, 10_MiB, {2e9, 1e9, 5e8, 0, 0, 1e10, 1e8, 1e9}};
  rank_settings settings;
  settings.chunk_elements = 2'048;
  settings.device_context = settings.host_process = bytes{};
  for (const double on_device : {0.0, 1.0}) {
    settings.device_update_share = on_device;
    const training_forecast found = forecast_training(shape, {}, share, settings);
    REQUIRE(found.fits);
    const device_use& use = found.timeline.at_peak;
    CHECK(use.leases == most_leased(found.record, tier::device));
    CHECK(use.sum() == 900_KiB);
    CHECK(use.values > bytes{});
    CHECK(use.values <= found.need.chunks);
    if (on_device == 0) CHECK(use.states == bytes{});
    std::uint64_t held = 0;
    for (const timed_work& it : found.timeline.computing)
      if (it.leased_bytes == use.leases.count()) held = std::max(held, it.device_bytes);
    CHECK((use.sum() - use.free).count() <= held);
  }
}

}  // namespace peak_watch_test
