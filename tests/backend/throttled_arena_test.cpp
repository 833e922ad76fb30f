// SPDX-License-Identifier: Apache-2.0
#include <support/throttled_arena.hpp>

#include <conformance/stream_backend.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>

namespace throttled_arena_test {

using namespace chunkmem;
using support::pace;
using support::throttled_arena;

constexpr std::uint64_t second = 1'000'000'000;
constexpr backend::cost_table free_of_cost{.to_device = {0, 1e18},
                                           .to_host = {0, 1e18},
                                           .within_device = {0, 1e18},
                                           .within_host = {0, 1e18},
                                           .launch_nanoseconds = 0};
// 4 KiB take 4,096 s up and 2,048 s down: no thread sleeps for that, and a test takes little processor time.
constexpr backend::cost_table slow{.to_device = {0, 1.0},
                                   .to_host = {0, 2.0},
                                   .within_device = {0, 1e18},
                                   .within_host = {0, 1e18},
                                   .launch_nanoseconds = 0};

struct places {
  throttled_arena memory{{.device_capacity = bytes{8192}, .host_capacity = bytes{8192}}, slow, pace::caller};
  std::byte* device = memory.allocate(tier::device, bytes{8192});
  std::byte* host = memory.allocate(tier::host, bytes{8192});
  std::uint64_t began = memory.now();

  void load() { memory.copy(device, host, bytes{4096}, agent::to_device); }
  void write_back() { memory.copy(host + 4096, device + 4096, bytes{4096}, agent::to_host); }
  void wait(agent stream) { memory.wait(agent::host, memory.record(stream)); }
  /// Whole seconds since it was made.
  [[nodiscard]] std::uint64_t passed() const { return (memory.now() - began) / second; }
};

TEST_CASE("a throttled arena keeps the laws of a stream backend", "[backend]")
{
  const pace time = GENERATE(pace::wall_clock, pace::caller, pace::agents);
  conformance::stream_backend_laws<throttled_arena>([time](bytes device, bytes host) {
    return throttled_arena{{.device_capacity = device, .host_capacity = host}, free_of_cost, time};
  });
}

TEST_CASE("by the caller's time a wait lasts until the deadline of the copy, and the bytes are there", "[backend]")
{
  places it;
  it.memory.fill(it.host, std::byte{7}, bytes{4096});
  it.load();
  CHECK(it.passed() < 100);  // enqueued alone
  it.wait(agent::to_device);
  CHECK(it.passed() >= 4095);
  CHECK(it.passed() < 4196);
  CHECK(it.device[4095] == std::byte{7});
}

TEST_CASE("by the caller's time copies of one agent follow each other, and those of two overlap", "[backend]")
{
  places it;
  it.load();
  it.load();
  it.write_back();
  it.wait(agent::to_host);
  CHECK(it.passed() >= 2047);
  CHECK(it.passed() < 2148);
  it.wait(agent::to_device);
  CHECK(it.passed() >= 8191);
  CHECK(it.passed() < 8292);
  CHECK(it.memory.waited() <= it.memory.now());
  CHECK(it.memory.waited() >= 8091 * second);  // the processor took less than 100 s
}

TEST_CASE("by the caller's time an agent that waits for another begins at its deadline", "[backend]")
{
  places it;
  it.load();
  it.memory.wait(agent::to_host, it.memory.record(agent::to_device));
  it.write_back();
  it.wait(agent::to_host);
  CHECK(it.passed() >= 4096 + 2047);
  CHECK(it.passed() < 4096 + 2148);
}

TEST_CASE("a stopped clock stands still, and copies go on when it goes on", "[backend]")
{
  places it;
  it.load();
  it.memory.stop_clock();
  const std::uint64_t stopped = it.memory.now();
  CHECK(it.memory.now() == stopped);
  it.memory.start_clock();
  it.wait(agent::to_device);
  CHECK(it.passed() >= 4095);
  CHECK(it.passed() < 4196);
}

TEST_CASE("another cost table holds for what is asked for from then on", "[backend]")
{
  places it;
  it.load();
  it.memory.take_costs(free_of_cost);
  it.load();
  it.wait(agent::to_device);
  CHECK(it.passed() >= 4095);
  CHECK(it.passed() < 4196);
}

TEST_CASE("work of the caller takes the caller's time", "[backend]")
{
  places it;
  it.memory.advance(agent::compute, 50 * second);
  it.memory.advance(agent::host, 60 * second);
  CHECK(it.passed() >= 109);
  CHECK(it.passed() < 210);
}

TEST_CASE("by the agents' clocks an operation begins when its agent, its events and its caller are there", "[backend]")
{
  const backend::cost_table costs = support::links_alone(4096e2, 2048e2);  // 4 KiB take 10 ms up and 20 ms down
  throttled_arena memory{
      {.device_capacity = bytes{8192}, .host_capacity = bytes{8192}, .async_compute = true}, costs, pace::agents};
  std::byte* const device = memory.allocate(tier::device, bytes{8192});
  std::byte* const host = memory.allocate(tier::host, bytes{8192});
  constexpr std::uint64_t unit = 10'000'000;  // ns
  memory.begin_afresh();
  const std::uint64_t began = memory.now();
  memory.note_place(7);
  memory.copy(device, host, bytes{4096}, agent::to_device);         // ends at 1
  memory.advance(agent::compute, 5 * unit);                         // ends at 5
  memory.copy(device + 4096, host, bytes{4096}, agent::to_device);  // ends at 2
  memory.wait(agent::to_host, memory.record(agent::to_device));
  memory.copy(host + 4096, device, bytes{4096}, agent::to_host);  // 2 to 4
  memory.wait(agent::compute, memory.record(agent::to_host));     // over already
  memory.advance(agent::compute, 1 * unit);                       // ends at 6
  for (int copy = 0; copy < 6; ++copy)                            // the last one ends at 8
    memory.copy(device + 4096, host, bytes{4096}, agent::to_device);
  memory.wait(agent::compute, memory.record(agent::to_device));  // two units of waiting
  memory.wait(agent::host, memory.record(agent::compute));
  const double passed = static_cast<double>(memory.now() - began) / unit;
  CHECK(passed >= 8);
  CHECK(passed < 9);  // and the processor time of the caller
  double waited = 0;
  for (const support::agent_wait& it : memory.waits_of(agent::compute))
    if (it.source == agent::to_device && it.place == 7) waited += static_cast<double>(it.nanoseconds) / unit;
  CHECK(waited > 1.5);
  CHECK(waited < 2.5);
  REQUIRE(memory.waits_of(agent::host).size() == 1);
  CHECK(memory.waits_of(agent::host)[0].source == agent::compute);
}

TEST_CASE("by the agents' clocks two agents share the link of one direction", "[backend]")
{
  const backend::cost_table costs = support::links_alone(4096e2, 2048e2);  // 4 KiB take 10 ms up and 20 ms down
  throttled_arena memory{{.device_capacity = bytes{12'288}, .host_capacity = bytes{8192}}, costs, pace::agents};
  std::byte* const device = memory.allocate(tier::device, bytes{12'288});
  std::byte* const host = memory.allocate(tier::host, bytes{8192});
  const agent other = memory.adopt();
  memory.begin_afresh();
  const std::uint64_t began = memory.now();
  memory.copy(device, host, bytes{4096}, agent::to_device);
  memory.copy(device + 4096, host, bytes{4096}, other);  // from 10 to 20 ms, or the other one
  memory.copy(host + 4096, device + 8192, bytes{4096}, agent::to_host);
  for (const agent each : {agent::to_device, other, agent::to_host}) memory.wait(agent::host, memory.record(each));
  const double passed = static_cast<double>(memory.now() - began) * 1e-6;
  CHECK(passed >= 20);
  CHECK(passed < 30);  // the other direction has a link of its own
}

}  // namespace throttled_arena_test
