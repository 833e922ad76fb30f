// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/residency_snapshot.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/trace/sinks.hpp>

#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/count_allocations.hpp>
#include <support/failing.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace residency_snapshot_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;

TEST_CASE("each use of a frame has a name of its own", "[manager]")
{
  const cm::frame_use all[] = {cm::frame_use::free, cm::frame_use::spare, cm::frame_use::sole, cm::frame_use::pinned,
                               cm::frame_use::leased};
  for (const cm::frame_use left : all) {
    CHECK_FALSE(name_of(left).empty());
    for (const cm::frame_use right : all) CHECK((name_of(left) == name_of(right)) == (left == right));
  }
}

TEST_CASE("a snapshot can be taken at any time, changes nothing and outlives its manager", "[manager]")
{
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  std::optional<cm::manager<arena>> m;
  m.emplace(memory, cm::manager_options{.chunk_bytes = 4_KiB});
  const auto weights = m->add_stacked<float>(3, {1024}, cm::role::parameter);
  CHECK(m->residency().chunks.empty());  // not placed yet
  CHECK(m->residency().lists.size() == 2);
  m->seal();
  const auto sealed = m->residency();
  CHECK(sealed.chunks.size() == 6);  // values and gradients
  CHECK(sealed.tensors.size() == 6);
  for (const cm::chunk_snapshot& it : sealed.chunks)
    CHECK_FALSE((it.place.has_frames(cm::tier::device) || it.place.is_valid(cm::tier::host) ||
                 it.state != cm::tensor_state::free));
  const auto rehearsed = [&] {
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      const auto pin = m->acquire(weights.slice(layer), cm::access::read_write);
      CHECK(m->residency().tensors.size() == 6);
    }
  };
  m->rehearse([&] {
    const auto scope = m->iteration();
    for (std::uint32_t layer = 0; layer < 3; ++layer) (void)m->acquire(weights.slice(layer), cm::access::write);
  });
  for (std::uint32_t layer = 0; layer < 3; ++layer) m->acquire(weights.slice(layer), cm::access::write).release();
  for (int step = 0; step < 3; ++step) {
    const auto scope = m->iteration();
    rehearsed();
    const auto inside = m->residency();
    CHECK(inside.is_inside);
    CHECK(inside.access_index == 3);
    CHECK(inside.iterations == static_cast<std::uint64_t>(step));
  }
  CHECK(m->report().divergences == 0);
  const auto last = m->residency();
  CHECK_FALSE(last.is_inside);
  CHECK(last.iterations == 3);
  m.reset();
  CHECK(last.lists == std::vector<std::string>{"value", "gradient"});
  CHECK(last.tensors[2].name == "tensor.2");
  CHECK(last.tiers[cm::tier::device].capacity == 8_KiB);
}

namespace {

constexpr cm::list_spec lists[] = {{"momentum"}};

/// What a snapshot says of frames, from its own chunks and leases: its runs must say the same.
std::vector<cm::frame_use> uses_from_chunks(const cm::residency_snapshot& it, cm::tier where)
{
  const cm::tier_snapshot& tier = it.tiers[where];
  std::vector<cm::frame_use> uses(tier.frames, cm::frame_use::free);
  for (const cm::lease_place& lease : tier.leases)
    for (std::uint64_t index = lease.begin / it.frame.count();
         index < tier.frames && index * it.frame.count() < lease.begin + lease.size; ++index)
      uses[index] = cm::frame_use::leased;
  for (const cm::chunk_snapshot& one : it.chunks) {
    const cm::chunk& place = one.place;
    const cm::frame_id first = place.first_frame[where];
    if (first == cm::chunk::nowhere) continue;
    cm::frame_use use = cm::frame_use::spare;
    const cm::tier other = where == cm::tier::device ? cm::tier::host : cm::tier::device;
    if (place.live > 0 && place.is_valid(where) && !place.is_valid(other)) use = cm::frame_use::sole;
    if (place.pins[where] > 0) use = cm::frame_use::pinned;
    for (std::uint32_t part = 0; part < place.frames; ++part) uses[index_of(first + part)] = use;
  }
  return uses;
}

void check(const cm::residency_snapshot& it)
{
  for (const cm::tier where : {cm::tier::device, cm::tier::host}) {
    const cm::tier_snapshot& tier = it.tiers[where];
    std::vector<cm::frame_use> told;
    for (const cm::frame_run& run : tier.runs) {
      if (run.first != told.size() || run.frames == 0) FAIL("runs are not all frames in their order");
      if (!told.empty() && told.back() == run.use) FAIL("two runs of one use are neighbours");
      told.insert(told.end(), run.frames, run.use);
    }
    if (told != uses_from_chunks(it, where)) FAIL("runs and chunks disagree on the " << name_of(where));
    if (static_cast<std::uint32_t>(std::count(told.begin(), told.end(), cm::frame_use::free)) != tier.free_frames)
      FAIL("free frames");
    std::uint64_t leased = 0;
    for (const cm::lease_place& lease : tier.leases) leased += lease.size;
    if (leased != tier.leased.count() || tier.leased > tier.most_leased || tier.in_use > tier.peak)
      FAIL("leased bytes");
    if (tier.longest_free > tier.longest_clearable || tier.longest_clearable > tier.frames) FAIL("longest runs");
  }
  std::uint32_t tensors = 0;
  for (std::uint32_t index = 0; index < it.chunks.size(); ++index) {
    const cm::chunk_snapshot& one = it.chunks[index];
    std::uint32_t pins = 0;
    for (std::uint32_t number = one.first_tensor; number < one.first_tensor + one.tensors; ++number) {
      if (it.tensors[number].chunk != index) FAIL("a tensor is told with another chunk");
      pins += it.tensors[number].pins;
    }
    tensors += one.tensors;
    if (pins != one.place.pins[cm::tier::device] + one.place.pins[cm::tier::host]) FAIL("pins of chunk " << index);
    if ((one.state == cm::tensor_state::compute) != (pins > 0)) FAIL("state of chunk " << index);
  }
  if (tensors != it.tensors.size()) FAIL("a tensor is told with no chunk");
}

template <class Backend>
std::uint64_t walk(Backend& memory, std::uint64_t seed)
{
  const bool asked = seed % 2 == 0;
  cm::manager<Backend> m{memory, {.chunk_bytes = 1_KiB, .error_details = asked}};
  m.use(lists);
  const auto weights = m.template add_stacked<float>(7, {120}, cm::role::parameter);
  const auto wide = m.template add_stacked<float>(2, {600}, cm::role::frozen);  // frame runs of three frames
  for (std::uint32_t index = 0; index < 7; ++index) m.acquire(weights.slice(index), cm::access::write).release();
  for (std::uint32_t index = 0; index < 2; ++index) m.acquire(wide.slice(index), cm::access::write).release();
  support::dice dice{seed};
  std::vector<typename cm::manager<Backend>::template pin_type<const float>> pins;
  std::vector<cm::lease<typename cm::manager<Backend>::engine_type>> leases;
  std::uint64_t refused = 0;
  for (int call = 0; call < 150; ++call) {
    try {
      const auto what = dice.below(7);
      const cm::memory_location place = dice.below(3) == 0 ? cm::memory_location::host : cm::memory_location::device;
      if (what == 0) pins.clear();
      if (what == 1) leases.clear();
      if (what == 2)
        leases.push_back(
            m.lease(dice.below(2) == 0 ? cm::tier::device : cm::tier::host, cm::bytes{256 + dice.below(3'000)}));
      if (what == 3)
        pins.push_back(
            m.template acquire<float>(weights.slice(dice.below(7)), m.list("momentum"), cm::access::read_write, place));
      if (what == 4) pins.push_back(m.acquire(wide.slice(dice.below(2)), cm::access::read, place));
      if (what > 4)
        pins.push_back(
            m.acquire(weights.slice(dice.below(7)), what == 5 ? cm::access::read : cm::access::write, place));
    } catch (const cm::error& error) {
      if (error.details() != (asked ? to_string(m.residency()) : std::string{}))
        FAIL("details are not of the moment at which it was thrown");
      ++refused;
    }
    check(m.residency());
  }
  return refused;
}

}  // namespace

TEST_CASE("a snapshot agrees with itself, whatever was done and refused before", "[manager]")
{
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    arena memory{{.device_capacity = 7_KiB, .host_capacity = 26_KiB}};
    refused += walk(memory, seed);
    support::adversarial hostile{{.device_capacity = 7_KiB, .host_capacity = 26_KiB, .seed = seed}};
    refused += walk(hostile, seed);
    CHECK(hostile.faults().empty());
  }
  CHECK(refused > 100);
}

TEST_CASE("a snapshot says which run could be cleared, and what each tier holds", "[manager]")
{
  arena memory{{.device_capacity = 6_KiB, .host_capacity = 16_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 1_KiB}};
  const auto weights = m.add_stacked<float>(6, {256}, cm::role::frozen);
  m.name(weights.slice(2), "middle");
  for (std::uint32_t index = 0; index < 5; ++index) m.acquire(weights.slice(index), cm::access::write).release();
  const auto pin = m.acquire(weights.slice(2), cm::access::read);
  auto lease = m.lease(cm::tier::device, 512_B);
  auto now = m.residency();
  const cm::tier_snapshot& device = now.tiers[cm::tier::device];
  REQUIRE(device.frames == 6);
  CHECK(device.free_frames == 0);
  CHECK(device.longest_free == 0);
  CHECK(device.longest_clearable == 2);  // frames 0 and 1 below the pin; 3 and 4 between it and the lease
  CHECK(device.runs.size() == 4);
  CHECK(device.runs[1].use == cm::frame_use::pinned);
  CHECK(device.runs[2].frames == 2);
  CHECK(device.runs[3].use == cm::frame_use::leased);
  CHECK(device.leased == 512_B);
  CHECK(device.in_use == 5_KiB + 512_B);
  REQUIRE(device.leases.size() == 1);
  CHECK(device.leases[0].begin == 5'632);
  CHECK(now.chunks[2].tensors == 1);
  CHECK(now.tensors[now.chunks[2].first_tensor].name == "middle");
  CHECK(now.tensors[now.chunks[2].first_tensor].pins == 1);
  CHECK(now.chunks[2].state == cm::tensor_state::compute);
  CHECK(now.chunks[2].part == cm::role::frozen);
  CHECK(now.chunks[5].state == cm::tensor_state::free);
  lease.release();
  now = m.residency();
  CHECK(now.tiers[cm::tier::device].longest_clearable == 3);
  CHECK(now.tiers[cm::tier::device].most_leased == 512_B);
  CHECK(now.tiers[cm::tier::device].leases.empty());
}

}  // namespace residency_snapshot_test

namespace residency_text_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using arena = cm::backend::host_arena;

TEST_CASE("the text of a snapshot says of both tiers what is held, and of chunks where they lie and why", "[manager]")
{
  arena memory{{.device_capacity = 6_KiB, .host_capacity = 16_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 1_KiB}};
  const auto weights = m.add_stacked<float>(6, {128}, cm::role::frozen);
  const auto wide = m.add<float>({512}, cm::role::buffer);
  m.name(weights.slice(4), "h.2.bias");
  m.name(wide, "mask");
  for (std::uint32_t index = 0; index < 6; ++index) m.acquire(weights.slice(index), cm::access::write).release();
  m.acquire(wide, cm::access::write).release();
  CHECK_THAT(to_string(m.residency()),
             ContainsSubstring("residency outside of iterations, after 0 whole ones; frames of 1024 B\n"));
  const auto scope = m.iteration();
  const auto first = m.acquire(weights.slice(4), cm::access::read);
  const auto second = m.acquire(weights.slice(0), cm::access::read, cm::memory_location::host);
  const auto third = m.acquire(wide, cm::access::read);
  const auto lease = m.lease(cm::tier::device, 512_B);
  const std::string text = to_string(m.residency());
  CAPTURE(text);
  CHECK_THAT(text, ContainsSubstring("residency at access 4 of an iteration, after 0 whole ones; frames of 1024 "
                                     "B\ndevice: capacity 6144 B, in use "));
  CHECK_THAT(text, ContainsSubstring("  leases: 512 B at 5632\nhost: capacity 16384 B, in use "));
  CHECK_THAT(text, ContainsSubstring("chunks: 4, of them 3 pinned, "));
  CHECK_THAT(text,
             ContainsSubstring(", pins on the host 1 (writing 0); 1024 B: tensor.0 compute (pins 1), tensor.1 hold\n"));
  CHECK_THAT(text, ContainsSubstring(", pins on the device 1; 1024 B: h.2.bias compute (pins 1), tensor.5 hold\n"));
  CHECK_THAT(text, ContainsSubstring("(buffer): device frames "));
  CHECK_THAT(text, ContainsSubstring("; 2048 B: mask compute (pins 1)\n"));
  CHECK(text.find("tensor.3") > text.find("mask"));  // what is not pinned comes after what is
}

TEST_CASE("the text of many chunks is short, and counts what it leaves out", "[manager]")
{
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 2_MiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 1_KiB}};
  const auto weights = m.add_stacked<float>(4'000, {64}, cm::role::frozen);  // four in a chunk
  for (std::uint32_t index = 0; index < 4'000; index += 4) m.acquire(weights.slice(index), cm::access::write).release();
  const auto pin = m.acquire(weights.slice(3'996), cm::access::read);
  std::vector<cm::lease<decltype(m)::engine_type>> leases;
  for (int index = 0; index < 9; ++index) leases.push_back(m.lease(cm::tier::host, 256_B));
  const auto snapshot = m.residency();
  REQUIRE(snapshot.chunks.size() == 1'000);
  CHECK(to_string(snapshot).size() < 6'000);
  const std::string text = to_string(snapshot, 3);
  CHECK(std::count(text.begin(), text.end(), '\n') < 14);
  CHECK_THAT(text, ContainsSubstring("  chunk 999 (frozen): "));  // pinned: before all others
  CHECK(text.find("  chunk 999") < text.find("  chunk 0 "));
  CHECK_THAT(text, ContainsSubstring("tensor.3996 compute (pins 1), tensor.3997 free, tensor.3998 free, and 1 more\n"));
  CHECK_THAT(text, ContainsSubstring("  and 997 more\n"));
  CHECK_THAT(text, ContainsSubstring(", and 6 more\n"));
  CHECK_THAT(to_string(snapshot, 0), ContainsSubstring("  and 1000 more\n"));
}

TEST_CASE("a name cannot begin a line of its own, nor speak to the terminal", "[manager]")
{
  arena memory{{.device_capacity = 6_KiB, .host_capacity = 16_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 1_KiB}};
  const auto plain = m.add<float>({16}, cm::role::frozen);
  const auto forged = m.add<float>({16}, cm::role::frozen);
  m.acquire(plain, cm::access::write).release();
  m.acquire(forged, cm::access::write).release();
  const std::string before = to_string(m.residency());
  m.name(forged, "a\n  chunk 7 (frozen): not on device\r\x1b[31m\x7f\\n\t\u00e9");
  const std::string text = to_string(m.residency());
  CAPTURE(text);
  CHECK(std::count(text.begin(), text.end(), '\n') == std::count(before.begin(), before.end(), '\n'));
  CHECK_THAT(text, ContainsSubstring(R"(a\n  chunk 7 (frozen): not on device\x0d\x1b[31m\x7f\\n\x09)"
                                     "\u00e9 hold"));
  cm::residency_snapshot lists = m.residency();
  lists.lists = {"values", "mine\nforged"};
  for (auto& chunk : lists.chunks) chunk.list = 1;
  CHECK_THAT(to_string(lists), ContainsSubstring(R"((mine\nforged): )") && !ContainsSubstring("\nforged"));
}

TEST_CASE("a gathered chunk is told as one whose share is elsewhere, behind what has bytes of its own", "[manager]")
{
  arena memory{{.device_capacity = 6_KiB, .host_capacity = 16_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 1_KiB}};
  const auto weights = m.add_stacked<float>(3, {256}, cm::role::frozen);
  for (std::uint32_t index = 0; index < 3; ++index) m.acquire(weights.slice(index), cm::access::write).release();
  cm::residency_snapshot it = m.residency();
  it.chunks[0].place = {.first_frame = {{cm::chunk::nowhere, cm::chunk::elsewhere}}};
  it.chunks[1].place = it.chunks[0].place;
  it.chunks[1].place.put(cm::tier::device, cm::frame_id{2}, true);
  it.chunks[2].place = {.first_frame = {{cm::chunk::nowhere, cm::frame_id{3}}}};
  const std::string text = to_string(it);
  CAPTURE(text);
  CHECK_THAT(text, ContainsSubstring("chunk 0 (frozen): not on device, host share elsewhere; 1024 B"));
  CHECK_THAT(text, ContainsSubstring("chunk 1 (frozen): device frame 2, host share elsewhere; 1024 B"));
  CHECK_THAT(text, ContainsSubstring("chunk 2 (frozen): not on device, host frame 3 without valid bytes; 1024 B"));
  CHECK(text.find("chunk 1 (") < text.find("chunk 0 ("));
  CHECK(text.find("chunk 2 (") < text.find("chunk 0 ("));  // that one lies nowhere
}

TEST_CASE("a snapshot of nothing is told too", "[manager]")
{
  const std::string text = to_string(cm::residency_snapshot{});
  CHECK_THAT(text, ContainsSubstring("chunks: 0, of them 0 pinned"));
  CHECK_THAT(text, ContainsSubstring("device: capacity 0 B"));
  CHECK_THAT(text, !ContainsSubstring("frames: "));
}

}  // namespace residency_text_test

namespace error_details_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using arena = cm::backend::host_arena;

namespace {

constexpr cm::manager_options told{.chunk_bytes = 4_KiB, .error_details = true};

/// The thrown exception, kept beyond its handler.
template <class Error, class Call>
std::optional<Error> refused(Call call)
{
  try {
    (void)call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}
template <class Error>
std::string text_of(const std::optional<Error>& error)
{
  return error ? std::string{error->details()} : "nothing was thrown";
}

template <class Manager>
auto filled(Manager& m, std::uint32_t layers)
{
  const auto stack = m.template add_stacked<float>(layers, {1024}, cm::role::parameter);
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    for (float& value : m.acquire(stack.slice(layer), cm::access::write).span()) value = static_cast<float>(layer);
  return stack;
}

/// Recalls as long as there is memory.
struct forgetful {
  using policy_kind = cm::sink_kind;
  static constexpr std::string_view name = "forgetful";
  void record(const cm::trace_event&) noexcept {}
  [[nodiscard]] std::string recall(std::size_t) const { throw std::bad_alloc{}; }
};

}  // namespace

TEST_CASE("an access that is refused for pins is told who holds them", "[manager]")
{
  std::optional<cm::out_of_memory> error;
  {
    arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
    cm::manager<arena> m{memory, told};
    const auto stack = filled(m, 4);
    m.name(stack.slice(3), "head");
    const auto first = m.acquire(stack.slice(0), cm::access::read);
    const auto second = m.acquire(stack.slice(3), cm::access::read);
    error = refused<cm::out_of_memory>([&] { return m.acquire(stack.slice(2), cm::access::read); });
    CHECK(text_of(error) == to_string(m.residency()));  // the state in which it failed is still there
  }
  REQUIRE(error);  // and the text outlives the manager
  CHECK_THAT(error->what(), ContainsSubstring("out of memory on the device tier"));
  CHECK_THAT(text_of(error), ContainsSubstring("  frames: 0-1 pinned\n"));
  CHECK_THAT(text_of(error), ContainsSubstring("head compute (pins 1)"));
  CHECK_THAT(text_of(error), ContainsSubstring("tensor.0 compute (pins 1)"));
  CHECK_THAT(text_of(error), ContainsSubstring("of them 2 pinned, 2 with a single copy"));
  CHECK_THAT(text_of(error), !ContainsSubstring("last events"));
}

TEST_CASE("a lease that is refused is told which leases and pins are in the way", "[manager]")
{
  support::adversarial memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  cm::manager<support::adversarial> m{memory, told};
  const auto stack = filled(m, 4);
  const auto scope = m.iteration();
  const auto pin = m.acquire(stack.slice(2), cm::access::read);
  const auto lease = m.lease(cm::tier::device, 6_KiB);
  const auto error = refused<cm::out_of_memory>([&] { return m.lease(cm::tier::device, 8_KiB); });
  CHECK_THAT(text_of(error), ContainsSubstring("residency at access 2 of an iteration"));
  CHECK_THAT(text_of(error), ContainsSubstring("leased 6144 B (at most 6144)"));
  CHECK_THAT(text_of(error), ContainsSubstring("  leases: 6144 B at 10240\n"));
  CHECK_THAT(text_of(error), ContainsSubstring("tensor.2 compute (pins 1)"));
  CHECK(memory.faults().empty());
}

TEST_CASE("a full host is told, with the windows that cannot be given up", "[manager]")
{
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 8_KiB}};
  cm::manager<arena> m{memory, told};
  const auto stack = m.add_stacked<float>(5, {1024}, cm::role::buffer);
  for (std::uint32_t layer = 0; layer < 4; ++layer) m.acquire(stack.slice(layer), cm::access::write).release();
  const auto error = refused<cm::out_of_memory>([&] { return m.acquire(stack.slice(4), cm::access::write); });
  REQUIRE(error);
  CHECK(error->shortage().where == cm::tier::host);
  CHECK_THAT(text_of(error), ContainsSubstring("host: capacity 8192 B, in use 8192 B"));
  CHECK_THAT(
      text_of(error),
      ContainsSubstring("0 of 2 frames free, longest run free 0, that could be cleared 0\n  frames: 0-1 sole copy\n"));
}

TEST_CASE("a copy that failed is told, with the last events where the sink recalls them", "[manager]")
{
  using backend = support::failing<arena>;
  backend memory{{}, cm::backend::host_arena_options{.device_capacity = 8_KiB, .host_capacity = 96_KiB}};
  cm::trace::event_ring ring{200};
  cm::manager<backend, cm::trace::ring_sink> m{memory, told, cm::trace::ring_sink{ring}};
  const auto stack = filled(m, 20);
  memory.set_plan({.copy = memory.copies(), .persistent = true});
  const auto error = refused<cm::device_error>([&] { return m.acquire(stack.slice(0), cm::access::read); });
  CHECK_THAT(text_of(error), ContainsSubstring("residency outside of iterations"));
  const std::size_t index = text_of(error).find("last events:\n");
  REQUIRE(index != std::string::npos);
  const std::string events = text_of(error).substr(index);
  CHECK(std::count(events.begin(), events.end(), '\n') == 25);
  CHECK_THAT(events, ContainsSubstring("evict of chunk 17, bytes 4096, from device to host\n"));
  CHECK_THAT(events, !ContainsSubstring("chunk 1,"));
  const auto again = refused<cm::device_error>([&] { return m.iteration(); });  // an empty device is wanted first
  CHECK_THAT(text_of(again), ContainsSubstring("last events:\n"));
}

TEST_CASE("a mistake is told too, and arenas that could not be had", "[manager]")
{
  using backend = support::failing<arena>;
  backend memory{{.allocation = 1}, cm::backend::host_arena_options{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  cm::manager<backend> m{memory, told};
  const auto stack = m.add_stacked<float>(3, {1024}, cm::role::parameter);
  const auto none = refused<cm::out_of_memory>([&] { return m.acquire(stack.slice(0), cm::access::write); });
  CHECK_THAT(text_of(none), ContainsSubstring("device: capacity 8192 B, in use 0 B"));
  const auto pin = m.acquire(stack.slice(0), cm::access::write, cm::memory_location::host);
  const auto unwritten = refused<cm::usage_error>([&] { return m.acquire(stack.slice(1), cm::access::read); });
  CHECK_THAT(text_of(unwritten), ContainsSubstring("tensor.1 free"));
  const auto conflict = refused<cm::usage_error>([&] { return m.acquire(stack.slice(0), cm::access::read); });
  CHECK_THAT(text_of(conflict), ContainsSubstring("pins on the host 1 (writing 1)"));
  const auto dropped = refused<cm::usage_error>([&] { return m.drop(stack.slice(0)), 0; });
  CHECK_THAT(text_of(dropped), ContainsSubstring("tensor.0 compute (pins 1)"));
  const auto exchanged = refused<cm::usage_error>([&] { return m.exchange(cm::value_list, cm::gradient_list), 0; });
  CHECK_THAT(text_of(exchanged), ContainsSubstring("pins on the host 1 (writing 1)"));
  const auto scope = m.iteration();
  const auto nested = refused<cm::usage_error>([&] { return m.iteration(); });
  CHECK_THAT(text_of(nested), ContainsSubstring("residency at access 0 of an iteration"));
}

TEST_CASE("what goes wrong while an error is told does not replace it, and by default nothing is told", "[manager]")
{
  arena memory{{.device_capacity = 4_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena, forgetful> m{memory, told};
  const auto stack = filled(m, 3);
  const auto pin = m.acquire(stack.slice(0), cm::access::read);
  const auto error = refused<cm::out_of_memory>([&] { return m.acquire(stack.slice(1), cm::access::read); });
  REQUIRE(error);
  CHECK(error->details().empty());
  CHECK(error->shortage().pinned == 4'096);

  arena other{{.device_capacity = 4_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> quiet{other, {.chunk_bytes = 4_KiB}};
  const auto weights = filled(quiet, 3);
  const auto held = quiet.acquire(weights.slice(0), cm::access::read);
  const auto silent = refused<cm::out_of_memory>([&] { return quiet.acquire(weights.slice(1), cm::access::read); });
  REQUIRE(silent);
  CHECK(silent->details().empty());
}

TEST_CASE("details cost nothing while nothing fails, and without them an error asks for nothing but itself",
          "[manager]")
{
  if (!support::counts_allocations) SKIP("a sanitizer has the allocation functions");
  for (const bool asked : {false, true}) {
    arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
    cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB, .error_details = asked}};
    const auto stack = filled(m, 6);
    const auto step = [&] {
      const auto scope = m.iteration();
      for (std::uint32_t layer = 0; layer < 6; ++layer) m.acquire(stack.slice(layer), cm::access::read_write).release();
      m.lease(cm::tier::device, 4_KiB).release();
    };
    for (int turn = 0; turn < 3; ++turn) step();
    auto before = support::allocations_so_far();
    for (int turn = 0; turn < 5; ++turn) step();
    CHECK((support::allocations_so_far() - before).all() == 0);
    const auto first = m.acquire(stack.slice(0), cm::access::read);
    const auto second = m.acquire(stack.slice(1), cm::access::read);
    before = support::allocations_so_far();
    bool thrown = false;
    try {
      (void)m.acquire(stack.slice(2), cm::access::read);
    } catch (const cm::out_of_memory&) {
      thrown = true;
    }
    CHECK(thrown);
    const auto spent = support::allocations_so_far() - before;
    CHECK((spent.by_new > 0) == asked);  // an exception itself is made with malloc
    if (!asked) CHECK(spent.heap() == 1);
  }
}

}  // namespace error_details_test

namespace error_annotator_test {

using namespace chunkmem;

namespace {

struct story {
  int told = 0;
  static std::string tell(const void* about)
  {
    auto& it = *const_cast<story*>(static_cast<const story*>(about));
    return "told " + std::to_string(++it.told);
  }
};

}  // namespace

TEST_CASE("a annotator that nobody asked tells nothing", "[manager]")
{
  usage_error failed{"a mistake"};
  error_annotator{}.annotate(failed);
  CHECK(failed.details().empty());
}

TEST_CASE("an error is told once, by who is closest to its cause", "[manager]")
{
  story inner;
  story outer;
  error_annotator near;
  error_annotator far;
  near.ask(&story::tell, &inner);
  far.ask(&story::tell, &outer);
  usage_error failed{"a mistake"};
  near.annotate(failed);
  near.annotate(failed);
  far.annotate(failed);
  CHECK(failed.details() == "told 1");
  CHECK(inner.told == 1);
  CHECK(outer.told == 0);
}

TEST_CASE("what goes wrong while details are written leaves the error as it was", "[manager]")
{
  error_annotator annotator;
  out_of_memory failed{{tier::device, 1, 2, 3, 4}};
  const std::string sentence = failed.what();
  annotator.ask([](const void*) -> std::string { throw std::bad_alloc{}; }, nullptr);
  annotator.annotate(failed);
  annotator.ask([](const void*) -> std::string { throw std::runtime_error{"a sink of a user's"}; }, nullptr);
  annotator.annotate(failed);
  CHECK(failed.details().empty());
  CHECK(failed.what() == sentence);
  annotator.ask([](const void*) { return std::string{"now it works"}; }, nullptr);
  annotator.annotate(failed);
  CHECK(failed.details() == "now it works");
}

}  // namespace error_annotator_test
