// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/rehearsal.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/profile/profile_text.hpp>
#include <chunkmem/transfer/transfers.hpp>

#include <support/catch.hpp>
#include <support/every_policy.hpp>
#include <support/oracles/toy_core.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "parts_rig.hpp"

namespace rehearsal_test {

using namespace chunkmem;
using support::frame_bytes;

namespace {

/// The iteration runs with these frames, forty times, from each start: recorded after the filling, on a device that
/// holds all, or on one that was cleared; and with its record known on an empty device.
template <class Transfer>
bool runs(const support::every_eviction& eviction, const support::toy_core& core, const support::random_iteration& it,
          std::uint64_t device, std::uint64_t host)
{
  enum class start { filled, cleared, known };
  for (const start from : {start::filled, start::cleared, start::known}) {
    const bool recording = from != start::known;
    chunk_cache<support::every_eviction> state{eviction};
    core.shape(state, {{bytes{device * frame_bytes}, bytes{host * frame_bytes}}});
    support::cell_memory memory{it.chunk_of_slot, state.space(tier::device).frames(), state.space(tier::host).frames()};
    support::iteration_runner runner{it, state, memory};
    try {
      runner.fill(recording);
      if (recording && (from == start::cleared || !core.device_holds_all(state))) state.evict_all(memory);
      for (int pass = 0; pass < 40; ++pass) {
        const bool known = !recording || pass > 0;
        if (known && (Transfer::plans || pass == (recording ? 1 : 0))) {
          state.start_of(it.record);
          state.tell_policy(it.record);
        }
        runner.run(known);
      }
    } catch (const out_of_memory&) {
      return false;
    }
    if (!memory.mistake.empty()) FAIL(memory.mistake);
  }
  return true;
}

/// Most bytes that are pinned, or leased, at one moment of the device, by looking at every moment.
std::uint64_t most_at_once(const support::random_iteration& it, bool leases_only)
{
  std::uint64_t most = 0;
  for (std::uint32_t now = 0; now < it.record.size(); ++now) {
    std::uint64_t held = 0;
    std::vector<bool> counted(it.chunks(), false);
    for (std::uint32_t index = 0; index <= now; ++index) {
      const access_entry& entry = it.record.entries()[index];
      if (it.record.details()[index].until <= now) continue;
      if (entry.kind == entry_kind::lease_device) held += it.record.details()[index].bytes;
      if (leases_only || !is_access(entry.kind) || place_of(entry.kind) == memory_location::host) continue;
      const std::uint32_t chunk = it.chunk_of_slot[entry.slot];
      if (!counted[chunk]) held += it.frames_of_chunk[chunk] * frame_bytes;
      counted[chunk] = true;
    }
    most = std::max(most, held);
  }
  return most;
}

/// Compares with trying each capacity. @return   the least device has more than one frame
template <class Transfer>
bool smallest_is_smallest(const support::every_eviction& eviction, std::uint64_t seed)
{
  INFO("seed " << seed << ", eviction " << eviction.chosen());
  support::dice dice{seed};
  const support::iteration_traits traits{.entries = dice.between(1, 30), .longest_chunk = dice.between(1, 2)};
  const support::random_iteration it = support::roll_toy_iteration(dice, traits);
  const support::toy_core core{it.frames_of_chunk};
  const sequence<std::uint8_t> filled{std::span{it.filled}};
  std::uint64_t all = 0;
  for (const std::uint32_t frames : it.frames_of_chunk) all += frames;
  const std::uint64_t limit = 2 * all + 8;
  const std::uint64_t host = all + 1;
  rehearsal<support::every_eviction, Transfer> trial{core.frames(), eviction, it.record, filled};

  std::uint64_t expected = 1;
  while (expected <= limit && !runs<Transfer>(eviction, core, it, expected, host)) ++expected;
  REQUIRE(trial.smallest_device(bytes{host * frame_bytes}, limit) == expected);
  REQUIRE(trial.fits({{bytes{expected * frame_bytes}, bytes{host * frame_bytes}}}));
  if (expected > 1) REQUIRE_FALSE(trial.fits({{bytes{(expected - 1) * frame_bytes}, bytes{host * frame_bytes}}}));
  REQUIRE(trial.pinned_frames() == (most_at_once(it, false) + frame_bytes - 1) / frame_bytes);
  REQUIRE(most_leased(it.record, tier::device).count() == most_at_once(it, true));

  const std::uint64_t found = trial.smallest_host(bytes{expected * frame_bytes}, host);
  REQUIRE(runs<Transfer>(eviction, core, it, expected, found));
  if (found > 0) REQUIRE_FALSE(runs<Transfer>(eviction, core, it, expected, found - 1));
  return expected > 1;
}

template <class Transfer>
void smallest_is_smallest_from(std::uint64_t first_seed)
{
  constexpr int seeds = support::sanitized ? 10 : 150;
  int tight = 0;
  for (const std::string_view which : support::every_eviction::names)
    for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed)
      if (smallest_is_smallest<Transfer>(support::every_eviction{which}, seed)) ++tight;
  CHECK(tight > 2 * seeds);
}

}  // namespace

TEST_CASE("the smallest capacities are those that trying each of them finds, for every eviction on demand", "[manager]")
{
  smallest_is_smallest_from<transfer::no_prefetch>(100);
}

TEST_CASE("the smallest capacities are those that trying each of them finds, for every eviction ahead of time",
          "[manager]")
{
  smallest_is_smallest_from<transfer::lookahead>(200);
}

TEST_CASE("a step that fits nowhere gives one more than the limit", "[manager]")
{
  support::record_builder build;
  build.access(0);
  build.access(1);
  const support::toy_core core{{1, 1}};
  const access_record record = build.finish({0, 1}, 2);
  const sequence<std::uint8_t> filled{1, 1};
  rehearsal<eviction::lru, transfer::no_prefetch> trial{core.frames(), {}, record, filled};
  CHECK(trial.smallest_device(bytes{2 * frame_bytes}, 1) == 2);
  CHECK(trial.smallest_device(bytes{2 * frame_bytes}, 9) == 2);
  CHECK(trial.smallest_device(bytes{2 * frame_bytes}, 9, 5) == 5);
  CHECK(trial.pinned_frames() == 2);
}

TEST_CASE("a host capacity that was found fits also where reclaims leave off elsewhere", "[manager]")
{
  smallest_is_smallest<transfer::lookahead>(support::every_eviction{"belady"}, 9'455);
}

}  // namespace rehearsal_test

namespace capacity_check_test {

namespace cm = chunkmem;
using namespace cm::literals;
using memory = cm::backend::simulated;
using demand = cm::manager<memory, cm::eviction::lru, cm::transfer::no_prefetch>;

namespace {

/// Five tensors of one frame, three of them pinned at once beside a lease of a frame and a half.
cm::memory_requirement measure(cm::bytes device, cm::bytes host)
{
  memory mem{{.device_capacity = device, .host_capacity = host}};
  demand m{mem, {.chunk_bytes = 1_KiB}};
  const auto layers = m.add_stacked<float>(5, {256}, cm::role::parameter);
  return m.rehearse([&] {
    const auto iteration = m.iteration();
    const auto first = m.acquire(layers.slice(0), cm::access::read);
    const auto second = m.acquire(layers.slice(1), cm::access::read_write);
    const auto scratch = m.lease(cm::tier::device, 1536_B);
    for (std::uint32_t index = 2; index < 5; ++index) (void)m.acquire(layers.slice(index), cm::access::read_write);
  });
}

}  // namespace

TEST_CASE("a rehearsal finds the least device, to the frame", "[manager]")
{
  const cm::memory_requirement need = measure(64_KiB, 64_KiB);
  CHECK(need.rehearsed);
  CHECK(need.largest_leases == 1536_B);
  CHECK(need.smallest_device == 5_KiB);  // three pins and two frames that the lease touches
  CHECK(measure(need.smallest_device, 64_KiB).smallest_device == need.smallest_device);
  CHECK_THROWS_AS(measure(need.smallest_device - 1_KiB, 64_KiB), cm::config_error);
}

TEST_CASE("a need prints a line for each number that is known", "[manager]")
{
  std::ostringstream text;
  text << measure(6_KiB, 64_KiB);
  CHECK(text.str() ==
        "parameter_bytes 5120\ngradient_bytes 5120\nchunk_bytes 1024\nchunks_bytes 10240\neverything_bytes 12288\n"
        "smallest_device_bytes 5120\nlargest_leases_bytes 1536\nsmallest_host_bytes 5120\n");
}

TEST_CASE("a rehearsal finds the least host beside the device, to the frame", "[manager]")
{
  const cm::memory_requirement need = measure(6_KiB, 64_KiB);
  CHECK(need.smallest_host >= 1_KiB);
  CHECK(need.smallest_host <= 5_KiB);
  (void)measure(6_KiB, need.smallest_host);
  CHECK_THROWS_AS(measure(6_KiB, need.smallest_host - 1_KiB), cm::config_error);
}

TEST_CASE("leases on the host count among what the host must hold", "[manager]")
{
  const auto with_host = [](cm::bytes host) {
    memory mem{{.device_capacity = 4_KiB, .host_capacity = host}};
    demand m{mem, {.chunk_bytes = 1_KiB}};
    const auto layers = m.add_stacked<float>(3, {256}, cm::role::parameter);
    return m.rehearse([&] {
      const auto iteration = m.iteration();
      const auto scratch = m.lease(cm::tier::host, 10_KiB);
      for (std::uint32_t index = 0; index < 3; ++index)
        (void)m.acquire(layers.slice(index), cm::access::read_write, cm::memory_location::host);
    });
  };
  const cm::memory_requirement need = with_host(1_MiB);
  CHECK(need.smallest_host >= 11_KiB);
  CHECK(need.smallest_device <= 3_KiB);
  (void)with_host(need.smallest_host);
  CHECK_THROWS_AS(with_host(need.smallest_host - 1_KiB), cm::config_error);
}

}  // namespace capacity_check_test

namespace rehearse_on_test {

namespace cm = chunkmem;
using namespace cm::literals;

namespace {

constexpr std::uint32_t layers = 5;
constexpr std::uint32_t width = 24;

/// The record of the last rehearsal as text.
template <class Manager>
[[nodiscard]] std::string rehearsed(const Manager& m)
{
  std::ostringstream out;
  cm::profile_text::write(out, m.rehearsed());
  return std::move(out).str();
}

/// Trains a chain of layers by plain loops. `guards`: none of them runs in a rehearsal, as where pins are null.
template <class Backend, class... Policies>
struct trainer {
  trainer(Backend& memory, bool guards_loops) : m{memory, {.chunk_bytes = 4_KiB}}, guards{guards_loops} { m.use(adam); }
  [[nodiscard]] bool runs() const { return !guards || !m.rehearsing(); }
  void fill()
  {
    for (std::uint32_t index = 0; index < layers; ++index)
      for (float& it : m.acquire(weights.slice(index), cm::access::write).span())
        it = 0.01F * static_cast<float>(index + 1);
  }
  void step()
  {
    const auto scope = m.iteration();
    auto work = m.lease(cm::tier::device, cm::bytes{3 * 4096});  // larger than any tensor
    if (runs()) work.template span<float>()[3 * 1024 - 1] = 1.0F;
    {
      const auto first = m.acquire(outputs.slice(0), cm::access::write);
      if (runs())
        for (float& it : first.span()) it = 1.0F;
    }
    for (std::uint32_t index = 0; index < layers; ++index) {
      const auto weight = m.acquire(weights.slice(index), cm::access::read);
      const auto before = m.acquire(outputs.slice(index), cm::access::read);
      const auto after = m.acquire(outputs.slice(index + 1), cm::access::write);
      if (!runs()) continue;
      const auto w = std::as_const(weight).span();
      for (std::size_t row = 0; row < width; ++row) {
        float sum = 0.0F;
        for (std::size_t column = 0; column < width; ++column) sum += w[row * width + column] * before.span()[column];
        after.span()[row] = sum;
      }
    }
    for (std::uint32_t index = layers; index-- > 0;) {
      auto weight = m.acquire(weights.slice(index), cm::access::read);
      const auto output = m.acquire(outputs.slice(index + 1), cm::access::read);
      const auto gradient = m.gradient(std::move(weight));
      if (runs())
        for (std::size_t row = 0; row < width; ++row)
          for (std::size_t column = 0; column < width; ++column)
            gradient.span()[row * width + column] = output.span()[row];
    }
    for (std::uint32_t index = 0; index <= layers; ++index) m.drop(outputs.slice(index));
    work.release();
    (void)cm::optimizer::step(m, adam, {.learning_rate = 0.01F, .clip = {.norm = 1.0F}});
  }
  [[nodiscard]] std::vector<float> values()
  {
    std::vector<float> all;
    for (std::uint32_t index = 0; index < layers; ++index) {
      const auto pin = m.acquire(weights.slice(index), cm::access::read);
      for (const float it : pin.span()) all.push_back(it);
    }
    return all;
  }

  cm::optimizer::adam adam;
  cm::manager<Backend, Policies...> m;
  cm::stacked<float> weights = m.template add_stacked<float>(layers, {width, width}, cm::role::parameter);
  cm::stacked<float> outputs = m.template add_stacked<float>(layers + 1, {width}, cm::role::activation);
  bool guards;
};

void check_equal(const cm::memory_requirement& one, const cm::memory_requirement& other)
{
  CHECK(one.smallest_device == other.smallest_device);
  CHECK(one.smallest_host == other.smallest_host);
  CHECK(one.largest_leases == other.largest_leases);
  CHECK(one.rehearsed);
  CHECK(other.rehearsed);
}

using arena = cm::backend::host_arena;
const cm::backend::host_arena_options room{.device_capacity = 64_KiB, .host_capacity = 256_KiB};

}  // namespace

namespace {

/// Values after some steps. @throws config_error, out_of_memory   these capacities are too small
template <class Trainer>
std::vector<float> train_in(cm::bytes device, cm::bytes host, bool rehearses)
{
  arena memory{{.device_capacity = device, .host_capacity = host}};
  Trainer it{memory, true};
  if (rehearses) (void)it.m.rehearse([&] { it.step(); });
  it.fill();
  for (int step = 0; step < 5; ++step) it.step();
  return it.values();
}

/// Each device from the smallest to one with room for all trains beside the host that was told, and beside no less.
/// @param rehearses   before it trains: the placement gives states other tiers by what was measured
template <class... Policies>
void trains_beside_no_less(bool rehearses, std::size_t least_hosts)
{
  using trainer_type = trainer<arena, Policies...>;
  constexpr cm::bytes frame = 4_KiB;
  std::vector<cm::bytes> devices;
  for (cm::bytes device = frame; device <= 128_KiB; device += frame) devices.push_back(device);
  arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  trainer_type asked{memory, true};
  const cm::memory_requirement need =
      asked.m.rehearse([&] { asked.step(); }, cm::rehearse_on::nothing, nullptr, devices);
  REQUIRE(need.smallest_device > frame);
  REQUIRE(need.everything <= 128_KiB);
  const std::vector<float> wanted = train_in<trainer_type>(1_MiB, 1_MiB, rehearses);
  std::vector<cm::bytes> hosts;
  for (const cm::bytes device : devices) {
    INFO("device " << device.count());
    if (device < need.smallest_device) {
      CHECK_THROWS_AS(need.smallest_host_for(device), cm::config_error);
      CHECK_THROWS_AS((train_in<trainer_type>(device, 1_MiB, rehearses)), cm::error);
      continue;
    }
    const cm::bytes host = need.smallest_host_for(device);
    if (hosts.empty() || host < hosts.back()) hosts.push_back(host);
    INFO("host " << host.count());
    CHECK(train_in<trainer_type>(device, host, rehearses) == wanted);
    if (host > 0_B) CHECK_THROWS_AS((train_in<trainer_type>(device, host - frame, rehearses)), cm::error);
    arena there{{.device_capacity = device, .host_capacity = 1_MiB}};
    trainer_type it{there, true};
    CHECK(it.m.rehearse([&] { it.step(); }).smallest_host == host);
  }
  CHECK(hosts.size() >= least_hosts);
}

}  // namespace

TEST_CASE("a rehearsal tells the least host beside other devices, and a frame less does not train", "[manager]")
{
  trains_beside_no_less<cm::eviction::lru, cm::transfer::no_prefetch>(false, 4);
  trains_beside_no_less<cm::eviction::belady, cm::transfer::lookahead>(false, 4);
  trains_beside_no_less<cm::placement::device_margin>(true, 4);
}

TEST_CASE("a device that a rehearsal was not given has no least host, and says so", "[manager]")
{
  arena memory{room};
  trainer<arena> it{memory, true};
  const cm::bytes cards[] = {4_KiB, 64_KiB};
  const auto rehearse = [&](std::span<const cm::bytes> others) {
    return it.m.rehearse([&] { it.step(); }, cm::rehearse_on::nothing, nullptr, others);
  };
  const cm::memory_requirement need = rehearse(cards);
  CHECK(need.smallest_host_for(64_KiB) == need.smallest_host);
  CHECK_THROWS_WITH(need.smallest_host_for(4_KiB), Catch::Matchers::ContainsSubstring("4096 B: this step needs") &&
                                                       Catch::Matchers::ContainsSubstring("at least"));
  CHECK_THROWS_AS(need.smallest_host_for(32_KiB), cm::usage_error);
  CHECK_THROWS_WITH(rehearse({}).smallest_host_for(64_KiB),
                    Catch::Matchers::ContainsSubstring("not given a device of"));
}

TEST_CASE("plain loops without a test for null rehearse on scratch bytes, and need and record the same", "[manager]")
{
  arena memory{room};
  trainer<arena> guarded{memory, true};
  const cm::memory_requirement wanted = guarded.m.rehearse([&] { guarded.step(); });
  arena other{room};
  trainer<arena> plain{other, false};
  const cm::memory_requirement found = plain.m.rehearse([&] { plain.step(); }, cm::rehearse_on::scratch);
  check_equal(found, wanted);
  CHECK(rehearsed(plain.m) == rehearsed(guarded.m));
  check_equal(plain.m.rehearse([&] { plain.step(); }, cm::rehearse_on::scratch), wanted);  // and once more
  guarded.fill();
  plain.fill();
  for (int step = 0; step < 4; ++step) guarded.step(), plain.step();
  CHECK(plain.values() == guarded.values());
  CHECK(plain.m.report().divergences == 0);
  check_equal(plain.m.rehearse([&] { plain.step(); }, cm::rehearse_on::scratch), wanted);  // between real ones
  CHECK(plain.values() == guarded.values());
}

TEST_CASE("a rehearsal with a known need answers it, records the same, and refuses what the need refuses", "[manager]")
{
  arena memory{room};
  trainer<arena> first{memory, true};
  const cm::memory_requirement need = first.m.rehearse([&] { first.step(); });
  arena other{room};
  trainer<arena> second{other, true};
  int runs = 0;
  const cm::memory_requirement told =
      second.m.rehearse([&] { ++runs, second.step(); }, cm::rehearse_on::nothing, &need);
  CHECK(runs == 1);
  check_equal(told, need);
  CHECK(rehearsed(second.m) == rehearsed(first.m));
  first.fill();
  second.fill();
  for (int step = 0; step < 4; ++step) first.step(), second.step();
  CHECK(second.values() == first.values());
  CHECK(second.m.report().loaded == first.m.report().loaded);
  CHECK(second.m.report().written_back == first.m.report().written_back);
  CHECK(second.m.report().peak[cm::tier::device] == first.m.report().peak[cm::tier::device]);

  cm::memory_requirement larger = need;  // the need is not searched again, but what it says
  larger.smallest_device = room.device_capacity + 4_KiB;
  arena third_memory{room};
  trainer<arena> third{third_memory, true};
  CHECK_THROWS_AS(third.m.rehearse([&] { third.step(); }, cm::rehearse_on::nothing, &larger), cm::config_error);
}

TEST_CASE("what is read on scratch bytes is zero, what is written is room enough, and nothing is left of it",
          "[manager]")
{
  arena memory{room};
  trainer<arena> it{memory, false};
  std::vector<bool> seen;
  const auto look = [&] {
    const auto read = it.m.acquire(it.weights.slice(0), cm::access::read);
    const auto written = it.m.acquire(it.weights.slice(1), cm::access::write);
    const auto lease = it.m.lease(cm::tier::host, 8_KiB);
    const auto small = it.m.lease(cm::tier::device, 256_B);
    const auto more = it.m.acquire(it.weights.slice(2), cm::access::read_write, cm::memory_location::host);
    REQUIRE(read.span().size() == width * width);
    for (float& value : written.span()) value = std::numeric_limits<float>::quiet_NaN();
    for (std::byte& value :
         lease.span<std::uint8_t>().size() == 8192 ? std::span{lease.data(), 8192} : std::span<std::byte>{})
      value = std::byte{255};
    more.span()[width * width - 1] = 1.0F;
    small.data()[255] = std::byte{1};
    bool is_zero = true;
    const auto values = std::as_const(read).span();
    for (const float value : values) is_zero = is_zero && value == 0.0F;
    seen.push_back(is_zero);
    for (const void* address : {static_cast<const void*>(read.data()), static_cast<const void*>(written.data()),
                                static_cast<const void*>(lease.data())})
      seen.push_back(reinterpret_cast<std::uintptr_t>(address) % 256 == 0);
  };
  (void)it.m.rehearse(look, cm::rehearse_on::scratch);
  CHECK(seen == std::vector<bool>(seen.size(), true));
  CHECK(seen.size() >= 4);
  CHECK(it.m.report().peak[cm::tier::host] == 0_B);
  bool is_null = false;
  (void)it.m.rehearse([&] { is_null = it.m.acquire(it.weights.slice(0), cm::access::read).span().size() == 0; });
  CHECK(is_null);
}

TEST_CASE("gradients that are not finite on scratch bytes change no decision", "[manager]")
{
  arena memory{room};
  trainer<arena> it{memory, false};
  const auto spoilt = [&] {
    it.step();
    for (std::uint32_t index = 0; index < layers; ++index) {
      auto gradient = it.m.gradient(it.weights.slice(index));
      if (it.runs())
        for (float& value : gradient.span()) value = std::numeric_limits<float>::infinity();
      it.m.gradient_done(std::move(gradient));
    }
    (void)cm::optimizer::step(it.m, it.adam, {.learning_rate = 0.01F, .clip = {.norm = 1.0F}});
  };
  const cm::memory_requirement on_scratch = it.m.rehearse(spoilt, cm::rehearse_on::scratch);
  const std::string record = rehearsed(it.m);
  it.guards = true;
  check_equal(it.m.rehearse(spoilt), on_scratch);
  CHECK(rehearsed(it.m) == record);
}

TEST_CASE("kernels on a stream have ended before their scratch bytes are given back", "[manager]")
{
  cm::backend::host_arena_options streams = room;
  streams.async_compute = true;
  arena memory{streams};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<float>({1024}, cm::role::buffer);
  int ran = 0;
  const auto launch = [&] {
    const auto pin = m.acquire(weight, cm::access::write, cm::agent::compute);
    float* const to = pin.data();
    m.backend().launch(cm::agent::compute, [to, &ran] {
      for (int index = 0; index < 1024; ++index) to[index] = 1.0F;
      ++ran;
    });
  };
  (void)m.rehearse(launch, cm::rehearse_on::scratch);
  CHECK(ran == 1);
}

TEST_CASE("a rehearsal on scratch bytes ends as any, by an exception and inside another one", "[manager]")
{
  arena memory{room};
  trainer<arena> it{memory, false};
  CHECK_THROWS_AS(it.m.rehearse([] { throw std::runtime_error{"enough"}; }, cm::rehearse_on::scratch),
                  std::runtime_error);
  CHECK_FALSE(it.m.rehearsing());
  bool is_there = false;
  (void)it.m.rehearse(
      [&] {
        const auto before = it.m.acquire(it.weights.slice(0), cm::access::write);
        CHECK_THROWS_AS(it.m.rehearse([] {}, cm::rehearse_on::scratch), cm::usage_error);
        before.span()[0] = 1.0F;
        is_there = it.m.acquire(it.weights.slice(1), cm::access::read).span().size() > 0;
      },
      cm::rehearse_on::scratch);
  CHECK(is_there);
  std::optional<cm::lease<cm::manager<arena>::engine_type>> escaped;
  const auto let_escape = [&] { escaped.emplace(it.m.lease(cm::tier::device, 256_B)); };
  CHECK_THROWS_WITH(it.m.rehearse(let_escape, cm::rehearse_on::scratch),
                    Catch::Matchers::ContainsSubstring("outlived the step"));
  CHECK_FALSE(it.m.rehearsing());
  *escaped->data() = std::byte{1};  // a mistake of the trainer that stays in bytes of its own
  CHECK_NOTHROW(it.m.rehearse([] {}, cm::rehearse_on::scratch));
  *escaped->data() = std::byte{1};
  auto older = it.m.lease(cm::tier::device, 256_B);
  const auto let_another_escape = [&] {
    older.release();  // does not stand for the one that stays
    escaped.emplace(it.m.lease(cm::tier::device, 256_B));
  };
  CHECK_THROWS_WITH(it.m.rehearse(let_another_escape, cm::rehearse_on::scratch),
                    Catch::Matchers::ContainsSubstring("outlived the step"));
  escaped.reset();
  it.fill();
  it.step();
}

TEST_CASE("a device that the calling thread cannot address has no scratch bytes, and says so", "[manager]")
{
  cm::backend::simulated clock{{.device_capacity = 64_KiB, .host_capacity = 256_KiB}};
  cm::manager<cm::backend::simulated> m{clock, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<float>({1024}, cm::role::buffer);
  const auto step = [&] { m.acquire(weight, cm::access::read).release(); };
  CHECK_THROWS_AS(m.rehearse(step, cm::rehearse_on::scratch), cm::usage_error);
  CHECK_THROWS_WITH(m.rehearse(step, cm::rehearse_on::scratch), Catch::Matchers::ContainsSubstring("cannot address"));
  CHECK_NOTHROW(m.rehearse(step));
}

}  // namespace rehearse_on_test

namespace rehearse_step_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Weights of a chunk each, and the rehearsal of their steps.
template <class Placement = placement::optimizer_on_host>
struct fixture {
  using rig_type = manager_parts::parts_rig<Placement>;

  explicit fixture(bytes device = 64_KiB, bytes host = 256_KiB, Placement placement = {})
      : rig{device, host, {.chunk_bytes = 4_KiB}, placement}
  {
    for (int index = 0; index < 4; ++index) rig.template add<float>(1024);
    rig.builder.add_lists(std::span{manager_parts::momentum_and_master}.first(1));
  }
  template <class Step>
  memory_requirement run(Step step)
  {
    return rehearse_step(rig.engine, rig.builder, {}, step, rehearse_on::nothing, nullptr, {});
  }
  /// Nothing is held or has bytes.
  [[nodiscard]] bool is_untouched() const
  {
    for (const slot& each : rig.engine.tensors().slots())
      if (each.pins != 0 || each.state != tensor_state::free) return false;
    return !rig.engine.rehearsing().is_running() && rig.engine.snapshot().in_use[tier::device] == bytes{};
  }

  rig_type rig;
};

}  // namespace

TEST_CASE("a rehearsed step runs once without bytes, says what it needs at once, and leaves everything as it was",
          "[manager]")
{
  fixture it;
  it.rig.builder.place();
  it.rig.engine.gradients().finish(slot_id{1});
  int runs = 0;
  const memory_requirement need = it.run([&] {
    ++runs;
    CHECK(it.rig.engine.rehearsing().is_running());
    CHECK(it.rig.engine.gradients().is_open(slot_id{1}));
    for (std::uint32_t index = 0; index < 3; ++index) {
      const auto one = it.rig.template hold<const float>(slot_id{index}, access::read);
      const auto two = it.rig.template hold<const float>(slot_id{index + 1}, access::read);
      CHECK((one.data() == nullptr && two.span().empty()));
    }
    it.rig.engine.gradients().finish(slot_id{2});
  });
  CHECK(runs == 1);
  CHECK(need.rehearsed);
  CHECK(need.smallest_device == 8_KiB);
  CHECK(it.is_untouched());
  CHECK_FALSE(it.rig.engine.gradients().is_open(slot_id{1}));
  CHECK(it.rig.engine.gradients().is_open(slot_id{2}));
}

TEST_CASE("a step that throws ends its rehearsal, and a step that fits makes a model known to fit", "[manager]")
{
  fixture it{8_KiB, 4_KiB};  // 16 KiB of weights
  const tensor_handle last = it.rig.builder.handle_of(tensor_id{3});
  CHECK_THROWS_AS(it.run([&] {
    const auto pin = it.rig.template hold<float>(slot_id{0}, access::write);
    it.rig.engine.gradients().begin_update();
    throw std::runtime_error{"a step"};
  }),
                  std::runtime_error);
  CHECK(it.is_untouched());
  it.rig.engine.gradients().expect_no_update("this");
  CHECK_THROWS_AS(it.rig.builder.slot_of(last), config_error);
  const memory_requirement need = it.run([&] {
    for (const slot_id each : ids<slot_id>(4)) {
      (void)it.rig.template hold<float>(each, access::write);
      it.rig.engine.drop(each);
    }
  });
  CHECK(need.smallest_device == 4_KiB);
  CHECK(it.rig.builder.slot_of(last) == slot_id{3});
}

TEST_CASE("a step that needs more than there is is refused with the size that it needs", "[manager]")
{
  fixture it{8_KiB};
  const auto step = [&] {
    const auto pin = it.rig.template hold<const float>(slot_id{0}, access::read);
    it.rig.engine.release(it.rig.engine.lease(tier::device, 3 * 4096, agent::host));
  };
  CHECK_THROWS_WITH(it.run(step),
                    ContainsSubstring("the device capacity is 8192 B") && ContainsSubstring("needs at least 16384 B"));
  CHECK(it.is_untouched());
}

TEST_CASE("a rehearsal inside a rehearsal or an iteration is refused, and what runs goes on", "[manager]")
{
  fixture it;
  int inner = 0;
  const auto count = [&] { ++inner; };
  it.run([&] {
    const auto before = it.rig.template hold<const float>(slot_id{0}, access::read);
    CHECK_THROWS_AS(it.run(count), usage_error);
    CHECK(it.rig.engine.rehearsing().is_running());
    CHECK(it.rig.template hold<const float>(slot_id{1}, access::read).is_live());
  });
  CHECK(it.rig.engine.rehearsing().record().size() == 2);
  CHECK(it.is_untouched());
  const auto scope = it.rig.iterate();
  CHECK_THROWS_AS(it.run(count), usage_error);
  CHECK(it.rig.engine.schedule().is_inside());
  CHECK(inner == 0);
}

TEST_CASE("a step that leaves updates to the next one runs twice, and nothing waits afterwards", "[manager]")
{
  fixture it;
  manager_parts::numbers updated;
  int runs = 0;
  it.run([&] {
    ++runs;
    (void)it.rig.template hold<const float>(slot_id{2}, access::read);
    CHECK(updated == (runs == 1 ? manager_parts::numbers{} : manager_parts::numbers{2}));
    auto& waiting = it.rig.engine.pending();
    waiting.prepare();
    waiting.add(slot_id{2});
    waiting.serve(manager_parts::note_update, &updated);
  });
  CHECK(runs == 2);
  CHECK(it.rig.engine.rehearsing().turns().size() == 2);
  CHECK_FALSE(it.rig.engine.pending().any());
  CHECK(updated == manager_parts::numbers{2});
}

TEST_CASE("the record of a rehearsal is that of the tiers that states have afterwards", "[manager]")
{
  const auto place_of_first_state = [](auto& it, int& runs) {
    const slot_id value{0};
    const slot_id state{8};  // behind four values and four gradients
    it.run([&] {
      ++runs;
      (void)it.rig.template hold<float>(state, access::read_write, it.rig.builder.update_place(value));
    });
    const access_entry& last = it.rig.engine.rehearsing().record().entries().back();
    CHECK(slot_id{last.slot} == state);
    CHECK(place_of(last.kind) == it.rig.builder.update_place(value));
    return place_of(last.kind);
  };
  int runs = 0;
  fixture<placement::device_margin> margin;
  CHECK(place_of_first_state(margin, runs) == memory_location::device);
  CHECK(runs > 1);
  // no size that is tried, up to twice everything, has a margin for a state: the device has
  fixture<placement::device_margin> narrow{256_KiB, 256_KiB, {.share = 0.05}};
  CHECK(place_of_first_state(narrow, runs) == memory_location::device);
  fixture<placement::optimizer_on_host> fixed;
  runs = 0;
  CHECK(place_of_first_state(fixed, runs) == memory_location::host);
  CHECK(runs == 1);
}

}  // namespace rehearse_step_test
