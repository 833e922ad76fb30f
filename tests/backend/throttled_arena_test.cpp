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
// 4 KiB take 4,096 s up and 2,048 s down: nobody sleeps for that, and a test takes next to no processor time beside it.
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
  const pace time = GENERATE(pace::wall_clock, pace::caller);
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

}  // namespace throttled_arena_test
