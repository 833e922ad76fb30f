// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/chunk_cache.hpp>

#include <chunkmem/eviction/evictions.hpp>
#include <support/catch.hpp>
#include <support/oracles/chunk_cache_trial.hpp>
#include <support/oracles/record_builder.hpp>
#include <support/sanitized.hpp>

#include <utility>
#include <vector>

namespace chunk_cache_test {

using namespace chunkmem;

namespace {

constexpr int part = support::sanitized ? 4 : 1;  // of all seeds
constexpr std::uint64_t least = support::sanitized ? 10 : 100;

template <class Eviction>
void compare_with_maps(std::uint32_t longest_chunk, bool tight_host)
{
  std::uint64_t shortages = 0;
  std::uint64_t loads = 0;
  std::uint64_t evictions = 0;
  std::uint64_t reclaims = 0;
  for (std::uint64_t seed = 1; seed <= 60 / part; ++seed) {
    support::chunk_cache_trial<Eviction> trial{seed, longest_chunk, tight_host};
    for (int step = 0; step < 250; ++step)
      if (const std::string wrong = trial.step(); !wrong.empty())
        FAIL("seed " << seed << ", step " << step << ": " << wrong);
    if (const std::string wrong = trial.settle(); !wrong.empty()) FAIL("seed " << seed << ", at the end: " << wrong);
    shortages += trial.shortages;
    loads += trial.memory().loads;
    evictions += trial.memory().evictions;
    reclaims += trial.reclaims();
  }
  CHECK(shortages > least);  // the operations reach what they are meant to reach
  CHECK(loads > least);
  CHECK(evictions > least);
  CHECK((!tight_host || reclaims > least));
}

/// Chunks of the given lengths with a slot each, in tiers of so many frames of 256 B.
template <class Eviction>
chunk_cache<Eviction> small(const std::vector<std::uint32_t>& frames, std::uint32_t device, std::uint32_t host)
{
  chunk_cache<Eviction> state;
  state.reset(frames, static_cast<std::uint32_t>(frames.size()));
  state.reset_tier(tier::device, bytes{device * std::uint64_t{256}}, bytes{256}, device);
  state.reset_tier(tier::host, bytes{host * std::uint64_t{256}}, bytes{256}, host);
  return state;
}

/// A mover that counts, and fails where it is told to.
struct counting_mover {
  void placed(tier, frame_id, std::uint32_t) {}
  void vacated(tier, frame_id, std::uint32_t, bool) {}
  void copy(chunk_id, const chunk&, tier from, tier to)
  {
    if (fails) throw device_error{"no copy today"};
    ++(to < from ? loads : write_backs);
  }
  void claimed(chunk_id, const chunk&, tier) { ++claims; }
  void evicted(chunk_id, const chunk&, tier) { ++evictions; }
  void discarded(chunk_id, const chunk&, tier) {}
  void leased(tier, std::uint64_t, std::uint64_t) {}
  int loads = 0;
  int claims = 0;
  int write_backs = 0;
  int evictions = 0;
  bool fails = false;
};

template <class Eviction>
void use(chunk_cache<Eviction>& state, std::uint32_t index, entry_kind kind, counting_mover& mover,
         std::uint32_t next_use = access_record::never)
{
  state.acquire(slot_id{index}, chunk_id{index}, kind, next_use, access_index{0}, mover);
  state.unpin(tier_of(kind), chunk_id{index}, writes(access_of(kind)));
}

}  // namespace

TEST_CASE("a cache of chunks keeps every byte under random operations, chunks of one frame", "[manager]")
{
  compare_with_maps<eviction::lru>(1, false);
  compare_with_maps<eviction::belady>(1, true);
}

TEST_CASE("a cache of chunks keeps every byte where a plan has frames for them", "[manager]")
{
  std::uint64_t came = 0;
  std::uint64_t moved = 0;
  std::uint64_t early = 0;
  for (const bool tight_host : {false, true})
    for (std::uint64_t seed = 1; seed <= 200 / part; ++seed) {
      support::chunk_cache_trial<eviction::by_retention> trial{seed, 3, tight_host};
      for (int step = 0; step < 250; ++step)
        if (const std::string wrong = trial.step(); !wrong.empty())
          FAIL("seed " << seed << ", step " << step << ": " << wrong);
      if (const std::string wrong = trial.settle(); !wrong.empty()) FAIL("seed " << seed << ", at the end: " << wrong);
      came += trial.came_to_its_place;
      moved += trial.moved_to_its_place;
      early += trial.came_early;
    }
  CHECK(came > 10 * least);
  CHECK(moved > (support::sanitized ? 5 : 40));
  CHECK(early > least);
}

TEST_CASE("a cache of chunks keeps every byte under random operations, chunks of several frames", "[manager]")
{
  compare_with_maps<eviction::belady>(3, false);
  compare_with_maps<eviction::lru>(3, true);
}

TEST_CASE("a clean chunk leaves free and a dirty one is written back once", "[manager]")
{
  auto state = small<eviction::lru>({1, 1}, 1, 2);
  counting_mover mover;
  use(state, 0, entry_kind::write, mover);
  use(state, 1, entry_kind::write, mover);  // 0 leaves dirty
  CHECK((mover.write_backs == 1 && mover.loads == 0 && mover.claims == 2));
  use(state, 0, entry_kind::read, mover);  // 1 leaves dirty
  CHECK((mover.write_backs == 2 && mover.loads == 1));
  use(state, 1, entry_kind::read, mover);  // 0 is clean now
  use(state, 0, entry_kind::read, mover);
  CHECK((mover.write_backs == 2 && mover.loads == 3));
  use(state, 0, entry_kind::write_on_host, mover);  // the device's copy is worth nothing
  CHECK_FALSE(state[chunk_id{0}].has_frames(tier::device));
  use(state, 0, entry_kind::read, mover);
  CHECK((mover.write_backs == 2 && mover.loads == 4));
}

TEST_CASE("what is overwritten is not loaded, unless a neighbour in its chunk holds bytes", "[manager]")
{
  auto state = small<eviction::lru>({1, 1}, 1, 2);
  counting_mover mover;
  use(state, 0, entry_kind::write_on_host, mover);
  use(state, 0, entry_kind::write, mover);
  CHECK((mover.loads == 0 && mover.claims == 1));
  chunk_cache<eviction::lru> shared;
  shared.reset(std::vector<std::uint32_t>{1}, 2);
  for (const tier where : {tier::device, tier::host}) shared.reset_tier(where, bytes{256}, bytes{256}, 1);
  shared.acquire(slot_id{0}, chunk_id{0}, entry_kind::write_on_host, access_record::never, access_index{0}, mover);
  shared.unpin(tier::host, chunk_id{0}, true);
  shared.acquire(slot_id{1}, chunk_id{0}, entry_kind::write, access_record::never, access_index{0}, mover);
  CHECK(mover.loads == 1);
}

TEST_CASE("a copy that cannot be started leaves the cache as it was", "[manager]")
{
  auto state = small<eviction::lru>({1, 1}, 1, 2);
  counting_mover mover;
  use(state, 0, entry_kind::write_on_host, mover);
  mover.fails = true;
  const auto before = state;
  CHECK_THROWS_AS(use(state, 0, entry_kind::read, mover), device_error);
  CHECK(state.table().same_places(before.table()));
  mover.fails = false;
  use(state, 1, entry_kind::write, mover);
  mover.fails = true;
  CHECK_THROWS_AS(use(state, 0, entry_kind::read, mover), device_error);  // 1 cannot be written back
  CHECK(state[chunk_id{1}].has_frames(tier::device));
  CHECK_FALSE(state[chunk_id{1}].is_valid(tier::host));
  mover.fails = false;
  use(state, 0, entry_kind::read, mover);
  CHECK(state[chunk_id{0}].has_frames(tier::device));
}

TEST_CASE("a host read in between keeps the policy's key true", "[manager]")
{
  support::record_builder build;
  for (std::uint32_t index = 0; index < 12; ++index) build.brief(index % 3);
  const access_record record = build.finish({0, 1, 2}, 3);
  auto state = small<eviction::belady>({1, 1, 1}, 2, 3);
  state.start_of(record);
  state.tell_policy(record);
  counting_mover mover;
  use(state, 2, entry_kind::write_on_host, mover, 2);
  use(state, 0, entry_kind::write, mover, 9);
  use(state, 1, entry_kind::write, mover, 7);
  use(state, 0, entry_kind::read_on_host, mover, 5);  // after a divergence it may be another moment
  state.acquire(slot_id{0}, chunk_id{0}, entry_kind::read, 6, access_index{4}, mover);  // pinned
  use(state, 2, entry_kind::read, mover, 8);
  CHECK(state[chunk_id{0}].has_frames(tier::device));
  CHECK_FALSE(state[chunk_id{1}].has_frames(tier::device));
}

TEST_CASE("a silent policy is told everything when it is asked again", "[manager]")
{
  auto state = small<eviction::lru>({1, 1, 1}, 2, 3);
  counting_mover mover;
  use(state, 0, entry_kind::write, mover);
  state.silence_policy();
  CHECK_FALSE(state.is_telling());
  use(state, 1, entry_kind::write, mover);
  CHECK(state.try_evict(chunk_id{0}, mover));
  state.tell_policy(access_record{});
  use(state, 2, entry_kind::write, mover);
  use(state, 0, entry_kind::read, mover);  // 1 is the oldest on the device
  CHECK_FALSE(state[chunk_id{1}].has_frames(tier::device));
  CHECK((state[chunk_id{0}].has_frames(tier::device) && state[chunk_id{2}].has_frames(tier::device)));
}

TEST_CASE("a planned move that does not fit is skipped and changes nothing", "[manager]")
{
  auto state = small<eviction::lru>({2, 1}, 2, 3);
  counting_mover mover;
  use(state, 0, entry_kind::write_on_host, mover);
  use(state, 1, entry_kind::write, mover);
  const auto before = state;
  CHECK_FALSE(state.try_load(chunk_id{0}, frame_id{0}, true, mover));  // frame 0 is taken
  CHECK_FALSE(state.try_load(chunk_id{1}, frame_id{1}, true, mover));  // is there already
  CHECK_FALSE(state.try_load(chunk_id{0}, frame_id{1}, true, mover));  // reaches beyond the end
  CHECK_FALSE(state.try_evict(chunk_id{0}, mover));                    // is not there
  CHECK_FALSE(state.try_write_back(chunk_id{0}, mover));
  CHECK_FALSE(state.try_lease(tier::device, 0, 256, mover));
  state.acquire(slot_id{1}, chunk_id{1}, entry_kind::read, access_record::never, access_index{0}, mover);
  CHECK_FALSE(state.try_evict(chunk_id{1}, mover));
  CHECK_FALSE(state.try_write_back(chunk_id{1}, mover));
  state.unpin(tier::device, chunk_id{1}, false);
  CHECK(state.table().same_places(before.table()));
  CHECK(state.try_write_back(chunk_id{1}, mover));
  CHECK_FALSE(state.try_write_back(chunk_id{1}, mover));  // is clean already
  CHECK(state.try_evict(chunk_id{1}, mover));
}

TEST_CASE("a lease comes down onto what a plan gives up, and beside what it keeps", "[manager]")
{
  for (const auto& [is_given_up, by_age] : {std::pair{true, false}, {false, false}, {true, true}}) {
    auto state = small<eviction::by_retention>({1, 1, 1}, 3, 3);
    state.policy().order_by_age(by_age);
    counting_mover mover;
    for (const std::uint32_t index : {2U, 1U, 0U}) {  // from the top down, each with a host copy
      use(state, index, entry_kind::write_on_host, mover);
      use(state, index, entry_kind::write, mover);
    }
    REQUIRE(state.try_evict(chunk_id{0}, mover));  // the lowest frame is free, and those above have chunks
    state.acquire(slot_id{1}, chunk_id{1}, entry_kind::read, 5, access_index{0}, mover);
    state.unpin(tier::device, chunk_id{1}, false);
    state.acquire(slot_id{2}, chunk_id{2}, entry_kind::read, is_given_up ? access_record::never : 7, access_index{0},
                  mover);
    state.unpin(tier::device, chunk_id{2}, false);
    REQUIRE(state[chunk_id{2}].first_frame[tier::device] == frame_id{2});
    const bool evicts = is_given_up && !by_age;  // by age, the lease takes the free frame
    CHECK(state.lease(tier::device, 256, mover) == (evicts ? 512U : 0U));
    CHECK(state[chunk_id{1}].has_frames(tier::device));
    CHECK(state[chunk_id{2}].has_frames(tier::device) != evicts);
    CHECK(state[chunk_id{2}].is_valid(tier::host) == evicts);  // it was written back
  }
}

TEST_CASE("by age a load takes the frame that was given up before another one became free", "[manager]")
{
  struct trial {
    bool is_given_up_first;
    bool by_age;
    entry_kind kind;
    bool leaves;  // the chunk that the plan gives up
  };
  for (const trial& it : {trial{true, true, entry_kind::read, true},
                          {false, true, entry_kind::read, false},
                          {true, false, entry_kind::read, false},
                          {true, true, entry_kind::write, false}}) {
    auto state = small<eviction::by_retention>({1, 1, 1}, 2, 3);
    state.policy().order_by_age(it.by_age);
    counting_mover mover;
    for (const std::uint32_t index : {0U, 1U, 2U}) use(state, index, entry_kind::write_on_host, mover);
    for (const std::uint32_t index : {0U, 1U}) use(state, index, entry_kind::read_write, mover);
    if (!it.is_given_up_first) use(state, 0, entry_kind::read_write, mover);
    state.drop(slot_id{1}, chunk_id{1}, mover);
    if (!it.is_given_up_first) use(state, 0, entry_kind::read_write, mover);
    REQUIRE(state.space(tier::device).pool().free_count() == 1);
    use(state, 2, it.kind, mover);
    CHECK(state[chunk_id{0}].has_frames(tier::device) != it.leaves);
    CHECK(mover.write_backs == (it.leaves ? 1 : 0));
  }
}

TEST_CASE("by age a load of several frames takes those of a gathered chunk that was given up before others became free",
          "[manager]")
{
  enum class older : std::uint8_t { given_up, pinned, kept, stored, shorter };
  for (const older first : {older::given_up, older::pinned, older::kept, older::stored, older::shorter}) {
    CAPTURE(static_cast<int>(first));
    const std::uint32_t frames = first == older::shorter ? 1 : 2;
    auto state = small<eviction::by_retention>({frames, 2, 2}, 4, 6);
    for (const std::uint32_t index : {0U, 1U, 2U})
      if (index != 0 || first != older::stored) state.make_derived(chunk_id{index});
    state.policy().order_by_age(true);
    counting_mover mover;
    for (const std::uint32_t index : {0U, 1U, 2U}) use(state, index, entry_kind::write_on_host, mover);
    use(state, 0, entry_kind::read, mover, first == older::kept ? 7 : access_record::never);
    if (first == older::pinned)
      state.acquire(slot_id{0}, chunk_id{0}, entry_kind::read, access_record::never, access_index{0}, mover);
    use(state, 1, entry_kind::read, mover);
    REQUIRE(state.try_evict(chunk_id{1}, mover));
    const bool takes = first == older::given_up;
    const frame_id expected = state[chunk_id{0}].first_frame[tier::device];
    use(state, 2, entry_kind::read, mover);
    CHECK(state[chunk_id{0}].has_frames(tier::device) != takes);
    CHECK((state[chunk_id{2}].first_frame[tier::device] == expected) == takes);
    CHECK(mover.write_backs == 0);
  }
}

TEST_CASE("by age a load of several frames leaves those that were given up after others became free", "[manager]")
{
  for (const bool takes_given_up : {true, false}) {
    auto state = small<eviction::by_retention>({2, 2, 2}, 4, 6);
    for (const std::uint32_t index : {0U, 1U, 2U}) state.make_derived(chunk_id{index});
    state.policy().order_by_age(true);
    state.policy().take_given_up(takes_given_up);
    counting_mover mover;
    for (const std::uint32_t index : {0U, 1U, 2U}) use(state, index, entry_kind::write_on_host, mover);
    for (const std::uint32_t index : {0U, 1U}) use(state, index, entry_kind::read, mover);
    REQUIRE(state.try_evict(chunk_id{1}, mover));
    if (takes_given_up) use(state, 0, entry_kind::read, mover);
    use(state, 2, entry_kind::read, mover);
    CHECK(state[chunk_id{0}].has_frames(tier::device));
    CHECK(state[chunk_id{2}].has_frames(tier::device));
  }
}

TEST_CASE("by age a chunk without bytes takes a frame that ranks may still add up last, and the oldest of these",
          "[manager]")
{
  auto state = small<eviction::by_retention>({1, 1, 1, 1, 1}, 3, 5);
  for (const std::uint32_t index : {0U, 1U}) state.sum_over_ranks(chunk_id{index});
  state.policy().order_by_age(true);
  counting_mover mover;
  for (const std::uint32_t index : {0U, 1U, 2U}) use(state, index, entry_kind::write, mover);
  const auto frame_of = [&](std::uint32_t index) { return state[chunk_id{index}].first_frame[tier::device]; };
  const frame_id frames[] = {frame_of(0), frame_of(1), frame_of(2)};
  for (const std::uint32_t index : {2U, 1U, 0U}) {
    state.drop(slot_id{index}, chunk_id{index}, mover);
    use(state, 3, entry_kind::write_on_host, mover);  // a moment passes
  }
  for (const std::uint32_t index : {2U, 4U, 3U}) use(state, index, entry_kind::write, mover);
  CHECK(frame_of(2) == frames[2]);  // free at once, though it is the oldest
  CHECK(frame_of(4) == frames[1]);
  CHECK(frame_of(3) == frames[0]);
}

TEST_CASE("by age a chunk that ranks fill takes the frame that is free the longest, as a load does", "[manager]")
{
  for (const std::uint32_t frames : {1U, 2U}) {
    for (const bool is_filled : {false, true}) {
      auto state = small<eviction::by_retention>({frames, frames, frames, frames}, 3 * frames, 4 * frames);
      if (is_filled) state.fill_by_ranks(chunk_id{3});
      state.policy().order_by_age(true);
      counting_mover mover;
      for (const std::uint32_t index : {0U, 1U, 2U}) use(state, index, entry_kind::write, mover);
      const auto frame_of = [&](std::uint32_t index) { return state[chunk_id{index}].first_frame[tier::device]; };
      const frame_id oldest = frame_of(1);
      const frame_id newest = frame_of(0);
      for (const std::uint32_t index : {1U, 0U}) {
        state.drop(slot_id{index}, chunk_id{index}, mover);
        use(state, 2, entry_kind::read, mover);  // a moment passes
      }
      use(state, 3, entry_kind::write, mover);
      CHECK(frame_of(3) == (is_filled ? oldest : newest));
    }
  }
}

TEMPLATE_TEST_CASE("without a plan a lease takes free room, and no chunk leaves for it", "[manager]", eviction::lru,
                   eviction::belady, eviction::cost_aware)
{
  auto state = small<TestType>({1, 1}, 2, 2);
  counting_mover mover;
  for (const std::uint32_t index : {0U, 1U}) {  // each with a host copy
    use(state, index, entry_kind::write_on_host, mover);
    use(state, index, entry_kind::read, mover);
  }
  REQUIRE(state.try_evict(chunk_id{0}, mover));  // the lower frame is free, and the upper one has a chunk
  CHECK(state.lease(tier::device, 256, mover) == 0U);
  CHECK(state[chunk_id{1}].has_frames(tier::device));
}

TEST_CASE("a lease on the host takes free room before the copy of a chunk that is on the device", "[manager]")
{
  auto state = small<eviction::lru>({1, 1}, 2, 3);
  counting_mover mover;
  for (const std::uint32_t index : {0U, 1U}) {
    use(state, index, entry_kind::write_on_host, mover);
    use(state, index, entry_kind::read, mover);
  }
  (void)state.lease(tier::host, 256, mover);
  for (const std::uint32_t index : {0U, 1U}) CHECK(state[chunk_id{index}].has_frames(tier::host));
}

TEST_CASE("a lease comes down onto nothing that a plan gives up and that cannot leave", "[manager]")
{
  auto state = small<eviction::by_retention>({1, 1}, 2, 1);  // a host with room for one of the two
  counting_mover mover;
  use(state, 0, entry_kind::write_on_host, mover);
  use(state, 1, entry_kind::write, mover);
  REQUIRE(state[chunk_id{1}].first_frame[tier::device] == frame_id{1});
  CHECK(state.lease(tier::device, 256, mover) == 0U);
  CHECK(state[chunk_id{1}].has_frames(tier::device));
}

TEST_CASE("where chunks are windows of several frames a lease takes free room first", "[manager]")
{
  auto state = small<eviction::by_retention>({1, 2}, 4, 3);
  counting_mover mover;
  state.start_of(access_record{});
  for (const std::uint32_t index : {0U, 1U}) use(state, index, entry_kind::write_on_host, mover);
  REQUIRE(state.try_load(chunk_id{0}, frame_id{3}, true, mover));
  REQUIRE(state.try_load(chunk_id{1}, frame_id{1}, true, mover));
  CHECK(state.lease(tier::device, 256, mover) == 0U);
  CHECK((state[chunk_id{0}].has_frames(tier::device) && state[chunk_id{1}].has_frames(tier::device)));
  CHECK(state.lease(tier::device, 256, mover) == 768U);
  CHECK_FALSE(state[chunk_id{0}].has_frames(tier::device));
}

TEST_CASE("a chunk comes to the frames that a plan has for it, and what the plan gives up leaves them", "[manager]")
{
  const std::vector<std::uint32_t> places{2, 0, 1, 5};
  const auto at = [](auto& state, std::uint32_t index) {
    return index_of(state[chunk_id{index}].first_frame[tier::device]);
  };
  const auto read = [](auto& state, std::uint32_t index, std::uint32_t next, std::uint32_t now, counting_mover& mover) {
    state.acquire(slot_id{index}, chunk_id{index}, entry_kind::read, next, access_index{now}, mover);
    state.unpin(tier::device, chunk_id{index}, false);
  };
  auto state = small<eviction::by_retention>({2, 1, 2, 1}, 6, 6);
  counting_mover mover;
  state.start_of(access_record{});
  state.policy().settle_in(places);
  for (const std::uint32_t index : {0U, 1U, 2U, 3U}) use(state, index, entry_kind::write_on_host, mover);
  for (const std::uint32_t index : {0U, 1U, 2U, 3U})
    REQUIRE(state.try_evict(chunk_id{index}, mover) == state[chunk_id{index}].has_frames(tier::device));
  read(state, 0, access_record::never, 0, mover);  // into 2 and 3, and the plan gives it up
  read(state, 1, 7, 1, mover);                     // into 0
  CHECK((at(state, 0) == 2 && at(state, 1) == 0));
  read(state, 2, 7, 2, mover);  // wants 1 and 2
  CHECK((at(state, 2) == 1 && !state[chunk_id{0}].has_frames(tier::device)));
  read(state, 0, 7, 0, mover);  // wants 2 and 3, where a chunk stays
  CHECK((at(state, 0) == 3 && at(state, 2) == 1));
  read(state, 2, access_record::never, access_record::never - 1, mover);  // no frames are planned: it stays, given up
  const int loads = mover.loads;
  read(state, 0, 7, 0, mover);  // comes to its own frames now: two frames on, over some that it leaves
  CHECK((at(state, 0) == 2 && !state[chunk_id{2}].has_frames(tier::device) && mover.loads == loads + 1));
  read(state, 3, 7, 3, mover);
  CHECK(at(state, 3) == 5);
  state.acquire(slot_id{3}, chunk_id{3}, entry_kind::read, 7, access_index{0}, mover);  // pinned, and wants 2 now
  CHECK(at(state, 3) == 5);
  state.acquire(slot_id{3}, chunk_id{3}, entry_kind::read, 7, access_index{1}, mover);
  CHECK(at(state, 3) == 5);
}

TEST_CASE("with planned frames a lease comes down onto windows that a plan gives up", "[manager]")
{
  const std::vector<std::uint32_t> places{2};
  auto state = small<eviction::by_retention>({2, 1}, 4, 3);
  counting_mover mover;
  state.start_of(access_record{});
  state.policy().settle_in(places);
  for (const std::uint32_t index : {0U, 1U}) use(state, index, entry_kind::write_on_host, mover);
  REQUIRE(state.try_load(chunk_id{0}, frame_id{2}, true, mover));
  CHECK(state.lease(tier::device, 256, mover) == 768U);
  CHECK_FALSE(state[chunk_id{0}].has_frames(tier::device));
}

TEST_CASE("a chunk comes early to frames that are free or given up, and to no others", "[manager]")
{
  const std::vector<std::uint32_t> places{0};
  auto state = small<eviction::by_retention>({2, 1, 1}, 4, 4);
  counting_mover mover;
  state.start_of(access_record{});
  state.policy().settle_in(places);
  for (const std::uint32_t index : {0U, 1U, 2U}) use(state, index, entry_kind::write_on_host, mover);
  REQUIRE(state.try_load(chunk_id{1}, frame_id{1}, true, mover));
  REQUIRE(state.try_load(chunk_id{2}, frame_id{2}, true, mover));
  state.acquire(slot_id{2}, chunk_id{2}, entry_kind::read, 9, access_index{1}, mover);
  state.unpin(tier::device, chunk_id{2}, false);
  CHECK_FALSE(state.bring_early(chunk_id{0}, frame_id{2}, 4, access_index{0}, mover));  // one of them stays
  CHECK_FALSE(state.bring_early(chunk_id{0}, frame_id{3}, 4, access_index{0}, mover));  // beyond the end
  CHECK_FALSE(state.bring_early(chunk_id{0}, frame_pool::none, 4, access_index{0}, mover));
  CHECK(state[chunk_id{1}].has_frames(tier::device));
  CHECK(state.bring_early(chunk_id{0}, frame_id{0}, 4, access_index{5}, mover));
  CHECK_FALSE(state[chunk_id{1}].has_frames(tier::device));
  CHECK(state[chunk_id{0}].next_use == 5);
}

TEST_CASE("a device that is cleared keeps what is pinned and loses no byte", "[manager]")
{
  auto state = small<eviction::lru>({1, 2, 1}, 4, 4);
  counting_mover mover;
  for (const std::uint32_t index : {0u, 1u, 2u}) use(state, index, entry_kind::write, mover);
  use(state, 2, entry_kind::read_on_host, mover);  // clean from here on
  state.acquire(slot_id{0}, chunk_id{0}, entry_kind::read, access_record::never, access_index{0}, mover);
  state.evict_all(mover);
  CHECK((state[chunk_id{0}].has_frames(tier::device) && !state[chunk_id{1}].has_frames(tier::device) &&
         !state[chunk_id{2}].has_frames(tier::device)));
  CHECK((state[chunk_id{1}].is_valid(tier::host) && state[chunk_id{2}].is_valid(tier::host) && mover.write_backs == 2 &&
         mover.evictions == 2));
  mover.fails = true;
  use(state, 2, entry_kind::write, mover);
  CHECK_THROWS_AS(state.evict_all(mover), device_error);
  CHECK(state[chunk_id{2}].has_frames(tier::device));
}

TEST_CASE("a chunk that can leave free leaves where the host has no room for the victim", "[manager]")
{
  auto state = small<eviction::lru>({2, 1, 1}, 3, 2);
  counting_mover mover;
  use(state, 1, entry_kind::write_on_host, mover);
  use(state, 2, entry_kind::write_on_host, mover);
  use(state, 0, entry_kind::write, mover);  // two frames, only on the device, oldest
  use(state, 1, entry_kind::read, mover);   // one frame, clean
  CHECK_NOTHROW(use(state, 2, entry_kind::read, mover));
}

TEST_CASE("a shortage never names a need that the capacity meets", "[manager]")
{
  auto state = small<eviction::lru>({1, 1, 1}, 1, 2);
  counting_mover mover;
  use(state, 0, entry_kind::write_on_host, mover);
  use(state, 1, entry_kind::write_on_host, mover);
  try {
    use(state, 2, entry_kind::write_on_host, mover);
    FAIL("three chunks in two frames");
  } catch (const out_of_memory& refused) {
    CHECK(refused.shortage().needed > refused.shortage().capacity);
  }
}

TEST_CASE("a gathered chunk takes no frame of the host", "[manager]")
{
  auto state = small<eviction::lru>({2, 1}, 2, 2);
  state.make_derived(chunk_id{0});
  counting_mover mover;
  use(state, 0, entry_kind::write_on_host, mover);
  CHECK((state[chunk_id{0}].is_gathered() && state[chunk_id{0}].is_valid(tier::host)));
  CHECK(state.space(tier::host).pool().is_free(frame_id{0}, 2));
  use(state, 0, entry_kind::read, mover);
  CHECK((mover.loads == 1 && state[chunk_id{0}].has_frames(tier::device)));
}

namespace {

constexpr std::uint32_t never = access_record::never;

/// Five chunks of one frame, a device of four frames, and a record whose leases reach the upper ones. Each chunk has a
/// valid copy on the host.
class spared_frames {
 public:
  /// @param leased   [bytes]   @param wanted_on_host   the record updates chunk 1 on the host
  explicit spared_frames(std::uint64_t leased, bool wanted_on_host = true)
  {
    support::record_builder build;
    if (leased > 0) build.release(build.lease(entry_kind::lease_device, leased));
    for (std::uint32_t index = 0; index < 5; ++index) build.brief(index);
    if (wanted_on_host) build.brief(1, entry_kind::read_write_on_host);
    record_ = build.finish({0, 1, 2, 3, 4}, 5);
    REQUIRE(record_.is_left_for_host(1) == wanted_on_host);
    start_over();
    state.start_of(record_);
    state.tell_policy(record_);
  }

  void start_over()
  {
    state.reset(std::vector<std::uint32_t>(5, 1), 5);
    state.reset_tier(tier::device, bytes{4 * 256}, bytes{256}, 4);
    state.reset_tier(tier::host, bytes{5 * 256}, bytes{256}, 5);
    for (std::uint32_t index = 0; index < 5; ++index) use(state, index, entry_kind::write_on_host, mover);
  }

  /// The chunk lies in a device frame, and its next use is known.
  void put(std::uint32_t index, std::uint32_t frame, std::uint32_t next_use, bool host_valid)
  {
    REQUIRE(state.try_load(chunk_id{index}, frame_id{frame}, true, mover));
    use(state, index, host_valid ? entry_kind::read : entry_kind::read_write, mover, next_use);
    REQUIRE(state[chunk_id{index}].is_valid(tier::host) == host_valid);
  }
  /// The frame into which another chunk comes.
  std::uint32_t next_frame()
  {
    use(state, 4, entry_kind::read, mover);
    return index_of(state[chunk_id{4}].first_frame[tier::device]);
  }

  chunk_cache<eviction::cost_aware> state;
  counting_mover mover;

 private:
  access_record record_;
};

}  // namespace

TEST_CASE("a frame that leases come down to is spared where a chunk below leaves at no price", "[manager]")
{
  for (const bool host_valid : {true, false}) {
    spared_frames it{2 * 256};
    it.put(0, 0, 3, true);
    it.put(1, 1, never, host_valid);
    CHECK(it.next_frame() == 1);
    CHECK_FALSE(it.state[chunk_id{1}].has_frames(tier::device));
    CHECK(it.state[chunk_id{1}].is_valid(tier::host));
    CHECK(it.state[chunk_id{0}].has_frames(tier::device));
  }
}

TEST_CASE("a free frame is taken where leases never come, or nothing below leaves at no price", "[manager]")
{
  spared_frames without_leases{0};
  without_leases.put(0, 0, never, true);
  without_leases.put(1, 1, never, true);
  CHECK(without_leases.next_frame() == 2);

  spared_frames below_them{256};
  below_them.put(0, 0, never, true);
  CHECK(below_them.next_frame() == 1);

  spared_frames loaded_again{2 * 256};
  loaded_again.put(0, 0, 3, true);
  loaded_again.put(1, 1, 4, true);
  CHECK(loaded_again.next_frame() == 2);

  spared_frames above{2 * 256};
  above.put(0, 0, 3, true);
  above.put(1, 1, 4, true);
  above.put(2, 3, never, true);
  CHECK(above.next_frame() == 2);

  spared_frames overwritten_later{2 * 256, false};
  overwritten_later.put(0, 0, 3, true);
  overwritten_later.put(1, 1, never, false);
  CHECK(overwritten_later.next_frame() == 2);

  spared_frames without_host_frames{2 * 256};
  without_host_frames.put(0, 0, 3, true);
  without_host_frames.put(1, 1, never, true);
  const chunk_table before = [&] {
    chunk_table table = without_host_frames.state.table();
    table[chunk_id{1}].take_away(tier::host);
    return table;
  }();
  without_host_frames.state.give_up_copies(before, without_host_frames.mover);
  REQUIRE(without_host_frames.state[chunk_id{1}].first_frame[tier::host] == chunk::nowhere);
  CHECK(without_host_frames.next_frame() == 2);
  CHECK(without_host_frames.state[chunk_id{1}].has_frames(tier::device));
}

TEST_CASE("a reset forgets the leases that were expected", "[manager]")
{
  spared_frames it{2 * 256};
  it.start_over();
  it.put(0, 0, 3, true);
  it.put(1, 1, never, true);
  CHECK(it.next_frame() == 2);
  CHECK(it.state[chunk_id{1}].has_frames(tier::device));
}

}  // namespace chunk_cache_test
