// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/copy_engine.hpp>

#include <chunkmem/checks/check_policy.hpp>
#include <chunkmem/chunk/layouts.hpp>

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/oracles/listening_backend.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <vector>

namespace checked_bytes_test {

using namespace chunkmem;
using namespace chunkmem::literals;

namespace {

/// Records its calls.
struct hearing_part : checks::no_checks {
  std::vector<checks::pin_event> compared;
  std::vector<std::uint32_t> forgotten, gone;
  checks::pin_event last;
  std::uint32_t slots = 0, parameters = 0;

  void reset(std::uint32_t all, std::uint32_t trained) { slots = all, parameters = trained; }
  void pinned(const checks::pin_event& pin) { last = pin; }
  void released(const checks::pin_event& pin) noexcept { last = pin; }
  bool is_watched(std::uint32_t) const noexcept { return true; }
  void compare(const checks::pin_event& copy) noexcept { compared.push_back(copy); }
  void forget(std::uint32_t cell) noexcept { forgotten.push_back(cell); }
  void gradient_gone(std::uint32_t parameter) noexcept { gone.push_back(parameter); }
};
struct hearing {
  using policy_kind = checks_kind;
  static constexpr std::string_view name = "hearing";
  static constexpr bool is_on = true;
  using part = hearing_part;
};

/// Two parameters, with slots 0 and 1 and gradients 2 and 3, and a gathered tensor, slot 4.
registry three_tensors()
{
  registry tensors;
  tensors.add({64}, dtype::float32, role::parameter, group_id{0});
  tensors.add({64}, dtype::float32, role::parameter, group_id{0});
  tensors.add({64}, dtype::uint8, role::gathered, group_id{0});
  tensors.seal(append_layout{}, 1_KiB);
  return tensors;
}

}  // namespace

TEST_CASE("a gradient in its weight's bytes has the weight's cell", "[manager]")
{
  registry tensors = three_tensors();
  checked_bytes<hearing, true> watch;
  watch.reset(tensors);
  CHECK(watch.part().slots == 5);
  CHECK(watch.part().parameters == 2);
  std::byte content[256]{};
  watch.pinned(slot_id{3}, content, access::write);
  CHECK(watch.part().last.cell == 3);
  CHECK(watch.part().last.content.size() == 256);
  tensors.move_gradient(slot_id{1}, tensors[slot_id{1}].chunk, tensors[slot_id{1}].offset);
  watch.pinned(slot_id{3}, content, access::write);
  CHECK(watch.part().last.cell == 1);
  CHECK(watch.part().last.slot == 3);
}

TEST_CASE("bytes of a gathered tensor do not stay", "[manager]")
{
  const registry tensors = three_tensors();
  checked_bytes<hearing, true> watch;
  watch.reset(tensors);
  std::byte content[256]{};
  watch.released(slot_id{4}, content, access::read);
  CHECK_FALSE(watch.part().last.retained);
  watch.released(slot_id{0}, content, access::read);
  CHECK(watch.part().last.retained);
}

TEST_CASE("all tensors of a chunk are looked at where it leaves", "[manager]")
{
  const registry tensors = three_tensors();
  checked_bytes<hearing, true> watch;
  watch.reset(tensors);
  std::byte chunk[1024]{};
  watch.compare_chunk(tensors[slot_id{0}].chunk, chunk);
  REQUIRE(watch.part().compared.size() == 2);
  CHECK(watch.part().compared[0].content.data() == chunk);
  CHECK(watch.part().compared[1].content.data() == chunk + 256);
}

TEST_CASE("a dropped gradient is dead unless its weight has the bytes again", "[manager]")
{
  registry tensors = three_tensors();
  checked_bytes<hearing, true> watch;
  watch.reset(tensors);
  tensors.move_gradient(slot_id{1}, tensors[slot_id{1}].chunk, tensors[slot_id{1}].offset);
  tensors[slot_id{1}].state = tensor_state::hold;
  CHECK_FALSE(watch.dropped(slot_id{3}));
  CHECK(watch.part().gone == std::vector<std::uint32_t>{1});
  CHECK(watch.part().forgotten.empty());
  tensors[slot_id{1}].state = tensor_state::gradient;
  CHECK(watch.dropped(slot_id{3}));
  CHECK(watch.part().forgotten == std::vector<std::uint32_t>{1});
  CHECK(watch.dropped(slot_id{0}));
  CHECK(watch.part().forgotten == std::vector<std::uint32_t>{1, 0});
}

TEST_CASE("where the calling thread cannot read the bytes, or the policy is off, nothing is looked at", "[manager]")
{
  STATIC_REQUIRE_FALSE(checked_bytes<hearing, false>::sees_bytes);
  STATIC_REQUIRE_FALSE(checked_bytes<checks::none, true>::sees_bytes);
  STATIC_REQUIRE_FALSE(checked_bytes<checks::none, true>::is_on);
  const registry tensors = three_tensors();
  checked_bytes<hearing, false> watch;
  watch.reset(tensors);
  std::byte content[256]{};
  watch.pinned(slot_id{0}, content, access::read);
  CHECK(watch.part().last.content.empty());
  CHECK_FALSE(watch.is_watched(slot_id{0}));
}

}  // namespace checked_bytes_test

namespace copy_engine_test {

using namespace chunkmem;
using support::call;
using support::listening_backend;

namespace {

constexpr std::uint32_t nowhere = index_of(chunk::nowhere);

[[nodiscard]] chunk chunk_in(std::uint32_t frames, std::uint32_t device, std::uint32_t host)
{
  return {.frames = frames, .first_frame = {{frame_id{device}, frame_id{host}}}};
}

/// As a cache does it: the chunk has frames in both tiers while it is copied.
template <class Copies>
void load(Copies& copies, std::uint32_t index, chunk it, std::uint32_t first)
{
  it.put(tier::device, frame_id{first}, false);
  copies.copy(chunk_id{index}, it, tier::host, tier::device);
}
template <class Copies>
void write_back(Copies& copies, std::uint32_t index, const chunk& it)
{
  copies.copy(chunk_id{index}, it, tier::device, tier::host);
}

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
    copies.reset(used, frame_size, {{device.data(), host.data()}}, {{6, 6}});
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
  load(it.copies, 1, chunk_in(2, nowhere, 4), 3);
  write_back(it.copies, 0, chunk_in(1, 2, 5));
  it.copies.evicted(chunk_id{0}, chunk{}, tier::device);
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
  auto& tracker = it.copies.tracker();
  const std::uint64_t written = it.backend.work(agent::compute);
  tracker.stamp(agent::compute, it.copies.hazards_at(tier::device, frame_id{2}), true);
  write_back(it.copies, 0, chunk_in(1, 2, 5));
  CHECK(it.backend.knows(agent::to_host, agent::compute) >= written);
  const std::uint64_t copied = it.backend.knows(agent::to_host, agent::to_host);
  load(it.copies, 2, chunk_in(1, nowhere, 5), 2);  // out of what was written, over what was read
  CHECK(it.backend.knows(agent::to_device, agent::to_host) >= copied);
  tracker.follow(agent::compute, it.copies.hazards_at(tier::device, frame_id{2}),
                 it.copies.hazards_at(tier::device, frame_id{2}).writers, wait_cause::other);
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
      const bool is_free =
          std::none_of(taken.begin() + first, taken.begin() + first + count, [](bool held) { return held; });
      if (is_free && dice.one_in(2)) {
        it.copies.placed(tier::device, frame_id{first}, count);
        windows.emplace_back(first, count);
        std::fill_n(taken.begin() + first, count, true);
      } else if (!windows.empty() && dice.one_in(2)) {
        std::swap(dice.pick(windows), windows.back());
        const auto [begin, length] = windows.back();
        windows.pop_back();
        it.copies.vacated(tier::device, frame_id{begin}, length, true);
        std::fill_n(taken.begin() + begin, length, false);
      } else if (!windows.empty()) {
        const auto [begin, length] = dice.pick(windows);
        const std::uint64_t number = it.backend.work(agent::compute);
        it.copies.tracker().stamp(agent::compute, it.copies.hazards_at(tier::device, frame_id{begin}), true);
        for (std::uint32_t frame = begin; frame < begin + length; ++frame) used[frame].insert(number);
      }
    }
    for (const auto& [begin, length] : windows) it.copies.vacated(tier::device, frame_id{begin}, length, true);
    for (std::uint32_t frame = 0; frame < 6; ++frame) {
      frame_hazards& last = it.copies.hazards_at(tier::device, frame_id{frame});
      it.copies.tracker().follow(agent::to_device, last, last.users, wait_cause::other);
      if (!used[frame].empty() && it.backend.knows(agent::to_device, agent::compute) < *used[frame].rbegin())
        FAIL("seed " << seed << ": a use of frame " << frame << " was forgotten");
    }
  }
}

TEST_CASE("a lease meets the hazards of each frame it touches and of the rest behind the last", "[manager]")
{
  set_up it;
  const auto met = [&](std::uint64_t begin, std::uint64_t size) {
    std::set<std::ptrdiff_t> frames;
    const frame_hazards* const base = &it.copies.hazards_at(tier::device, frame_id{0});
    it.copies.for_lease(tier::device, begin, size, [&](frame_hazards& each) { frames.insert(&each - base); });
    return frames;
  };
  using frames = std::set<std::ptrdiff_t>;
  CHECK(met(0, 256) == frames{0});
  CHECK(met(768, 256) == frames{0});
  CHECK(met(768, 257) == frames{0, 1});
  CHECK(met(1'024, 2'048) == frames{1, 2});
  CHECK(met(5 * 1'024, 2'000) == frames{5, 6});
  CHECK(met(6 * 1'024, 256) == frames{6});
  CHECK(met(8 * 1'024, 256) == frames{6});  // any of the rest is one record
  CHECK(met(0, 7 * 1'024) == frames{0, 1, 2, 3, 4, 5, 6});
  CHECK(it.copies.address(tier::host, frame_id{2}) == &it.host[2 * frame_size]);
  CHECK(it.copies.lease_address(tier::device, 768) == &it.device[768]);
}

TEST_CASE("a sink sees each copy with its chunk and bytes", "[manager]")
{
  std::vector<trace_event> seen;
  set_up<list_sink> it{list_sink{&seen}};
  load(it.copies, 2, chunk_in(1, nowhere, 0), 1);
  write_back(it.copies, 1, chunk_in(2, 2, 3));
  it.copies.evicted(chunk_id{1}, chunk{}, tier::device);
  it.copies.leased(tier::device, 0, 512);
  REQUIRE(seen.size() == 4);
  CHECK((seen[0].what == trace_event_kind::load && seen[0].chunk == chunk_id{2} && seen[0].bytes == 256));
  CHECK((seen[0].from == tier::host && seen[0].to == tier::device));
  CHECK((seen[1].what == trace_event_kind::write_back && seen[1].chunk == chunk_id{1} && seen[1].bytes == 1'500));
  CHECK((seen[1].from == tier::device && seen[1].to == tier::host));
  CHECK(seen[2].what == trace_event_kind::evict);
  CHECK((seen[3].what == trace_event_kind::lease && seen[3].bytes == 512));
}

TEST_CASE("a copy that cannot be started is not counted", "[manager]")
{
  set_up it;
  it.backend.fail_in = 0;
  CHECK_THROWS_AS(load(it.copies, 0, chunk_in(1, nowhere, 0), 0), device_error);
  report told;
  it.copies.describe(told);
  CHECK((told.loads == 0 && told.loaded == bytes{0}));
}

namespace {

/// The recorded calls of a mover for all ranks.
struct collective_call {
  bool is_sum = false;
  const std::byte* whole = nullptr;
  std::uint64_t size = 0;
  std::uint32_t label = 0;
  std::size_t behind = 0;  ///< calls of the backend before it
  bool operator==(const collective_call&) const = default;
};

constexpr agent ranks_agent{4};
constexpr agent caller_stream{5};

/// What the other ranks do, and how often they were waited for and asked.
struct ranks_state {
  int awaited = 0;
  int asked = 0;
  bool failed = false;
};

/// Moves nothing, gives its worker a number of work for each call, and records.
struct listening_gatherer : copy_mover {
  std::vector<collective_call>* heard = nullptr;
  ranks_state* state = nullptr;
  agent worker() const noexcept { return ranks_agent; }
  agent worker_of_sums() const noexcept { return ranks_agent; }
  agent worker_of_shares() const noexcept { return agent::to_device; }
  void gather(listening_backend& backend, std::byte* whole, bytes size, std::uint32_t label)
  {
    note(backend, {false, whole, size.count(), label});
  }
  void sum(listening_backend& backend, std::byte* whole, bytes size, std::uint32_t label, collective::sum)
  {
    note(backend, {true, whole, size.count(), label});
  }
  void await(listening_backend&, event) { ++state->awaited; }
  void check()
  {
    ++state->asked;
    if (state->failed) throw comm_error{"a rank is gone"};
  }

 private:
  void note(listening_backend& backend, collective_call it)
  {
    it.behind = backend.heard.size();
    heard->push_back(it);
    backend.work(ranks_agent);
  }
};

/// Chunk 0 is gathered; 1 and 2 contain runs of this rank's shard, 3 nothing of it.
struct gathering_set_up {
  explicit gathering_set_up(sequence<chunk_share> shares = {{chunk_id{0}, chunk_id{1}, 256, 128, 128},
                                                            {chunk_id{0}, chunk_id{2}, 0, 512, 64}})
      : copies{backend, health, listening_gatherer{{}, &told, &others}, trace::null_sink{}}
  {
    const std::vector<std::uint64_t> used{1'000, 512, 256, 300};
    copies.reset(used, frame_size, {{device.data(), host.data()}}, {{6, 6}});
    places.reset(std::vector<std::uint32_t>(4, 1), 4);
    places[chunk_id{0}].first_frame[tier::host] = chunk::elsewhere;
    for (const std::uint32_t index : {1U, 2U}) places[chunk_id{index}].live = 1;
    copies.derive({std::move(shares), {70, 71, 72, 73}}, places);
  }
  [[nodiscard]] std::vector<call> copied() const
  {
    std::vector<call> result;
    for (const call& it : backend.heard)
      if (it.what == call::kind::copy) result.push_back(it);
    return result;
  }
  listening_backend backend;
  std::array<std::byte, 7 * frame_size> device{};
  std::array<std::byte, 7 * frame_size> host{};
  std::vector<collective_call> told;
  ranks_state others;
  device_health health;
  chunk_table places;
  copy_engine<listening_backend, listening_gatherer, trace::null_sink> copies;
};

}  // namespace

TEST_CASE("a gathered chunk is made from its shares, each from the device where it is there, then gathered",
          "[manager]")
{
  gathering_set_up it;
  it.places[chunk_id{1}].first_frame[tier::host] = frame_id{4};
  it.places[chunk_id{1}].set_valid(tier::host, true);
  it.places[chunk_id{2}].first_frame[tier::device] = frame_id{1};
  it.places[chunk_id{2}].first_frame[tier::host] = frame_id{5};  // what the host has of it may be old
  load(it.copies, 0, it.places[chunk_id{0}], 3);
  const std::byte* const whole = &it.device[3 * frame_size];
  CHECK(it.copied() ==
        std::vector<call>{support::copied(agent::to_device, whole + 128, &it.host[4 * frame_size + 256], 128),
                          support::copied(agent::to_device, whole + 512, &it.device[frame_size], 64)});
  REQUIRE(it.told.size() == 1);
  CHECK((!it.told[0].is_sum && it.told[0].whole == whole && it.told[0].size == 1'000 && it.told[0].label == 70));
  for (std::size_t index = it.told[0].behind; index < it.backend.heard.size(); ++index)
    CHECK(it.backend.heard[index].what != call::kind::copy);

  it.places[chunk_id{1}].first_frame[tier::device] =
      frame_id{5};  // now both are there, and the host's copies still valid
  it.places[chunk_id{2}].set_valid(tier::host, true);
  load(it.copies, 0, it.places[chunk_id{0}], 0);
  const std::vector<call> copied = it.copied();
  REQUIRE(copied.size() == 4);
  CHECK(copied[2] == support::copied(agent::to_device, &it.device[128], &it.device[5 * frame_size + 256], 128));
  CHECK(copied[3] == support::copied(agent::to_device, &it.device[512], &it.device[frame_size], 64));
  report told;
  it.copies.describe(told);
  // what ranks move is not the link's
  CHECK((told.loads == 4 && told.loaded == bytes{2 * (128 + 64)} && told.write_backs == 0));
}

TEST_CASE("the calling thread follows the work of ranks only if that has succeeded, other agents at once", "[manager]")
{
  gathering_set_up it;
  it.places[chunk_id{1}].first_frame[tier::host] = frame_id{4};
  it.places[chunk_id{2}].first_frame[tier::host] = frame_id{5};
  load(it.copies, 0, it.places[chunk_id{0}], 3);
  frame_hazards& whole = it.copies.hazards_at(tier::device, frame_id{3});
  it.others.failed = true;
  it.copies.follow(agent::compute, whole, whole.writers, wait_cause::demand_miss);
  CHECK((it.others.awaited == 0 && it.others.asked == 0));
  for (const int tries : {1, 2}) {
    CHECK_THROWS_AS(it.copies.follow(agent::host, whole, whole.writers, wait_cause::demand_miss), comm_error);
    CHECK(whole.writers != 0);  // so that the next one asks again
    CHECK((it.others.awaited == 1 && it.others.asked == tries));
  }
  it.others.failed = false;
  it.copies.follow(agent::host, whole, whole.writers, wait_cause::demand_miss);
  CHECK((whole.writers == 0 && it.others.awaited == 1 && it.others.asked == 3));
  it.copies.follow(agent::host, whole, whole.writers, wait_cause::demand_miss);
  CHECK(it.others.asked == 3);  // what was known to be good stays so
}

TEST_CASE("a gather follows the copies of the share and all who used the room, and is followed itself", "[manager]")
{
  gathering_set_up it;
  auto& tracker = it.copies.tracker();
  it.places[chunk_id{1}].first_frame[tier::device] = frame_id{1};
  it.places[chunk_id{2}].first_frame[tier::host] = frame_id{2};
  const std::uint64_t wrote_share = it.backend.work(agent::compute);
  tracker.stamp(agent::compute, it.copies.hazards_at(tier::device, frame_id{1}), true);
  const std::uint64_t read_room = it.backend.work(caller_stream);
  tracker.stamp(caller_stream, it.copies.hazards_at(tier::device, frame_id{3}), false);
  const std::uint64_t wrote_host_copy = it.backend.work(agent::to_host);
  hazard_tracker<listening_backend>::stamp_copy(tracker.copied(agent::to_host),
                                                it.copies.hazards_at(tier::host, frame_id{2}), true);
  load(it.copies, 0, it.places[chunk_id{0}], 3);
  CHECK(it.backend.knows(agent::to_device, agent::compute) >= wrote_share);
  CHECK(it.backend.knows(agent::to_device, caller_stream) >= read_room);
  CHECK(it.backend.knows(agent::to_device, agent::to_host) >= wrote_host_copy);
  CHECK(it.backend.knows(ranks_agent, agent::to_device) == 2);
  CHECK(it.backend.knows(ranks_agent, caller_stream) >= read_room);

  // read: who reads it too has nothing to wait for, who writes it has
  frame_hazards& share = it.copies.hazards_at(tier::device, frame_id{1});
  CHECK((share.writers >> static_cast<unsigned>(agent::to_device) & 1U) == 0);
  tracker.follow(agent::compute, share, share.users, wait_cause::other);
  CHECK(it.backend.knows(agent::compute, agent::to_device) >= 1);
  CHECK(it.backend.knows(agent::compute, ranks_agent) == 0);
  frame_hazards& whole = it.copies.hazards_at(tier::device, frame_id{3});
  tracker.follow(agent::compute, whole, whole.writers, wait_cause::other);
  CHECK(it.backend.knows(agent::compute, ranks_agent) == 1);
}

TEST_CASE("a rank that owns nothing of a gathered chunk takes part, behind who used the room", "[manager]")
{
  gathering_set_up it{{}};
  auto& tracker = it.copies.tracker();
  const std::uint64_t used = it.backend.work(agent::compute);
  tracker.stamp(agent::compute, it.copies.hazards_at(tier::device, frame_id{3}), false);
  load(it.copies, 0, it.places[chunk_id{0}], 3);
  CHECK(it.copied().empty());
  REQUIRE(it.told.size() == 1);
  CHECK(it.backend.knows(ranks_agent, agent::compute) >= used);
  report told;
  it.copies.describe(told);
  CHECK((told.loads == 0 && told.loaded == bytes{0}));
}

TEST_CASE("a sum over ranks follows all users of its chunk, and is followed by the next", "[manager]")
{
  gathering_set_up it;
  auto& tracker = it.copies.tracker();
  frame_hazards& frames = it.copies.hazards_at(tier::device, frame_id{2});
  it.places[chunk_id{3}].first_frame[tier::device] = frame_id{2};
  const std::uint64_t wrote = it.backend.work(agent::compute);
  tracker.stamp(agent::compute, frames, true);
  const std::uint64_t read = it.backend.work(caller_stream);
  tracker.stamp(caller_stream, frames, false);
  it.copies.sum(chunk_id{3}, it.places[chunk_id{3}], 9, {dtype::bfloat16, 0.5F});
  CHECK(it.told == std::vector<collective_call>{{true, &it.device[2 * frame_size], 300, 9, it.told[0].behind}});
  CHECK(it.backend.knows(ranks_agent, agent::compute) >= wrote);
  CHECK(it.backend.knows(ranks_agent, caller_stream) >= read);
  tracker.follow(agent::compute, frames, frames.writers, wait_cause::other);
  CHECK(it.backend.knows(agent::compute, ranks_agent) == 1);
  CHECK(it.copied().empty());
}

TEST_CASE("a share that was never filled, or a copy of one that fails, makes no gather", "[manager]")
{
  gathering_set_up it;
  it.places[chunk_id{1}].first_frame[tier::host] = frame_id{4};
  it.places[chunk_id{2}].live = 0;
  CHECK_THROWS_AS(load(it.copies, 0, it.places[chunk_id{0}], 3), usage_error);
  it.places[chunk_id{2}].live = 1;
  it.places[chunk_id{2}].first_frame[tier::host] = frame_id{5};
  for (std::uint64_t which = 0;; ++which) {
    const std::size_t before = it.told.size();
    it.backend.fail_in = which;
    try {
      load(it.copies, 0, it.places[chunk_id{0}], 3);
      it.backend.fail_in = UINT64_MAX;
      break;
    } catch (const device_error&) {
      // then only its event failed: before it are two copies, theirs, and a wait
      CHECK(it.told.size() == before + (which == 5 ? 1 : 0));
    }
  }
  CHECK(it.told.size() == 2);
}

namespace {

/// Who read and wrote a frame last, as numbers of work.
struct history {
  std::map<agent, std::uint64_t> readers, writers;
};

bool follows(listening_backend& backend, agent stream, const std::map<agent, std::uint64_t>& work)
{
  return std::all_of(work.begin(), work.end(), [&](const auto& it) {
    return it.first == stream || backend.knows(stream, it.first) >= it.second;
  });
}

}  // namespace

TEST_CASE("gathers, sums, copies and users of two chunks never overtake each other, whatever happens", "[manager]")
{
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    support::dice dice{seed};
    gathering_set_up it{{{chunk_id{0}, chunk_id{1}, 0, 256, 512}}};
    auto& tracker = it.copies.tracker();
    history whole, share, host_copy;  // frame 0 and 1 of the device, frame 1 of the host
    it.places[chunk_id{1}].first_frame = {{frame_id{1}, frame_id{1}}};
    const auto check = [&](agent stream, const history& frame, bool writing) {
      if (!follows(it.backend, stream, frame.writers))
        FAIL("seed " << seed << ": agent " << static_cast<unsigned>(stream) << " does not follow a writer");
      if (writing && !follows(it.backend, stream, frame.readers))
        FAIL("seed " << seed << ": a writer does not follow a reader");
    };
    const auto moved = [&](agent stream, history& to, history& from) {
      check(stream, from, false);
      check(stream, to, true);
      to.writers[stream] = from.readers[stream] = it.backend.knows(stream, stream);
    };
    const auto worked_for_ranks = [&] {
      check(ranks_agent, whole, true);
      whole.writers[ranks_agent] = it.backend.knows(ranks_agent, ranks_agent);
    };
    for (int step = 0; step < 80; ++step) {
      const std::uint32_t what = dice.below(8);
      if (what == 0) {
        it.places[chunk_id{1}].first_frame[tier::device] = dice.one_in(2) ? frame_id{1} : chunk::nowhere;
        load(it.copies, 0, it.places[chunk_id{0}], 0);
        moved(agent::to_device, whole, it.places[chunk_id{1}].has_frames(tier::device) ? share : host_copy);
        it.places[chunk_id{1}].first_frame[tier::device] = frame_id{1};
        worked_for_ranks();
      } else if (what == 1) {
        it.places[chunk_id{0}].first_frame[tier::device] = frame_id{0};
        it.copies.sum(chunk_id{0}, it.places[chunk_id{0}], 0, {});
        worked_for_ranks();
      } else if (what == 2) {
        write_back(it.copies, 1, it.places[chunk_id{1}]);
        moved(agent::to_host, host_copy, share);
      } else if (what == 3) {
        load(it.copies, 1, it.places[chunk_id{1}], 1);
        moved(agent::to_device, share, host_copy);
      } else {  // a pin
        const agent stream = dice.one_in(2) ? agent::compute : caller_stream;
        const bool writing = dice.one_in(2);
        history& used = what % 2 == 0 ? whole : share;
        frame_hazards& frame = it.copies.hazards_at(tier::device, frame_id{what % 2});
        tracker.follow(stream, frame, writing ? frame.users : frame.writers, wait_cause::other);
        check(stream, used, writing);
        const std::uint64_t number = it.backend.work(stream);
        tracker.stamp(stream, frame, writing);
        (writing ? used.writers : used.readers)[stream] = number;
      }
    }
  }
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
      it.copies.tracker().follow(agent::to_host, it.copies.hazards_at(where, frame_id{frame}),
                                 it.copies.hazards_at(where, frame_id{frame}).writers, wait_cause::other);
      const bool waited = it.backend.heard.size() > before;
      CHECK(waited == (where == tier::device && frame == 0));  // one event covers them all
      CHECK(it.copies.hazards_at(where, frame_id{frame}).writers != 0);
    }
  }
  report told;
  it.copies.describe(told);
  CHECK((told.loads == 6 && told.loaded == bytes{6'000} && told.write_backs == 4 && told.written_back == bytes{1'024}));
  CHECK(told.evictions == 2);
}

}  // namespace copy_engine_test
