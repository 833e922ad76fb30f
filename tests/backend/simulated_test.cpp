// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/simulated.hpp>

#include <conformance/stream_backend.hpp>
#include <support/catch.hpp>
#include <support/failing.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace cost_table_test {

using namespace chunkmem;
using backend::cost_table;
using backend::link_cost;

TEST_CASE("a link costs its latency and then its rate, rounded up", "[backend]")
{
  constexpr link_cost link{.latency_nanoseconds = 100, .bytes_per_second = 1e9};
  STATIC_REQUIRE(link.nanoseconds_for(bytes{0}) == 100);
  STATIC_REQUIRE(link.nanoseconds_for(bytes{1'000}) == 1'100);
  constexpr link_cost fast{.latency_nanoseconds = 0, .bytes_per_second = 3e9};
  STATIC_REQUIRE(fast.nanoseconds_for(bytes{1}) == 1);
  STATIC_REQUIRE(fast.nanoseconds_for(bytes{4}) == 2);
}

TEST_CASE("a cost that 64 bits do not hold saturates", "[backend]")
{
  constexpr link_cost slow{.latency_nanoseconds = 5, .bytes_per_second = 1e-9};
  STATIC_REQUIRE(slow.nanoseconds_for(bytes{UINT64_MAX}) == UINT64_MAX);
  constexpr link_cost late{.latency_nanoseconds = UINT64_MAX, .bytes_per_second = 1e9};
  STATIC_REQUIRE(late.nanoseconds_for(bytes{1}) == UINT64_MAX);
}

TEST_CASE("more bytes never cost less", "[backend]")
{
  const link_cost link{.latency_nanoseconds = 3, .bytes_per_second = 24.7e9};
  std::uint64_t before = 0;
  for (std::uint64_t size = 1; size < (std::uint64_t{1} << 62); size = size * 2 + 1) {
    CHECK(link.nanoseconds_for(bytes{size}) >= before);
    before = link.nanoseconds_for(bytes{size});
  }
}

TEST_CASE("each direction has its own cost", "[backend]")
{
  const cost_table costs{
      .to_device = {1, 1e9}, .to_host = {2, 1e9}, .within_device = {3, 1e9}, .within_host = {4, 1e9}};
  CHECK(costs.between(tier::host, tier::device).latency_nanoseconds == 1);
  CHECK(costs.between(tier::device, tier::host).latency_nanoseconds == 2);
  CHECK(costs.between(tier::device, tier::device).latency_nanoseconds == 3);
  CHECK(costs.between(tier::host, tier::host).latency_nanoseconds == 4);
}

TEST_CASE("a rate that is not above zero is a config_error", "[backend]")
{
  CHECK_NOTHROW(backend::require_usable(cost_table{}));
  for (const double rate : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS_AS(backend::require_usable(cost_table{.to_host = {1, rate}}), config_error);
  }
  CHECK_NOTHROW(backend::require_usable(cost_table{.host_memory_bytes_per_second = 1e9}));
  for (const double rate : {-1.0, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THROWS_AS(backend::require_usable(cost_table{.host_memory_bytes_per_second = rate}), config_error);
}

TEST_CASE("a copy touches host memory once for each of its ends that lies there", "[backend]")
{
  STATIC_REQUIRE(cost_table::host_bytes(tier::host, tier::device, bytes{5}) == bytes{5});
  STATIC_REQUIRE(cost_table::host_bytes(tier::device, tier::host, bytes{5}) == bytes{5});
  STATIC_REQUIRE(cost_table::host_bytes(tier::host, tier::host, bytes{5}) == bytes{10});
  STATIC_REQUIRE(cost_table::host_bytes(tier::device, tier::device, bytes{5}) == bytes{0});
}

}  // namespace cost_table_test

namespace shared_bandwidth_test {

using namespace chunkmem;
using backend::shared_bandwidth;

namespace {

constexpr double one_byte_each_nanosecond = 1e9;

/// The same, one nanosecond after the other.
class tick_by_tick {
 public:
  std::uint64_t serve(std::uint64_t begin, std::uint64_t nanoseconds, std::uint64_t size)
  {
    const std::uint64_t lasts = nanoseconds < size ? size : nanoseconds;
    if (size == 0) return begin + lasts;
    const double wanted = static_cast<double>(size) / static_cast<double>(lasts);
    std::uint64_t now = begin;
    for (double left = static_cast<double>(lasts); left > 0; ++now) {
      if (now >= unused_.size()) unused_.resize(now + 1, 1.0);
      const double pace = unused_[now] < wanted ? unused_[now] / wanted : 1.0;
      unused_[now] -= wanted * pace;
      left -= pace;
    }
    return now;
  }

 private:
  std::vector<double> unused_;
};

}  // namespace

TEST_CASE("works that fit beside each other last what they last alone", "[backend]")
{
  shared_bandwidth memory{one_byte_each_nanosecond};
  CHECK(memory.serve(0, 100, bytes{50}) == 100);
  CHECK(memory.serve(0, 100, bytes{25}) == 100);
  CHECK(memory.serve(20, 40, bytes{10}) == 60);
}

TEST_CASE("what comes later gets what is left until there is more", "[backend]")
{
  shared_bandwidth memory{one_byte_each_nanosecond};
  CHECK(memory.serve(0, 100, bytes{75}) == 100);
  CHECK(memory.serve(0, 100, bytes{50}) == 150);   // a quarter until 100, which is half its pace, then all of it
  CHECK(memory.serve(0, 10, bytes{10}) == 120);    // nothing until 100, a half until 120
  CHECK(memory.serve(110, 10, bytes{10}) == 140);  // nothing until 120, a half until 140
}

TEST_CASE("what starts before something given earlier finds the rate unused until then", "[backend]")
{
  shared_bandwidth memory{one_byte_each_nanosecond};
  CHECK(memory.serve(1'000, 100, bytes{100}) == 1'100);
  CHECK(memory.serve(500, 100, bytes{100}) == 600);
  CHECK(memory.serve(950, 100, bytes{100}) == 1'150);  // 50 before the first one, 50 after it
}

TEST_CASE("a work never lasts less than its bytes at the whole rate", "[backend]")
{
  shared_bandwidth memory{2e9};
  CHECK(memory.serve(7, 10, bytes{2'000}) == 1'007);
  CHECK(memory.serve(0, 0, bytes{1}) == 1);
  CHECK(memory.serve(5, 3, bytes{0}) == 8);
}

TEST_CASE("shares of any works are those of a count by nanoseconds", "[backend]")
{
  std::mt19937 random{11};
  const auto roll = [&](std::uint64_t below) { return random() % below; };
  for (int round = 0; round < 200; ++round) {
    shared_bandwidth memory{one_byte_each_nanosecond};
    tick_by_tick oracle;
    for (int work = 0; work < 30; ++work) {
      const std::uint64_t begin = roll(200);
      const std::uint64_t share = std::uint64_t{1} << roll(3);  // halves and quarters: all numbers are exact
      const std::uint64_t lasts = 4 * (1 + roll(8));
      CAPTURE(round, work, begin, share, lasts);
      REQUIRE(memory.serve(begin, lasts, bytes{lasts / share}) == oracle.serve(begin, lasts, lasts / share));
    }
  }
}

TEST_CASE("whatever is asked for, the rate is never exceeded, and what is over is forgotten", "[backend]")
{
  std::mt19937 random{3};
  const auto roll = [&](std::uint64_t below) { return random() % below; };
  constexpr double rate = 37e9;
  shared_bandwidth memory{rate};
  std::uint64_t taken = 0;
  std::uint64_t last = 0;
  std::size_t most = 0;
  for (int work = 0; work < 100'000; ++work) {
    const std::uint64_t now = static_cast<std::uint64_t>(work) * 700;
    const std::uint64_t lasts = roll(2'000);
    const std::uint64_t size = roll(50'000);
    memory.forget_before(now);
    const std::uint64_t begin = now + roll(500);
    const std::uint64_t end = memory.serve(begin, lasts, bytes{size});
    REQUIRE(end >= begin + lasts);
    taken += size;
    last = end < last ? last : end;
    REQUIRE(static_cast<double>(last) * rate / 1e9 >= 0.999999 * static_cast<double>(taken));
    most = memory.changes() < most ? most : memory.changes();
  }
  CHECK(most < 1'000);
  CHECK(static_cast<double>(last) * rate / 1e9 < 1.1 * static_cast<double>(taken) + rate);  // and it is used
}

TEST_CASE("what ends after centuries never ends", "[backend]")
{
  shared_bandwidth memory{1e-9};
  CHECK(memory.serve(0, 1, bytes{UINT64_MAX}) == UINT64_MAX);
  CHECK(memory.serve(UINT64_MAX - 1, 5, bytes{0}) == UINT64_MAX);
  CHECK(memory.serve(UINT64_MAX - 1, 5, bytes{1}) == UINT64_MAX);
}

}  // namespace shared_bandwidth_test

namespace simulated_test {

using namespace chunkmem;
using backend::cost_table;
using backend::simulated;
using backend::simulated_options;

namespace {

constexpr cost_table round_numbers{.to_device = {10, 1e9},
                                   .to_host = {20, 1e9},
                                   .within_device = {1, 1e12},
                                   .within_host = {2, 1e12},
                                   .launch_nanoseconds = 5};

simulated machine(bool host_runs_ahead)
{
  return simulated{{.device_capacity = bytes{10'000},
                    .host_capacity = bytes{10'000},
                    .costs = round_numbers,
                    .host_runs_ahead = host_runs_ahead}};
}

}  // namespace

TEST_CASE("simulated keeps the laws of a stream backend", "[backend]")
{
  const bool ahead = GENERATE(false, true);
  CAPTURE(ahead);
  conformance::stream_backend_laws<simulated>([ahead](bytes device, bytes host) {
    return simulated{{.device_capacity = device, .host_capacity = host, .host_runs_ahead = ahead}};
  });
  conformance::stream_backend_laws<support::failing<simulated>>([ahead](bytes device, bytes host) {
    return support::failing<simulated>{
        {}, simulated_options{.device_capacity = device, .host_capacity = host, .host_runs_ahead = ahead}};
  });
}

TEST_CASE("both directions of the link work at the same time, and each copy pays its own", "[backend]")
{
  simulated mem = machine(false);
  std::byte* const here = mem.allocate(tier::host, bytes{4'000});
  std::byte* const there = mem.allocate(tier::device, bytes{4'000});
  mem.copy(there, here, bytes{1'000}, agent::to_device);
  mem.copy(here + 1'000, there + 1'000, bytes{1'000}, agent::to_host);
  mem.copy(there, here, bytes{1'000}, agent::to_device);
  CHECK(mem.record(agent::to_device).value == 2 * 1'010);
  CHECK(mem.record(agent::to_host).value == 1'020);
  CHECK(mem.now() == 0);
  mem.fill(there, std::byte{}, bytes{1'000}, agent::to_host);
  CHECK(mem.record(agent::to_host).value == 1'020 + 2);
}

TEST_CASE("two agents share one direction of the link, and the later copy pays", "[backend]")
{
  simulated mem = machine(false);
  std::byte* const here = mem.allocate(tier::host, bytes{4'000});
  std::byte* const there = mem.allocate(tier::device, bytes{4'000});
  const agent fifth = mem.adopt();
  mem.copy(there, here, bytes{1'000}, agent::to_device);
  mem.copy(there + 1'000, here, bytes{1'000}, fifth);
  CHECK(mem.record(fifth).value == 2 * 1'010);
  mem.copy(there + 1'000, there, bytes{1'000}, fifth);  // within the device: no link
  CHECK(mem.record(fifth).value == 2 * 1'010 + 2);
}

TEST_CASE("a caller that is compute pays for compute, one that runs ahead does not", "[backend]")
{
  for (const bool ahead : {false, true}) {
    simulated mem = machine(ahead);
    mem.advance(agent::compute, 500);
    mem.launch(agent::compute, [] { FAIL("a launched callable ran in a machine without bytes"); });
    CHECK(mem.clock(agent::compute) == 505);
    CHECK(mem.now() == (ahead ? 0u : 505u));
    mem.wait(agent::host, mem.record(agent::compute));
    CHECK(mem.now() == 505);
  }
}

TEST_CASE("a wait delays its agent and nobody else", "[backend]")
{
  simulated mem = machine(true);
  std::byte* const here = mem.allocate(tier::host, bytes{1'000});
  std::byte* const there = mem.allocate(tier::device, bytes{1'000});
  mem.copy(there, here, bytes{1'000}, agent::to_device);
  mem.wait(agent::compute, mem.record(agent::to_device));
  CHECK(mem.now() == 0);
  mem.advance(agent::compute, 100);
  CHECK(mem.clock(agent::compute) == 1'110);
  mem.wait(agent::to_host, {.value = 0, .source = agent::compute});
  CHECK(mem.clock(agent::to_host) == 0);
}

TEST_CASE("a wait that names its cause is told with the virtual time that it takes", "[backend]")
{
  simulated mem = machine(true);
  std::byte* const there = mem.allocate(tier::device, 1_KiB);
  std::byte* const here = mem.allocate(tier::host, 1_KiB);
  mem.copy(there, here, 1'000_B, agent::to_device);  // until 1,010
  const event loaded = mem.record(agent::to_device);
  mem.advance(agent::compute, 300);
  mem.wait(agent::compute, loaded, wait_cause::demand_miss);
  CHECK(mem.waited(wait_cause::demand_miss) == wait_total{1, 710});
  mem.wait(agent::compute, loaded, wait_cause::demand_miss);  // it has come
  mem.wait(agent::to_host, loaded);                           // nobody asks
  CHECK(mem.waited(wait_cause::demand_miss) == wait_total{1, 710});
  mem.advance(agent::host, 1'000);
  const agent late = mem.adopt();  // idle until the caller gives it this
  mem.wait(late, loaded, wait_cause::other);
  mem.wait(agent::host, loaded, wait_cause::optimizer_input);
  CHECK(mem.waited(wait_cause::other) == wait_total{1, 10});
  CHECK(mem.waited(wait_cause::optimizer_input) == wait_total{1, 10});
  CHECK(mem.waited(wait_cause::throttle) == wait_total{});
}

TEST_CASE("nothing starts before the caller asked for it", "[backend]")
{
  simulated mem = machine(true);
  std::byte* const here = mem.allocate(tier::host, bytes{1'000});
  std::byte* const there = mem.allocate(tier::device, bytes{1'000});
  mem.advance(agent::host, 7'000);
  mem.copy(there, here, bytes{1'000}, agent::to_device);
  CHECK(mem.clock(agent::to_device) == 8'010);
  mem.advance(agent::compute, 1);
  CHECK(mem.clock(agent::compute) == 7'001);
}

TEST_CASE("copies of both links and updates of the host share host memory where it has a rate", "[backend]")
{
  cost_table costs{.to_device = {0, 1e9}, .to_host = {0, 1e9}, .within_device = {0, 1e9}, .within_host = {0, 1e9}};
  costs.host_memory_bytes_per_second = 2e9;
  simulated mem{
      {.device_capacity = bytes{10'000}, .host_capacity = bytes{10'000}, .costs = costs, .host_runs_ahead = true}};
  std::byte* const here = mem.allocate(tier::host, bytes{4'000});
  std::byte* const there = mem.allocate(tier::device, bytes{4'000});
  mem.copy(there, here, bytes{1'000}, agent::to_device);
  mem.copy(here + 1'000, there + 1'000, bytes{500}, agent::to_host);
  CHECK(mem.clock(agent::to_device) == 1'000);
  CHECK(mem.clock(agent::to_host) == 500);
  mem.copy(there + 2'000, there, bytes{1'000}, agent::compute);  // touches no host memory
  CHECK(mem.clock(agent::compute) == 1'000);
  // nothing is left until 500, half of the rate until 1,000: as much as it wants
  mem.advance(agent::host, 1'000, bytes{1'000});
  CHECK(mem.now() == 1'500);
  mem.copy(here, here + 1'000, bytes{1'000}, agent::host);  // reads and writes: all of the rate, from 1,500 on
  CHECK(mem.now() == 2'500);
  mem.fill(here, std::byte{}, bytes{1'000}, agent::to_host);
  mem.fill(there, std::byte{}, bytes{1'000}, agent::to_device);
  CHECK(mem.clock(agent::to_host) == 3'500);
  CHECK(mem.clock(agent::to_device) == 3'500);
  mem.advance(agent::host, 10);
  CHECK(mem.now() == 2'510);
}

TEST_CASE("an unlimited host memory changes no time, and no limit lets bytes pass faster than it", "[backend]")
{
  std::mt19937 random{5};
  const auto roll = [&](std::uint64_t below) { return random() % below; };
  cost_table costs = round_numbers;
  simulated_options options{
      .device_capacity = bytes{10'000}, .host_capacity = bytes{10'000}, .costs = costs, .host_runs_ahead = true};
  simulated unlimited{options};
  options.costs.host_memory_bytes_per_second = 1e18;
  simulated plenty{options};
  options.costs.host_memory_bytes_per_second = 1.5e9;
  simulated narrow{options};
  std::uint64_t touched = 0;
  std::byte* here[3];
  std::byte* there[3];
  simulated* const all[] = {&unlimited, &plenty, &narrow};
  for (std::size_t index = 0; index < 3; ++index) {
    here[index] = all[index]->allocate(tier::host, bytes{4'000});
    there[index] = all[index]->allocate(tier::device, bytes{4'000});
  }
  for (int work = 0; work < 5'000; ++work) {
    const std::uint64_t size = 1 + roll(1'000);
    const std::uint64_t kind = roll(6);
    const auto one = static_cast<agent>(roll(4));
    const auto other = static_cast<agent>(roll(4));
    for (std::size_t index = 0; index < 3; ++index) {
      simulated& mem = *all[index];
      if (kind == 0) mem.copy(there[index], here[index], bytes{size}, agent::to_device);
      if (kind == 1) mem.copy(here[index], there[index], bytes{size}, agent::to_host);
      if (kind == 2) mem.advance(agent::host, size, bytes{3 * size});
      if (kind == 3) mem.advance(one, size);
      if (kind == 4) mem.wait(one, mem.record(other));
      if (kind == 5) mem.fill(there[index], std::byte{}, bytes{size}, one);
    }
    touched += kind < 2 ? size : kind == 2 ? 3 * size : 0;
  }
  std::uint64_t last = 0;
  for (const agent stream : {agent::host, agent::compute, agent::to_device, agent::to_host}) {
    CHECK(unlimited.clock(stream) == plenty.clock(stream));
    CHECK(narrow.clock(stream) >= unlimited.clock(stream));
    last = narrow.clock(stream) < last ? last : narrow.clock(stream);
  }
  CHECK(static_cast<double>(last) * 1.5 >= static_cast<double>(touched));
}

TEST_CASE("addresses are never given twice", "[backend]")
{
  simulated mem = machine(false);
  std::byte* const first = mem.allocate(tier::device, bytes{10'000});
  mem.release(tier::device, first);
  std::byte* const second = mem.allocate(tier::device, bytes{10'000});
  CHECK(first != second);
  mem.release(tier::device, first);
  CHECK(mem.unknown_releases() == 1);
}

TEST_CASE("made-up memory ends after 2^60 bytes, as out_of_memory", "[backend]")
{
  simulated mem{{.device_capacity = bytes{UINT64_MAX}, .host_capacity = bytes{UINT64_MAX}}};
  const bytes half{std::uint64_t{1} << 59};
  (void)mem.allocate(tier::device, half);
  CHECK_THROWS_AS(mem.allocate(tier::device, half), out_of_memory);
  (void)mem.allocate(tier::device, bytes{half.count() - 2'048});
  CHECK_THROWS_AS(mem.allocate(tier::device, bytes{2'048}), out_of_memory);
  CHECK_NOTHROW(mem.allocate(tier::host, half));
}

TEST_CASE("simulated refuses unknown agents, null addresses, unrecorded events and useless rates", "[backend]")
{
  simulated mem = machine(false);
  std::byte* const place = mem.allocate(tier::host, bytes{64});
  const agent unknown = static_cast<agent>(4);
  CHECK_THROWS_AS(mem.copy(place, place, bytes{64}, unknown), usage_error);
  CHECK_THROWS_AS(mem.advance(unknown, 1), usage_error);
  CHECK_THROWS_AS(mem.record(unknown), usage_error);
  CHECK_THROWS_AS(mem.copy(nullptr, place, bytes{64}, agent::host), usage_error);
  CHECK_THROWS_AS(mem.wait(agent::host, {.value = 1, .source = agent::to_host}), usage_error);
  CHECK_THROWS_AS((simulated{{.costs = {.to_device = {0, 0.0}}}}), config_error);
  CHECK_THROWS_AS((simulated{{.costs = {.host_memory_bytes_per_second = -1}}}), config_error);
  CHECK_THROWS_AS(mem.advance(unknown, 1, bytes{1}), usage_error);
  CHECK(mem.now() == 0);
}

}  // namespace simulated_test
