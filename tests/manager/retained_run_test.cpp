// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/replay.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/transfer/policies.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/stays.hpp>
#include <conformance/transfer_policy.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace retained_run_test {

using namespace chunkmem;

namespace {

/// Random wishes: which chunk stays behind which use, whether there is room or not.
class wisher {
 public:
  transfer::retention roll(const support::random_iteration& it, const tier_space& device, support::dice& dice)
  {
    uses_.read(it.record, it.chunk_of_slot, it.chunks(), it.filled);
    if (!tide_.read(it.record, bytes{device.capacity()}, bytes{device.frame_bytes()})) return {};
    retained_.assign(uses_.uses().size(), 0);
    const std::uint32_t share = dice.between(1, 4);
    for (std::uint8_t& each : retained_) each = dice.one_in(share) ? 1 : 0;
    transfer::retention wanted = links_.link(uses_, retained_, tide_, it.record.size());
    early_.clear();
    for (std::uint32_t chunk = 0; chunk < it.chunks() && it.record.size() > 0; ++chunk)
      if (dice.one_in(3))
        early_.push_back(
            {chunk, dice.below(it.record.size()), dice.below(it.record.size()), dice.below(device.frames() + 2)});
    wanted.early = early_;
    places_.clear();
    for (std::uint32_t index = 0; index < it.record.size() && dice.one_in(2); ++index)  // none, some, all
      places_.push_back(dice.one_in(4) ? UINT32_MAX : dice.below(device.frames() + 2));
    if (dice.one_in(2)) places_.resize(it.record.size(), UINT32_MAX);
    for (std::uint32_t& each : places_)
      if (each == UINT32_MAX && dice.one_in(2)) each = dice.below(device.frames());
    wanted.places = places_;
    return wanted;
  }

 private:
  transfer::record_uses uses_;
  transfer::lease_tide tide_;
  transfer::stay_links links_;
  std::vector<std::uint8_t> retained_;
  std::vector<transfer::early_load> early_;
  std::vector<std::uint32_t> places_;
};

}  // namespace

TEST_CASE("whatever a plan wishes, its run can be followed and every read finds its bytes", "[manager]")
{
  int followed = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    support::dice dice{seed};
    conformance::demand_run run;
    const support::iteration_traits traits{.entries = dice.between(1, 60), .longest_chunk = dice.between(1, 3)};
    if (!conformance::roll_demand(seed, traits, dice.one_in(3), run)) continue;
    wisher wishes;
    const transfer::retention wanted = wishes.roll(run.iteration, run.start.space(tier::device), dice);
    if (wanted.retained_until.empty()) continue;
    retained_run planned;
    planned.start(run.start.table(), wanted);
    if (!planned.run(run.iteration.record, run.iteration.chunk_of_slot)) continue;  // it wished for too much
    run.demand.assign(planned.log().moves().begin(), planned.log().moves().end());
    run.end.take_places(planned.state().table());
    for (const bool early : {false, true}) {
      conformance::moves actions;
      transfer::lookahead{}.schedule(run.input(early && planned.state().reclaims() == 0), actions);
      const std::string wrong = conformance::mistake_when_followed(run, actions);
      if (!wrong.empty()) FAIL("seed " << seed << ": " << wrong);
    }
    ++followed;
  }
  CHECK(followed > 100);
}

TEST_CASE("a run copies what its log says, once it has settled", "[manager]")
{
  support::record_builder build;  // three chunks in a ring, room for two: one stays for ever, two are loaded each time
  for (int round = 0; round < 2; ++round)
    for (std::uint32_t index = 0; index < 3; ++index) build.brief(index);
  const std::vector<std::uint32_t> own{0, 1, 2};
  const access_record record = build.finish(own, 3);
  const support::random_iteration it{{1, 1, 1}, own, {1, 1, 1}, record};
  auto state = support::cache_for<eviction::belady>(it, 2, 3);
  decision_log log;
  for (std::uint32_t index = 0; index < 3; ++index) {
    state.acquire(slot_id{index}, chunk_id{index}, entry_kind::write_on_host, access_record::never, access_index{0},
                  log);
    state.unpin(tier::host, chunk_id{index}, true);
  }
  transfer::record_uses uses;
  uses.read(record, own, 3, state.table().live());
  transfer::lease_tide tide;
  REQUIRE(tide.read(record, bytes{2 * support::frame_bytes}, bytes{support::frame_bytes}));
  transfer::stay_links links;
  const std::vector<std::uint8_t> retained{1, 0, 0, 1, 0, 0};
  retained_run planned;
  planned.start(state.table(), links.link(uses, retained, tide, record.size()));
  CHECK(planned.frames_moved(record, own) == 8U);  // two iterations of four loads
  const std::vector<std::uint8_t> nothing{0, 0, 0, 0, 0, 0};
  planned.start(state.table(), links.link(uses, nothing, tide, record.size()));
  CHECK(planned.frames_moved(record, own) == 12U);  // what nobody keeps leaves in the order in which it was let go of
}

TEMPLATE_TEST_CASE("a host without room for all tensors: the plan's bytes are copied, and every value is right",
                   "[manager]", chunkmem::backend::host_arena, support::adversarial)
{
  constexpr std::uint32_t tensors = 14;
  constexpr std::uint32_t elements = 128;  // a frame each
  using manager_type = chunkmem::manager<TestType, chunkmem::transfer::planned>;
  TestType memory{{.device_capacity = 8 * 512_B, .host_capacity = 9 * 512_B}};
  manager_type m{memory, {.chunk_bytes = 512_B}};
  std::vector<tensor<float>> all;
  for (std::uint32_t index = 0; index < tensors; ++index)
    all.push_back(m.template add<float>({elements}, role::buffer));
  std::vector<float> expected(tensors);
  for (std::uint32_t index = 0; index < tensors; ++index) {
    auto pin = m.acquire(all[index], access::write);
    for (float& it : pin.span()) it = expected[index] = static_cast<float>(index);
  }
  report before;
  for (int step = 0; step < 8; ++step) {
    before = m.report();
    auto scope = m.iteration();
    for (std::uint32_t index = 0; index < tensors; ++index) {
      const bool reads = index % 3 == 0;
      auto pin = m.acquire(all[index], reads ? access::read : access::read_write);
      for (const float it : pin.span()) REQUIRE(it == expected[index]);
      if (reads) continue;
      expected[index] += 1;
      for (float& it : pin.writable()) it += 1;
    }
  }
  const transfer::stored_plan plan = m.plan();
  CHECK(std::ranges::count(plan.device_only, 1) >= 5);
  CHECK(plan.bound_bytes <= plan.moved_bytes);
  const report last = m.report().copies_since(before);
  CHECK(last.loaded.count() + last.written_back.count() == plan.moved_bytes);
  CHECK(m.report().divergences == 0);
}

TEST_CASE("a run in planned frames settles there from any start", "[manager]")
{
  support::record_builder build;
  for (const std::uint32_t chunk : {0U, 1U, 2U}) build.brief(chunk);
  const std::vector<std::uint32_t> own{0, 1, 2};
  const access_record record = build.finish(own, 3);
  const support::random_iteration it{{1, 2, 1}, own, {1, 1, 1}, record};
  transfer::record_uses uses;
  uses.read(record, own, 3, it.filled);
  transfer::lease_tide tide;
  REQUIRE(tide.read(record, bytes{4 * support::frame_bytes}, bytes{support::frame_bytes}));
  transfer::stay_links links;
  const std::vector<std::uint8_t> retained{1, 1, 1};  // all stay for ever
  transfer::retention wanted = links.link(uses, retained, tide, record.size());
  const std::vector<std::uint32_t> places{3, 0, 2};
  wanted.places = places;
  std::vector<std::uint32_t> order{0, 1, 2};
  do {
    auto state = support::cache_for<eviction::belady>(it, 4, 4);
    decision_log log;
    for (const std::uint32_t index : order) {
      state.acquire(slot_id{index}, chunk_id{index}, entry_kind::write_on_host, access_record::never, access_index{0},
                    log);
      state.unpin(tier::host, chunk_id{index}, true);
      state.acquire(slot_id{index}, chunk_id{index}, entry_kind::read, access_record::never, access_index{0}, log);
      state.unpin(tier::device, chunk_id{index}, false);
    }
    retained_run planned;
    planned.start(state.table(), wanted);
    REQUIRE(planned.run(record, own));
    for (const std::uint32_t index : own)
      CHECK(planned.state()[chunk_id{index}].first_frame[tier::device] == frame_id{places[index]});
    CHECK(planned.frames_moved(record, own) == 0U);
  } while (std::ranges::next_permutation(order).found);
}

TEST_CASE("a run that does not fit moves nothing", "[manager]")
{
  support::record_builder build;
  build.access(0, entry_kind::write);
  build.access(1, entry_kind::write);
  const std::vector<std::uint32_t> own{0, 1};
  const access_record record = build.finish(own, 2);
  const support::random_iteration it{{1, 1}, own, {0, 0}, record};
  retained_run planned;
  const std::vector<std::uint32_t> never(2, access_record::never);
  planned.start(support::cache_for<eviction::belady>(it, 1, 2).table(), {never, never, never});
  CHECK_FALSE(planned.frames_moved(record, own).has_value());
}

}  // namespace retained_run_test
