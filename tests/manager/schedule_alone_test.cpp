// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/gathered_chunks.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <chunkmem/manager/replay.hpp>
#include <chunkmem/manager/schedule.hpp>
#include <chunkmem/manager/slot_states.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/catch.hpp>

#include <cstdint>

namespace schedule_alone_test {

namespace cm = chunkmem;
using namespace cm::literals;

namespace {

/// Copies that move nothing.
struct silent_copies : cm::decision_log {
  void note(cm::trace_event_kind, cm::tier, std::uint64_t) noexcept {}
};

/// The parts that a schedule refers to, without a manager: weights of a frame each, and no bytes.
struct parts {
  using states = cm::slot_states<cm::training_rules>;

  explicit parts(std::uint32_t weights, std::uint64_t device)
  {
    for (std::uint32_t index = 0; index < weights; ++index)
      tensors.add({1024}, cm::dtype::float32, cm::role::parameter, cm::group_id{0});
    tensors.seal(cm::append_layout{}, 4_KiB);
    const cm::gathered_chunks none;
    cm::model_frames{tensors, none, 4_KiB}.lay_out(
        chunks, {{cm::bytes{device * 4096}, cm::bytes{std::uint64_t{weights} * 2 * 4096}}});
    for (std::uint32_t index = 0; index < weights; ++index) use(cm::slot_id{index}, cm::entry_kind::write);
  }

  void begin()
  {
    schedule.begin("train", false, {}, [] {});
  }
  /// One access, as an engine does it: the step, the actions, the chunk, the commit, the release.
  /// @return   it was the recorded one
  bool use(cm::slot_id slot, cm::entry_kind kind = cm::entry_kind::read)
  {
    const bool expected = schedule.step_to(slot, kind, 0);
    if (expected && schedule.entry(schedule.cursor()).has_actions) schedule.run_actions(schedule.cursor());
    cm::slot& it = tensors[slot];
    if (!chunks[it.chunk].has_frames(cm::tier::device)) schedule.ensure_policy();
    const auto when = schedule.use_of(it, expected);
    chunks.acquire(slot, it.chunk, kind, when.next, when.now, copies);
    states::begin(it, cm::memory_location::device);
    const std::uint32_t access_index = schedule.finish(expected, slot, kind, 0);
    states::end(it, cm::memory_location::device);
    chunks.unpin(cm::tier::device, it.chunk, false);
    schedule.log_release(access_index);
    return expected;
  }
  bool walk(std::uint32_t count)
  {
    bool expected = true;
    for (std::uint32_t index = 0; index < count; ++index) expected = use(cm::slot_id{index}) && expected;
    return expected;
  }

  cm::registry tensors;
  cm::gradient_places places;
  cm::chunk_cache<cm::eviction::belady> chunks;
  silent_copies copies;
  cm::report counts;
  cm::schedule<cm::eviction::belady, cm::transfer::lookahead, silent_copies> schedule{{},     tensors, places,
                                                                                      chunks, copies,  counts};
};

}  // namespace

TEST_CASE("slots that come to lie elsewhere end all plans", "[manager]")
{
  parts it{4, 2};
  for (int round = 0; round < 3; ++round) {
    it.begin();
    it.walk(4);
    it.schedule.end(true);
  }
  CHECK_NOTHROW(it.schedule.plan_of("train"));
  const std::uint64_t before = it.schedule.arrangement();
  it.schedule.relink();
  CHECK(it.schedule.arrangement() != before);
  CHECK_FALSE(it.schedule.is_steady());
  CHECK_THROWS_AS(it.schedule.plan_of("train"), cm::usage_error);
}

}  // namespace schedule_alone_test
