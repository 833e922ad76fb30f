// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/engine.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/any_manager.hpp>
#include <support/catch.hpp>
#include <support/count_allocations.hpp>
#include <support/figures.hpp>
#include <support/mixed_trainer.hpp>
#include <support/told_gatherer.hpp>

#include <string_view>
#include <utility>
#include <vector>

namespace engine_test {

namespace cm = chunkmem;
namespace mixed = support::mixed;
using namespace cm::literals;
using arena = cm::backend::host_arena;

namespace {

struct steady {
  std::uint64_t allocations = 0;
  std::uint64_t other_waits = 0;
};

/// What ten steps did after the first two: on every thread, and by cause of wait.
template <class Manager>
steady count_steady_steps(Manager& m, arena& memory, bool launched)
{
  mixed::crew workers;
  if (launched) workers = {cm::agent::compute, m.adopt()};
  mixed::trainer<Manager, arena, float> trainer{m, memory, mixed::usual_recipe(12), workers};
  trainer.reserve();
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

[[nodiscard]] cm::backend::host_arena_options room(bool launched)
{
  return {.device_capacity = 80_KiB, .host_capacity = 1_MiB, .async_compute = launched};
}
template <class Eviction, class Transfer>
steady run_steady_steps(bool launched)
{
  arena memory{room(launched)};
  cm::manager<arena, Eviction, Transfer> m{memory, {.chunk_bytes = 4_KiB}};
  return count_steady_steps(m, memory, launched);
}
steady run_chosen_steps(std::string_view eviction, std::string_view transfer, bool launched)
{
  arena memory{room(launched)};
  using manager = support::any_manager<cm::backend::host_arena>;
  manager m{support::make_manager<manager>(
      memory, {.chunk_bytes = 4_KiB},
      {.eviction = support::every_eviction{eviction}, .transfer = support::every_transfer{transfer}})};
  return count_steady_steps(m, memory, launched);
}

steady worst_case()
{
  steady worst;
  for (const bool launched : {false, true})
    for (const steady& one : {run_steady_steps<cm::eviction::lru, cm::transfer::no_prefetch>(launched),
                              run_chosen_steps("lru", "lookahead", launched),
                              run_steady_steps<cm::eviction::belady, cm::transfer::no_prefetch>(launched),
                              run_steady_steps<cm::eviction::belady, cm::transfer::lookahead>(launched),
                              run_chosen_steps("belady", "planned", launched)}) {
      worst.allocations = std::max(worst.allocations, one.allocations);
      worst.other_waits = std::max(worst.other_waits, one.other_waits);
    }
  return worst;
}

void write_figures(const steady& worst)
{
  support::write_figures("test_manager", "test_manager [steady]",
                         {{"engine.steady_state_allocations", worst.allocations, "count", "==", 0},
                          {"engine.other_host_waits", worst.other_waits, "count", "==", 0}});
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
  for (std::uint32_t index = 0; index < 20; ++index)
    for (float& value : m.acquire(weights.slice(index), cm::access::write).span()) value = 1;
  for (int step = 0; step < 5; ++step) {
    auto scope = m.iteration();
    for (std::uint32_t index = 0; index < 20; ++index)
      m.acquire(weights.slice(index), cm::access::read_write).span()[0] += 1;
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
  for (std::uint32_t index = 0; index < 3; ++index) {
    const auto pin = m.acquire(weights.slice(index), cm::access::write);
  }
  std::uint64_t before = 0;
  for (int step = 0; step < 4; ++step) {
    if (step == 1) before = m.report().write_backs;
    auto scope = m.iteration();
    for (std::uint32_t index = 0; index < 3; ++index) {
      auto weight = m.acquire(weights.slice(index), cm::access::read);
      auto pin = m.acquire(scratch, cm::access::write);
      pin.span()[0] = 1;
      pin.release();
      m.drop(scratch);
    }
  }
  CHECK(m.report().write_backs == before);
}

namespace {

/// A manager of two gathered chunks, the first halves of which are this rank's shares.
struct deriving : cm::manager<arena, support::told_gatherer> {
  using base = cm::manager<arena, support::told_gatherer>;
  static constexpr std::uint64_t frame = 512;

  deriving(arena& memory, support::told_of_ranks& told)
      : base{memory, {.chunk_bytes = cm::bytes{frame}}, support::told_gatherer{{}, &told, memory.adopt(), true}}
  {
    for (int index = 0; index < 2; ++index) {
      whole[index] = add<std::uint8_t>({frame}, cm::role::gathered);
      gathered().tensors().add(whole[index].id, static_cast<std::uint32_t>(20 + index), false);
    }
    for (int index = 0; index < 2; ++index) {
      share[index] = add<std::uint8_t>({frame / 2}, cm::role::frozen);  // both in one chunk
      gathered().tensors().derive(whole[index].id, share[index].id, 0);
    }
  }
  void write(int which, std::uint8_t value, cm::memory_location place = cm::memory_location::host)
  {
    const auto change = acquire(whole[which], cm::access::write, cm::memory_location::host);
    for (std::uint8_t& it : acquire(share[which], cm::access::write, place).span()) it = value;
  }
  /// The first and the last byte.
  std::pair<int, int> ends(int which)
  {
    const auto pin = acquire(whole[which], cm::access::read);
    return {pin.span()[0], pin.span()[frame - 1]};
  }

  cm::tensor<std::uint8_t> whole[2];
  cm::tensor<std::uint8_t> share[2];
};

struct deriving_set_up {
  explicit deriving_set_up(cm::bytes device = 4_KiB)
      : memory{{.device_capacity = device, .host_capacity = 8_KiB}}, m{memory, told}
  {
  }

  arena memory;
  support::told_of_ranks told;
  deriving m;
};

}  // namespace

TEST_CASE("a write on the host spoils a gathered chunk, and nothing else does", "[manager]")
{
  deriving_set_up it;
  it.m.write(0, 7);
  it.m.write(1, 9);
  CHECK(it.told.gathers.empty());
  CHECK(it.m.ends(1) == std::pair{9, 1});
  CHECK(it.m.ends(0) == std::pair{7, 2});
  for (int again = 0; again < 3; ++again) CHECK(it.m.ends(1) == std::pair{9, 1});
  CHECK(it.told.gathered() == std::vector<std::uint32_t>{21, 20});
  it.m.write(0, 8, cm::memory_location::device);
  CHECK(it.m.ends(1) == std::pair{9, 1});  // though its share lies beside
  CHECK(it.m.ends(0) == std::pair{8, 3});
  {
    const auto change = it.m.acquire(it.m.whole[1], cm::access::read_write, cm::memory_location::host);
  }
  CHECK(it.m.ends(1) == std::pair{9, 4});
  CHECK(it.told.gathered() == std::vector<std::uint32_t>{21, 20, 20, 21});
}

TEST_CASE("a gathered chunk is not read while it is written on the host, nor written there while it is read",
          "[manager]")
{
  deriving_set_up it;
  CHECK_THROWS_AS(it.m.ends(0), cm::usage_error);  // never filled
  it.m.write(0, 7);
  {
    const auto change = it.m.acquire(it.m.whole[0], cm::access::write, cm::memory_location::host);
    CHECK_THROWS_AS(it.m.ends(0), cm::usage_error);
    const auto second =
        it.m.acquire(it.m.whole[0], cm::access::write, cm::memory_location::host);  // two shares change at a time
  }
  CHECK(it.told.gathers.empty());
  const auto pin = it.m.acquire(it.m.whole[0], cm::access::read);
  CHECK_THROWS_AS(it.m.acquire(it.m.whole[0], cm::access::write, cm::memory_location::host), cm::usage_error);
  CHECK(pin.span()[0] == 7);
  CHECK(it.told.gathers.size() == 1);
}

TEST_CASE("what a pin of a gathered chunk on the host points to is its manager's own", "[manager]")
{
  deriving_set_up left, right;
  const auto one = left.m.acquire(left.m.whole[0], cm::access::write, cm::memory_location::host);
  const auto other = right.m.acquire(right.m.whole[0], cm::access::write, cm::memory_location::host);
  CHECK((one.data() != nullptr && other.data() != nullptr && one.data() != other.data()));
  CHECK(left.m.report().in_use[cm::tier::host] == 0_B);
}

TEST_CASE("derived chunks of iterations are gathered as often as they are spoiled or gone, and never written back",
          "[manager]")
{
  for (const bool tight : {false, true}) {
    deriving_set_up it{cm::bytes{tight ? 512U : 2048U}};
    deriving& m = it.m;
    for (int step = 0; step < 6; ++step) {
      for (int index = 0; index < 2; ++index) m.write(index, static_cast<std::uint8_t>(10 * step + index));
      const auto scope = m.iteration();
      for (int use = 0; use < 3; ++use) CHECK(m.ends(use % 2).first == 10 * step + use % 2);
    }
    CHECK(it.told.gathers.size() == (tight ? 18 : 12));
    CHECK(m.report().write_backs == 0);
    CHECK(m.report().divergences == 0);
    CHECK(m.report().in_use[cm::tier::host] == 512_B);  // of the shares
  }
}

TEST_CASE("a failed call changes neither states nor the record", "[manager]")
{
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 1_MiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  const auto weights = m.add_stacked<float>(4, {1024}, cm::role::parameter);
  const auto fresh = m.add<float>({1024}, cm::role::activation);
  for (std::uint32_t index = 0; index < 4; ++index) {
    const auto pin = m.acquire(weights.slice(index), cm::access::write);
  }
  for (int step = 0; step < 5; ++step) {
    auto scope = m.iteration();
    for (std::uint32_t index = 0; index + 1 < 4; ++index) {
      const auto one = m.acquire(weights.slice(index), cm::access::read);
      const auto two = m.acquire(weights.slice(index + 1), cm::access::read);
      if (step < 3) continue;  // from here on with mistakes in between: all refused, none counted
      CHECK_THROWS_AS(m.acquire(fresh, cm::access::read), cm::usage_error);
      CHECK_THROWS_AS(m.drop(weights.slice(index)), cm::usage_error);
      CHECK_THROWS_AS(m.acquire(weights.slice(index), cm::access::write, cm::memory_location::host), cm::usage_error);
      CHECK_THROWS_AS(m.iteration(), cm::usage_error);
    }
  }
  CHECK(m.report().divergences == 0);
  CHECK(!m.drifted());
}

}  // namespace engine_test
