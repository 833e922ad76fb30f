#include <chunkmem/manager/engine.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/eviction/lru.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/transfer/no_prefetch.hpp>
#include <chunkmem/transfer/planned.hpp>
#define CHUNKMEM_TEST_COUNTS_ALLOCATIONS
#include <support/catch.hpp>
#include <support/count_allocations.hpp>
#include <support/toy_trainer.hpp>

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace engine_test {

namespace cm = chunkmem;
namespace toy = support::toy;
using namespace cm::literals;
using arena = cm::backend::host_arena;

namespace {

struct steady {
  std::uint64_t allocations = 0;
  std::uint64_t other_waits = 0;
};

/// What ten steps did after the first two: on every thread, and by cause of wait.
template <class Eviction, class Transfer>
steady run_steady_steps(bool launched)
{
  using manager = cm::manager<arena, Eviction, Transfer>;
  arena memory{{.device_capacity = 80_KiB, .host_capacity = 1_MiB, .async_compute = launched}};
  manager m{memory, {.chunk_bytes = 4_KiB}};
  toy::crew workers;
  if (launched) workers = {cm::agent::compute, m.adopt()};
  toy::toy_trainer<manager, arena> trainer{m, memory, workers};
  trainer.reserve(64);
  trainer.initialise();
  for (std::uint32_t now = 0; now < 2; ++now) trainer.step(now);
  const auto before = support::allocations_so_far();
  const cm::report start = m.report();
  for (std::uint32_t now = 2; now < 12; ++now) trainer.step(now);
  const cm::report end = m.report();
  const auto grown = support::allocations_so_far() - before;
  CHECK(end.loads > start.loads);  // the device is too small: steps do move chunks
  CHECK(end.divergences == 0);
  CHECK(end.abandoned_plans == 0);
  CHECK(end.skipped_moves == 0);
  CHECK(end.replans <= 3);
  CHECK((end.loads - start.loads) % 10 == 0);
  return {grown.all(), end.waits.other - start.waits.other};
}

steady worst_case()
{
  steady worst;
  for (const bool launched : {false, true})
    for (const steady& one : {run_steady_steps<cm::eviction::lru, cm::transfer::no_prefetch>(launched),
                              run_steady_steps<cm::eviction::lru, cm::transfer::lookahead>(launched),
                              run_steady_steps<cm::eviction::belady, cm::transfer::no_prefetch>(launched),
                              run_steady_steps<cm::eviction::belady, cm::transfer::lookahead>(launched),
                              run_steady_steps<cm::eviction::belady, cm::transfer::planned>(launched)}) {
      worst.allocations = std::max(worst.allocations, one.allocations);
      worst.other_waits = std::max(worst.other_waits, one.other_waits);
    }
  return worst;
}

void write_figures(const steady& worst)
{
  const char* const folder = std::getenv("CHUNKMEM_FIGURES");
  if (folder == nullptr) return;
  std::ofstream file{std::string{folder} + "/test_manager.json"};
  const auto record = [&](std::string_view name, std::uint64_t value) {
    file << "  {\"name\": \"" << name << "\", \"value\": " << value
         << ", \"unit\": \"count\", \"relation\": \"==\", \"bound\": 0, \"command\": \"test_manager [steady]\"}";
  };
  file << "[\n";
  record("engine.steady_state_allocations", worst.allocations);
  file << ",\n";
  record("engine.other_host_waits", worst.other_waits);
  file << "\n]\n";
}

}  // namespace

TEST_CASE("a step that repeats allocates nothing on any thread and waits for nothing unnamed", "[manager][steady]")
{
  const steady worst = worst_case();
  CHECK(worst.other_waits == 0);
  if (!support::counts_allocations) return;  // under a sanitizer the heap is the sanitizer's
  CHECK(worst.allocations == 0);
  write_figures(worst);
}

TEST_CASE("a resident access that repeats moves nothing", "[manager]")
{
  arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto weights = m.add_stacked<float>(20, {1000}, cm::role::parameter);
  for (std::uint32_t at = 0; at < 20; ++at)
    for (float& value : m.acquire(weights.slice(at), cm::access::write).span()) value = 1;
  for (int step = 0; step < 5; ++step) {
    auto scope = m.iteration();
    for (std::uint32_t at = 0; at < 20; ++at) m.acquire(weights.slice(at), cm::access::read_write).span()[0] += 1;
  }
  const cm::report seen = m.report();
  CHECK(seen.loads + seen.write_backs + seen.evictions == 0);
  CHECK(seen.waits.demand_miss + seen.waits.optimizer_input == 0);
  CHECK(m.acquire(weights.slice(3), cm::access::read).span()[0] == 6.0F);
}

TEST_CASE("bytes that are dead are not copied", "[manager]")
{
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 1_MiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto scratch = m.add<float>({1024}, cm::role::activation);
  const auto weights = m.add_stacked<float>(3, {1024}, cm::role::parameter);
  for (std::uint32_t at = 0; at < 3; ++at) { const auto pin = m.acquire(weights.slice(at), cm::access::write); }
  std::uint64_t before = 0;
  for (int step = 0; step < 4; ++step) {
    if (step == 1) before = m.report().write_backs;
    auto scope = m.iteration();
    for (std::uint32_t at = 0; at < 3; ++at) {
      auto weight = m.acquire(weights.slice(at), cm::access::read);
      auto pin = m.acquire(scratch, cm::access::write);
      pin.span()[0] = 1;
      pin.release();
      m.drop(scratch);
    }
  }
  CHECK(m.report().write_backs == before);
}

TEST_CASE("a failed call changes neither states nor the record", "[manager]")
{
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 1_MiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto weights = m.add_stacked<float>(4, {1024}, cm::role::parameter);
  const auto fresh = m.add<float>({1024}, cm::role::activation);
  for (std::uint32_t at = 0; at < 4; ++at) { const auto pin = m.acquire(weights.slice(at), cm::access::write); }
  for (int step = 0; step < 5; ++step) {
    auto scope = m.iteration();
    for (std::uint32_t at = 0; at + 1 < 4; ++at) {
      const auto one = m.acquire(weights.slice(at), cm::access::read);
      const auto two = m.acquire(weights.slice(at + 1), cm::access::read);
      if (step < 3) continue;  // from here on with mistakes in between: all refused, none counted
      CHECK_THROWS_AS(m.acquire(fresh, cm::access::read), cm::usage_error);
      CHECK_THROWS_AS(m.drop(weights.slice(at)), cm::usage_error);
      CHECK_THROWS_AS(m.drop(fresh), cm::usage_error);
      CHECK_THROWS_AS(m.acquire(weights.slice(at), cm::access::write, cm::at::host), cm::usage_error);
      CHECK_THROWS_AS(m.iteration(), cm::usage_error);
    }
  }
  CHECK(m.report().divergences == 0);
  CHECK(!m.drifted());
}

}  // namespace engine_test
