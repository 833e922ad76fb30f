// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/iteration_planner.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/manager/chunk_cache.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/catch.hpp>
#include <support/fault_control.hpp>
#include <support/oracles/random_iteration.hpp>
#include <support/oracles/record_builder.hpp>
#include <support/own_policies.hpp>

#include <array>
#include <cstdint>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

namespace plan_search_test {

/// A search for a plan that runs out of memory, at each of its allocations, and a search that needs none.

namespace cm = chunkmem;
using namespace cm;
using namespace cm::literals;
using support::fault_source;
using support::faults;

namespace {

/// @return   it threw
template <class Call>
bool fails(std::uint64_t allocation, Call call)
{
  faults.arm({fault_source::heap, allocation});
  bool threw = false;
  try {
    call();
  } catch (const std::bad_alloc&) {
    threw = true;
  }
  faults.disarm();
  return threw;
}

/// Reads of chunks of one frame, whose bytes lie on the host, and what is planned for them.
template <class Eviction>
struct searched {
  searched(const std::vector<std::uint32_t>& reads, std::uint32_t chunks, std::uint32_t frames) : own(chunks)
  {
    std::iota(own.begin(), own.end(), 0U);
    support::record_builder build;
    for (const std::uint32_t chunk : reads) build.brief(chunk);
    record = build.finish(own, chunks);
    const support::random_iteration iteration{std::vector<std::uint32_t>(chunks, 1), own,
                                              std::vector<std::uint8_t>(chunks, 1), record};
    state = support::cache_for<Eviction>(iteration, frames, chunks);
    decision_log log;
    support::fill_on_host(state, log);
    make();
    REQUIRE(planned.current.valid);
  }
  void make() { planner.make(planned, state, record, own); }
  void reserve_search() { planner.reserve_search(planned, state, record, own); }
  void settle() { planner.settle(planned, state, record, own); }

  std::vector<std::uint32_t> own;
  access_record record;
  chunk_cache<Eviction> state;
  iteration_planner<Eviction, transfer::lookahead> planner{transfer::lookahead{}};
  planned_iteration planned;
};

/// Empty, or as long as the record and the chunks.
template <class Eviction>
bool is_whole(const searched<Eviction>& it)
{
  const transfer::iteration_plan& plan = it.planned.plan;
  return plan == transfer::iteration_plan{} ||
         (plan.retained_until.size() == it.record.size() && plan.lease_limits.size() == it.record.size() &&
          plan.first_use.size() == it.own.size());
}

const std::vector<std::uint32_t> scan{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5};

}  // namespace

TEST_CASE("memory for a later search that is refused leaves the plan and the policy's setting", "[faults]")
{
  std::uint64_t allocation = 0;
  for (bool threw = true; threw; ++allocation) {
    searched<support::lowest_or_belady> it{{0, 1, 2, 0, 3, 0, 1, 0}, 5, 2};
    REQUIRE(it.planned.variant == 1);
    threw = fails(allocation, [&] { it.reserve_search(); });
    CHECK(it.planned.variant == 1);
    CHECK(it.planned.plan == transfer::iteration_plan{});
  }
  CHECK(allocation > 20);
}

TEST_CASE("a search that runs out of memory leaves a whole plan or none, and later ones are made", "[faults]")
{
  std::uint64_t allocation = 0;
  for (bool threw = true; threw; ++allocation) {
    searched<eviction::belady> it{scan, 6, 3};
    for (int unlike = 0; unlike < 3; ++unlike) it.settle();
    threw = fails(allocation, [&] { it.settle(); });
    CHECK(is_whole(it));
    CHECK(it.planned.closes != threw);
    CHECK(it.planned.plan.retained_until.empty() == threw);  // nothing is followed that was not compared
    it.make();
    CHECK(it.planned.current.valid);
    CHECK(it.planned.current.retains != threw);
  }
  CHECK(allocation > 20);
}

TEST_CASE("a plan that is kept as a copy is there as a whole or not at all", "[faults]")
{
  searched<eviction::belady> it{scan, 6, 3};
  for (int unlike = 0; unlike < 4; ++unlike) it.settle();
  const transfer::iteration_plan wanted = it.planned.plan;
  REQUIRE_FALSE(wanted.retained_until.empty());
  for (std::uint64_t allocation = 0; allocation < 4; ++allocation) {
    planned_iteration fresh;
    const bool threw = fails(allocation, [&] { fresh.keep(wanted); });
    CHECK(threw == (allocation < 3));
    CHECK(fresh.plan == (threw ? transfer::iteration_plan{} : wanted));
  }
}

TEST_CASE("an order of lists that found no memory is prepared again, and plans come back to the first order",
          "[faults]")
{
  std::array<list_id, 9> declared{};
  for (std::uint32_t list = 0; list < declared.size(); ++list) declared[list] = list_id{list};
  std::array<list_id, 9> other = declared;
  std::swap(other[0], other[8]);
  std::uint64_t allocation = 0;
  for (bool threw = true; threw; ++allocation) {
    plans_by_order plans;
    plans.grow(1);
    plans[0].made = 7;
    threw = fails(allocation, [&] { plans.prepare(other); });
    plans.prepare(other);
    plans.change(other);
    CHECK(plans.size() == 0);
    plans.prepare(declared);
    plans.change(declared);
    REQUIRE(plans.size() == 1);
    CHECK(plans[0].made == 7);
  }
  CHECK(allocation > 1);
}

TEST_CASE("a search after the record became shorter allocates nothing where the policy retains nothing", "[faults]")
{
  using chosen = transfer::any_transfer<transfer::lookahead, transfer::planned>;
  cm::backend::host_arena memory{{.device_capacity = 5 * 512_B, .host_capacity = 12 * 512_B}};
  cm::manager<cm::backend::host_arena, chosen, eviction::belady> m{memory, {.chunk_bytes = 512_B}, chosen{"lookahead"}};
  std::vector<tensor<float>> all;
  for (int index = 0; index < 9; ++index) all.push_back(m.add<float>({128}, role::buffer));
  for (const tensor<float> each : all) (void)m.acquire(each, access::write);
  const auto iterate = [&](std::uint32_t accesses) {
    auto scope = m.iteration();
    for (std::uint32_t now = 0; now < accesses; ++now) (void)m.acquire(all[now % all.size()], access::read);
    scope.end();
  };
  for (int step = 0; step < 12; ++step) iterate(28);
  iterate(27);  // recorded anew
  faults.arm({});
  std::uint64_t replans = m.report().replans;
  for (int step = 0; step < 8; ++step) iterate(27);
  faults.disarm();
  CHECK(m.report().replans - replans > 4);  // then a plan that repeats is sought
  CHECK(faults.calls(fault_source::heap) == 0);
}

}  // namespace plan_search_test
