// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/agent_worker.hpp>
#include <chunkmem/backend/stream_backend.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>

#include <conformance/graph_backend.hpp>
#include <conformance/memory_backend.hpp>
#include <conformance/stream_backend.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/failing.hpp>
#include <support/fake_device.hpp>
#include <support/refusal.hpp>
#include <support/sanitized.hpp>

#include <array>
#include <thread>
#include <type_traits>

namespace memory_backend_test {

using namespace chunkmem;

namespace {

/// The functions of the concept and nothing else.
struct archetype {
  static constexpr bool host_addressable = true;
  bytes capacity(tier) const { return {}; }
  std::byte* allocate(tier, bytes) { return nullptr; }
  void release(tier, std::byte*) noexcept {}
  void copy(std::byte*, const std::byte*, bytes) {}
  void fill(std::byte*, std::byte, bytes) {}
};
static_assert(memory_backend<archetype>);

struct without_capacity : archetype {
  bytes capacity(tier) const = delete;
};
struct with_capacity_in_integers : archetype {
  std::uint64_t capacity(tier) const { return 0; }
};
struct without_allocate : archetype {
  std::byte* allocate(tier, bytes) = delete;
};
struct with_a_release_that_throws : archetype {
  void release(tier, std::byte*) {}
};
struct without_copy : archetype {
  void copy(std::byte*, const std::byte*, bytes) = delete;
};
struct without_fill : archetype {
  void fill(std::byte*, std::byte, bytes) = delete;
};
struct with_private_addressability : archetype {
 private:
  using archetype::host_addressable;
};
static_assert(!memory_backend<without_capacity> && !limits_tiers<without_capacity>);
static_assert(!memory_backend<with_capacity_in_integers>);
static_assert(!memory_backend<without_allocate> && !allocates_tiers<without_allocate>);
static_assert(!memory_backend<with_a_release_that_throws>);
static_assert(!memory_backend<without_copy> && !copies_bytes<without_copy>);
static_assert(!memory_backend<without_fill>);
static_assert(!memory_backend<with_private_addressability>);
static_assert(!memory_backend<int>);

}  // namespace

TEST_CASE("every backend keeps the laws of a memory backend", "[backend]")
{
  conformance::memory_backend_laws<backend::host_arena>(
      [](bytes device, bytes host) { return backend::host_arena{{.device_capacity = device, .host_capacity = host}}; });
  conformance::memory_backend_laws<backend::simulated>(
      [](bytes device, bytes host) { return backend::simulated{{.device_capacity = device, .host_capacity = host}}; });
  conformance::memory_backend_laws<support::adversarial>([](bytes device, bytes host) {
    return support::adversarial{{.device_capacity = device, .host_capacity = host}};
  });
}

}  // namespace memory_backend_test

namespace stream_backend_test {

using namespace chunkmem;
using support::adversarial;
using support::schedule;

namespace {

/// The functions of the concept and nothing else.
struct archetype {
  static constexpr bool host_addressable = false;
  bytes capacity(tier) const { return {}; }
  std::byte* allocate(tier, bytes) { return nullptr; }
  void release(tier, std::byte*) noexcept {}
  void copy(std::byte*, const std::byte*, bytes) {}
  void fill(std::byte*, std::byte, bytes) {}
  void copy(std::byte*, const std::byte*, bytes, agent) {}
  void fill(std::byte*, std::byte, bytes, agent) {}
  template <class Callable>
  void launch(agent, Callable&&)
  {
  }
  event record(agent) { return {}; }
  void wait(agent, event) {}
  agent adopt() { return agent::host; }
  std::size_t agents() const { return 4; }
  std::uint64_t now() const { return 0; }
  std::uint64_t throttled() const { return 0; }
};
static_assert(stream_backend<archetype>);

struct without_launch : archetype {
  template <class Callable>
  void launch(agent, Callable&&) = delete;
};
struct without_agents_for_copies : archetype {
  void copy(std::byte*, const std::byte*, bytes) {}
};
struct without_record : archetype {
  event record(agent) = delete;
};
struct without_wait : archetype {
  void wait(agent, event) = delete;
};
struct without_adopt : archetype {
  agent adopt() = delete;
};
struct with_agents_that_change : archetype {
  std::size_t agents() { return 4; }
};
struct without_time : archetype {
  std::uint64_t now() const = delete;
};
struct without_throttled : archetype {
  std::uint64_t throttled() const = delete;
};
static_assert(!stream_backend<without_launch> && !enqueues_work<without_launch>);
static_assert(!stream_backend<without_agents_for_copies> && memory_backend<without_agents_for_copies>);
static_assert(!stream_backend<without_record> && !orders_agents<without_record>);
static_assert(!stream_backend<without_wait>);
static_assert(!stream_backend<without_adopt>);
static_assert(!stream_backend<with_agents_that_change>);
static_assert(!stream_backend<without_time>);
static_assert(!stream_backend<without_throttled>);

/// Two tiers of one float each and one load: the smallest thing that needs an event.
struct one_load {
  adversarial mem;
  std::byte* here;
  std::byte* there;
  explicit one_load(schedule when, std::uint64_t seed = 1)
      : mem{{.device_capacity = bytes{4},
             .host_capacity = bytes{4},
             .when = when,
             .seed = seed,
             .async_compute = true}},
        here{mem.allocate(tier::host, bytes{4})},
        there{mem.allocate(tier::device, bytes{4})}
  {
    mem.fill(here, std::byte{1}, bytes{4}, agent::host);
  }
};

constexpr std::byte poison = adversarial::poison;

}  // namespace

TEST_CASE("an event is plain data and nothing is before value 0", "[backend]")
{
  STATIC_REQUIRE(std::is_trivially_copyable_v<event>);
  STATIC_REQUIRE(sizeof(event) == 16);
  STATIC_REQUIRE(event{}.value == 0);
  STATIC_REQUIRE(index_of(agent::to_host) + 1 == built_in_agents);
}

TEST_CASE("adversarial keeps the laws of a stream backend in every schedule", "[backend]")
{
  const bool async_compute = GENERATE(false, true);
  const auto make_with = [async_compute](schedule when, std::uint64_t seed) {
    return [=](bytes device, bytes host) {
      return adversarial{{.device_capacity = device,
                          .host_capacity = host,
                          .when = when,
                          .seed = seed,
                          .async_compute = async_compute}};
    };
  };
  CAPTURE(async_compute);
  conformance::stream_backend_laws<adversarial>(make_with(schedule::latest, 1));
  conformance::stream_backend_laws<adversarial>(make_with(schedule::earliest, 1));
  for (std::uint64_t seed = 1; seed <= (support::sanitized ? 4U : 20U); ++seed) {
    CAPTURE(seed);
    conformance::stream_backend_laws<adversarial>(make_with(schedule::random, seed));
  }
}

TEST_CASE("a copy nobody waits for is seen as poison, early or late", "[backend]")
{
  one_load late{schedule::latest};
  late.mem.fill(late.there, std::byte{5}, bytes{4}, agent::host);
  late.mem.copy(late.there, late.here, bytes{4}, agent::to_device);
  CHECK(late.there[0] == poison);  // half written from the first possible moment on
  late.mem.wait(agent::host, late.mem.record(agent::to_device));
  CHECK(late.there[0] == std::byte{1});

  one_load early{schedule::earliest};
  early.mem.copy(early.there, early.here, bytes{4}, agent::to_device);
  CHECK(early.there[0] == std::byte{1});
  CHECK(early.mem.counters().poisoned == 1);  // what the host does itself is never half done for it
}

TEST_CASE("each edge of a load, a kernel and a write-back is needed, and its loss is seen", "[backend]")
{
  constexpr std::uint64_t edges = 4;
  std::array<int, edges> caught{};
  int wrong_with_all_edges = 0;
  const auto run = [](one_load& world) {
    adversarial& mem = world.mem;
    std::byte* const there = world.there;
    mem.copy(there, world.here, bytes{4}, agent::to_device);
    mem.wait(agent::compute, mem.record(agent::to_device));  // edge 0
    mem.launch(agent::compute, [there] { there[0] = static_cast<std::byte>(std::to_integer<int>(there[0]) + 1); });
    mem.wait(agent::to_host, mem.record(agent::compute));  // edge 1
    mem.copy(world.here, there, bytes{4}, agent::to_host);
    mem.wait(agent::to_device, mem.record(agent::to_host));  // edge 2: the slot is handed on
    mem.fill(there, std::byte{9}, bytes{4}, agent::to_device);
    mem.wait(agent::host, mem.record(agent::to_host));  // edge 3
    const bool right = world.here[0] == std::byte{2} && world.here[1] == std::byte{1};
    mem.drain();
    return right && mem.faults().empty() && there[0] == std::byte{9};
  };
  for (std::uint64_t seed = 1; seed <= 22; ++seed) {
    const schedule when = seed == 21 ? schedule::latest : seed == 22 ? schedule::earliest : schedule::random;
    one_load whole{when, seed};
    wrong_with_all_edges += run(whole) ? 0 : 1;
    for (std::uint64_t edge = 0; edge < edges; ++edge) {
      one_load broken{when, seed};
      broken.mem.skip_wait(edge);
      caught[edge] += run(broken) ? 0 : 1;
      CHECK(broken.mem.counters().skipped == 1);
    }
  }
  CHECK(wrong_with_all_edges == 0);
  for (const int times : caught) CHECK(times > 0);
}

TEST_CASE("a filter removes the waits it names and no other", "[backend]")
{
  one_load world{schedule::latest};
  world.mem.skip_wait(
      [](agent stream, event point, std::uint64_t) { return stream == agent::host && point.value == 1; });
  world.mem.copy(world.there, world.here, bytes{4}, agent::to_device);
  const event first = world.mem.record(agent::to_device);
  world.mem.wait(agent::host, first);
  CHECK(world.mem.counters().skipped == 1);
  CHECK(world.mem.queued_operations() == 1);
  world.mem.wait(agent::to_host, first);
  CHECK(world.mem.counters().skipped == 1);
  world.mem.skip_wait(nullptr);
  world.mem.wait(agent::host, first);
  CHECK(world.mem.queued_operations() == 0);
}

TEST_CASE("a host wait in the latest schedule runs what the event needs and nothing more", "[backend]")
{
  one_load world{schedule::latest};
  adversarial& mem = world.mem;
  int ran = 0;
  mem.launch(agent::compute, [&ran] { ran += 1; });
  mem.wait(agent::to_host, mem.record(agent::compute));
  mem.launch(agent::to_host, [&ran] { ran += 10; });
  const event middle = mem.record(agent::to_host);
  mem.launch(agent::to_host, [&ran] { ran += 100; });
  mem.launch(agent::compute, [&ran] { ran += 1'000; });
  mem.launch(agent::to_device, [&ran] { ran += 10'000; });
  CHECK(ran == 0);
  mem.wait(agent::host, middle);
  CHECK(ran == 11);
  mem.drain();
  CHECK(ran == 11'111);
}

TEST_CASE("the same seed gives the same run, and other seeds give other runs", "[backend]")
{
  const auto trace = [](std::uint64_t seed) {
    one_load world{schedule::random, seed};
    std::vector<int> order;
    for (int i = 0; i < 20; ++i) {
      world.mem.launch(agent::to_device, [&order] { order.push_back(0); });
      world.mem.launch(agent::to_host, [&order] { order.push_back(1); });
      world.mem.launch(agent::compute, [&order] { order.push_back(2); });
    }
    world.mem.drain();
    return order;
  };
  CHECK(trace(3) == trace(3));
  CHECK(trace(3) != trace(4));
}

TEST_CASE("adversarial finds copies out of bounds and memory given back too early", "[backend]")
{
  one_load world{schedule::latest};
  adversarial& mem = world.mem;
  mem.copy(world.there, world.here, bytes{5}, agent::to_device);
  CHECK(mem.faults().size() == 1);
  mem.fill(world.there + 3, std::byte{}, bytes{2}, agent::host);
  CHECK(mem.faults().size() == 2);
  mem.drain();
  mem.copy(world.there, world.here, bytes{4}, agent::to_device);
  mem.release(tier::host, world.here);
  REQUIRE(mem.faults().size() == 3);
  CHECK_THAT(mem.faults().back(), Catch::Matchers::ContainsSubstring("queued operation"));
  mem.drain();  // not run: its source is gone
  CHECK(world.there[0] == poison);
  mem.release(tier::host, world.here);
  CHECK(mem.faults().size() == 4);
}

TEST_CASE("fresh memory of adversarial is poisoned", "[backend]")
{
  adversarial mem{{.device_capacity = bytes{300}, .host_capacity = bytes{300}}};
  std::byte* const place = mem.allocate(tier::device, bytes{300});
  CHECK(conformance::all_are<adversarial>(place, 300, poison));
  mem.release(tier::device, place);
  CHECK(mem.faults().empty());
}

TEST_CASE("failing lets one call fail, or that one and all after it, and nothing is changed", "[backend]")
{
  using failing = support::failing<adversarial>;
  const support::adversarial_options room{.device_capacity = bytes{100}, .host_capacity = bytes{100}};
  for (const bool persistent : {false, true}) {
    failing mem{{.allocation = 1, .copy = 2, .persistent = persistent}, room};
    std::byte* const place = mem.allocate(tier::host, bytes{50});
    CHECK_THROWS_AS(mem.allocate(tier::host, bytes{50}), out_of_memory);
    if (persistent) CHECK_THROWS_AS(mem.allocate(tier::host, bytes{50}), out_of_memory);
    if (!persistent) CHECK(mem.allocate(tier::host, bytes{50}) != nullptr);
    CHECK(mem.allocations() == 3);

    mem.fill(place, std::byte{1}, bytes{50}, agent::to_host);
    mem.fill(place, std::byte{2}, bytes{50});
    const event before = mem.record(agent::to_host);
    CHECK_THROWS_AS(mem.copy(place, place + 25, bytes{25}, agent::to_host), device_error);
    CHECK(mem.record(agent::to_host).value == before.value);
    if (persistent) CHECK_THROWS_AS(mem.fill(place, std::byte{}, bytes{1}, agent::to_host), device_error);
    if (!persistent) CHECK_NOTHROW(mem.fill(place, std::byte{}, bytes{1}, agent::to_host));
    CHECK(mem.copies() == 4);
    CHECK(mem.failures() == (persistent ? 4u : 2u));
    mem.set_plan({});
    CHECK_NOTHROW(mem.copy(place, place + 25, bytes{25}));
    CHECK(mem.inner().faults().empty());
  }
}

}  // namespace stream_backend_test

namespace graph_backend_test {

using namespace chunkmem;
using support::fake_device;

static_assert(graph_backend<fake_device>);
static_assert(!graph_backend<backend::host_arena>);

TEST_CASE("a CUDA device keeps the laws of a graph backend, whenever the runtime works", "[backend]")
{
  for (const auto when :
       {support::fake_schedule::latest, support::fake_schedule::earliest, support::fake_schedule::random}) {
    for (std::uint64_t seed = 1; seed <= (when == support::fake_schedule::random ? 5U : 1U); ++seed) {
      INFO("schedule " << static_cast<int>(when) << ", seed " << seed);
      conformance::graph_backend_laws<fake_device>([&](bytes device, bytes host) {
        return fake_device{
            support::fake_device_options{.device_capacity = device, .host_capacity = host, .when = when, .seed = seed}};
      });
    }
  }
}

}  // namespace graph_backend_test

namespace measuring_backend_test {

using namespace chunkmem;

namespace {

struct without_cause : backend::simulated {
  using simulated::simulated;
  void wait(agent stream, event point) { simulated::wait(stream, point); }
};
struct without_total : backend::simulated {
  using simulated::simulated;
  wait_total waited(wait_cause) const = delete;
};
/// Waits of another backend are not those of this one.
static_assert(measuring_backend<backend::simulated> && measuring_backend<backend::host_arena>);
static_assert(stream_backend<without_cause> && !measuring_backend<without_cause>);
static_assert(stream_backend<without_total> && !measuring_backend<without_total>);
static_assert(!measuring_backend<support::adversarial> && !measuring_backend<support::failing<backend::host_arena>>);

template <class Backend>
void check_order(Backend& mem)
{
  std::byte* const there = mem.allocate(tier::device, 1_KiB);
  mem.fill(there, std::byte{1}, 1_KiB, agent::to_device);
  const event filled = mem.record(agent::to_device);
  const event before = mem.record(agent::to_host);
  mem.wait(agent::to_host, filled, wait_cause::demand_miss);
  mem.fill(there, std::byte{2}, 1_KiB, agent::to_host);
  CHECK(mem.record(agent::to_host).value > before.value);
  mem.wait(agent::host, mem.record(agent::to_host), wait_cause::other);
  if constexpr (Backend::host_addressable) CHECK(there[1'023] == std::byte{2});
  CHECK_THROWS_AS(mem.wait(agent{7}, filled, wait_cause::other), usage_error);
  CHECK(mem.waited(wait_cause::throttle) == wait_total{});
}

}  // namespace

TEST_CASE("a wait that names its cause orders as one that does not", "[backend]")
{
  backend::host_arena arena{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  check_order(arena);
  backend::simulated machine{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  check_order(machine);
}

}  // namespace measuring_backend_test

namespace stream_checks_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("an unknown agent is refused with its index and the count", "[backend]")
{
  CHECK_NOTHROW(backend::require_agent(agent::to_host, 4));
  CHECK_THAT(support::refusal<usage_error>([&] { backend::require_agent(static_cast<agent>(4), 4); }),
             ContainsSubstring("index 4") && ContainsSubstring("has 4"));
}

}  // namespace stream_checks_test

namespace wait_totals_test {

using namespace chunkmem;

TEST_CASE("totals of each cause are added up by several threads", "[backend]")
{
  backend::wait_totals totals;
  const auto work = [&totals](wait_cause why, std::uint64_t nanoseconds) {
    for (int index = 0; index < 1'000; ++index) totals.add(why, nanoseconds);
  };
  std::thread one{[&] { work(wait_cause::demand_miss, 3); }};
  std::thread other{[&] { work(wait_cause::demand_miss, 4); }};
  work(wait_cause::other, 5);
  one.join();
  other.join();
  CHECK(totals.of(wait_cause::demand_miss) == wait_total{2'000, 7'000});
  CHECK(totals.of(wait_cause::other) == wait_total{1'000, 5'000});
  CHECK(totals.of(wait_cause::throttle) == wait_total{});
  CHECK(totals.of(wait_cause::optimizer_input) == wait_total{});
}

}  // namespace wait_totals_test
