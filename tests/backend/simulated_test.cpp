#include <chunkmem/backend/simulated.hpp>

#include <conformance/stream_backend.hpp>
#include <support/catch.hpp>
#include <support/failing.hpp>

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
  CHECK(mem.now() == 0);
}

}  // namespace simulated_test
