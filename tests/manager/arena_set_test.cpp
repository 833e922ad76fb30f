// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/hazard_tracker.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/failing.hpp>

#include <memory>
#include <stdexcept>

namespace arena_set_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;

TEST_CASE("arenas are all allocated or none, and given back once", "[manager]")
{
  using failing = support::failing<support::adversarial>;
  for (const std::uint64_t which : {0U, 1U}) {
    failing memory{support::failure_plan{.allocation = which},
                   support::adversarial_options{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
    cm::device_health health;
    cm::arena_set<failing> arenas{memory, health};
    CHECK((arenas.capacities()[cm::tier::device] == 8_KiB && arenas.capacities()[cm::tier::host] == 64_KiB));
    CHECK_THROWS_AS(arenas.allocate(), cm::out_of_memory);
    for (const cm::tier where : cm::all_tiers) CHECK(arenas.begins()[where] == nullptr);
    arenas.allocate();
    for (const cm::tier where : cm::all_tiers) CHECK(arenas.begins()[where] != nullptr);
    arenas.release();
    arenas.release();
    for (const cm::tier where : cm::all_tiers) CHECK(arenas.begins()[where] == nullptr);
    memory.inner().drain();
    CHECK(memory.inner().faults().empty());
  }
}

TEST_CASE("memory goes back when all agents are done", "[manager]")
{
  arena memory{{.device_capacity = 4_KiB, .host_capacity = 4_KiB, .async_compute = true}};
  cm::device_health health;
  int done = 0;
  {
    cm::arena_set<arena> arenas{memory, health};
    arenas.allocate();
    memory.launch(cm::agent::compute, [&done, begin = arenas.begins()[cm::tier::device]] {
      *begin = std::byte{1};
      done = 1;
    });
  }
  CHECK(done == 1);
}

TEST_CASE("arenas that cannot be allocated are asked for again", "[manager]")
{
  using failing = support::failing<support::adversarial>;
  for (const std::uint64_t which : {0U, 1U}) {
    failing memory{support::failure_plan{.allocation = which, .persistent = true},
                   support::adversarial_options{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
    {
      cm::manager<failing> m{memory, {.chunk_bytes = 4_KiB}};
      const auto weight = m.add<float>({100}, cm::role::parameter);
      for (int attempt = 0; attempt < 3; ++attempt) {
        CHECK_THROWS_AS(m.acquire(weight, cm::access::write), cm::out_of_memory);
        CHECK_THROWS_AS(m.iteration(), cm::out_of_memory);
        CHECK_THROWS_AS(m.lease(cm::tier::host, 256_B), cm::out_of_memory);
        CHECK(m.state_of(weight) == cm::tensor_state::free);
      }
      memory.set_plan({});
      auto scope = m.iteration();
      CHECK(m.acquire(weight, cm::access::write).size() == 100);
    }
    memory.inner().drain();
    CHECK(memory.inner().faults().empty());
  }
}

TEST_CASE("a manager ends while copies are still queued", "[manager]")
{
  support::adversarial memory{
      {.device_capacity = 8_KiB, .host_capacity = 64_KiB, .when = support::schedule::latest, .async_compute = true}};
  {
    cm::manager<support::adversarial> m{memory, {.chunk_bytes = 4_KiB}};
    const auto weights = m.add_stacked<float>(6, {1024}, cm::role::parameter);
    for (int round = 0; round < 2; ++round)
      for (std::uint32_t index = 0; index < 6; ++index) {
        const auto pin = m.acquire(weights.slice(index), cm::access::write, cm::agent::compute);
        memory.launch(cm::agent::compute, [to = pin.data()] { *to = 1; });
      }
  }
  memory.drain();
  CHECK(memory.faults().empty());
}

TEST_CASE("two managers on one backend share its capacity and nothing else", "[manager]")
{
  arena memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> first{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = first.add<float>({100}, cm::role::parameter);
  {
    const auto pin = first.acquire(weight, cm::access::write);
  }
  cm::manager<arena> second{memory, {.chunk_bytes = 4_KiB}};
  const auto other = second.add<float>({100}, cm::role::parameter);
  CHECK_THROWS_AS(second.acquire(other, cm::access::write), cm::out_of_memory);  // the first one took it all
  CHECK(first.acquire(weight, cm::access::read).size() == 100);
}

TEST_CASE("the report counts what happened and prints it", "[manager]")
{
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto weights = m.add_stacked<float>(5, {1000}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 5; ++index) {
    const auto pin = m.acquire(weights.slice(index), cm::access::write);
  }
  const cm::report seen = m.report();
  CHECK(seen.capacity[cm::tier::device] == 8_KiB);
  CHECK(seen.in_use[cm::tier::device] == 8_KiB);
  CHECK(seen.peak[cm::tier::device] == 8_KiB);
  CHECK(seen.evictions == 3);
  CHECK(seen.write_backs == 3);
  CHECK(seen.written_back == cm::bytes{3 * 4096});
  CHECK(seen.loads == 0);
  CHECK(seen.in_use[cm::tier::host] == 12_KiB);
  {
    const auto pin = m.acquire(weights.slice(0), cm::access::read);
  }
  CHECK(m.report().loads == 1);
  CHECK(m.report().json().find("\"loads\": 1,") != std::string::npos);
}

}  // namespace arena_set_test
