// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/simulated.hpp>

#include <conformance/stream_backend.hpp>
#include <support/catch.hpp>
#include <support/failing.hpp>

#include <cstddef>
#include <cstdint>
#include <random>

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
