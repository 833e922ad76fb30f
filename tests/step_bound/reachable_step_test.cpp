// SPDX-License-Identifier: Apache-2.0
#include <step_bound/reachable_step.hpp>

#include "fastest_step.hpp"

#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace reachable_step_test {

using namespace chunkmem;
using step_bound::chain_kind;
using step_bound::find_reachable_step;
using step_bound::host_task;
using step_bound::reachable_step;
using step_bound::step_input;
using support::dice;
using transfer::retention_use;
using transfer::use_kind;

namespace {

/// An iteration with its own numbers; links move one byte in each nanosecond unless said otherwise.
struct step_trace {
  std::vector<std::uint64_t> access_nanoseconds;
  std::vector<std::uint64_t> chunk_bytes;
  std::vector<retention_use> uses;
  std::vector<std::uint8_t> retained;
  std::vector<std::uint64_t> device_bytes;
  std::vector<host_task> host_tasks;
  backend::link_cost to_device{0, 1e9};
  backend::link_cost to_host{0, 1e9};

  [[nodiscard]] step_input input() const
  {
    return {access_nanoseconds, chunk_bytes, uses, retained, device_bytes, host_tasks, to_device, to_host, 0};
  }
  void use(std::uint32_t chunk, std::uint32_t begin, use_kind kind, bool keeps = false, std::uint32_t length = 1)
  {
    uses.push_back({chunk, begin, begin + length, kind});
    retained.push_back(keeps ? 1 : 0);
  }
};

/// 2 or 3 chunks at 3 to 5 accesses, on a device with room for hardly more than is used.
step_trace roll(dice& random)
{
  step_trace made;
  const std::uint32_t access_count = random.between(3, 5);
  const std::uint32_t chunks = random.between(2, 3);
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) made.chunk_bytes.push_back(random.between(1, 2));
  made.to_device = {random.below(2), random.one_in(3) ? 0.5e9 : 1e9};
  made.to_host = {random.below(2), random.one_in(3) ? 0.5e9 : 1e9};
  std::vector<std::uint64_t> used(access_count, 0);
  std::vector<std::uint32_t> taken(chunks, 0);  // accesses before this one have a use of the chunk
  for (std::uint32_t now = 0; now < access_count; ++now) {
    made.access_nanoseconds.push_back(random.below(4));
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
      if (taken[chunk] > now || !random.one_in(2)) continue;
      const auto kind = static_cast<use_kind>(random.below(random.one_in(2) ? 2 : 6));
      const std::uint32_t length = is_on_device(kind) && now + 2 <= access_count && random.one_in(4) ? 2 : 1;
      made.use(chunk, now, kind, random.one_in(2), length);
      taken[chunk] = now + length;
      if (is_on_device(kind))
        for (std::uint32_t index = now; index < now + length; ++index) used[index] += made.chunk_bytes[chunk];
    }
  }
  for (std::uint32_t now = 0; now < access_count; ++now) {
    const bool has_host_use = std::ranges::any_of(
        made.uses, [&](const retention_use& it) { return it.begin == now && !is_on_device(it.kind); });
    if (!has_host_use) continue;
    made.host_tasks.push_back(
        {now, now + 1, random.below(4), random.one_in(2) ? random.below(access_count) : host_task::none});
    if (made.host_tasks.back().after == now) made.host_tasks.back().after = host_task::none;
  }
  for (std::uint32_t now = 0; now < access_count; ++now) made.device_bytes.push_back(used[now] + random.below(4));
  return made;
}

/// What stays fits: else it leaves.
bool fits(const step_trace& trace)
{
  try {
    (void)find_reachable_step(trace.input());
  } catch (const usage_error&) {
    return false;
  }
  return true;
}

}  // namespace

TEST_CASE("no order of copies and updates makes a step shorter than the bound", "[step_bound]")
{
  std::uint32_t compared = 0;
  std::uint32_t equal = 0;
  double ratios = 0;
  constexpr std::uint32_t wanted = 1'000;
  for (std::uint64_t seed = 1; compared < wanted; ++seed) {
    dice random{seed};
    const step_trace trace = roll(random);
    if (!fits(trace)) continue;
    const reachable_step bound = find_reachable_step(trace.input());
    const double fastest = step_bound_test::fastest_step{trace.input()}(6, 20'000);
    if (fastest == 0) continue;  // never the same twice, or too many states
    INFO("seed " << seed);
    REQUIRE(bound.nanoseconds <= fastest * (1 + 1e-6));
    ++compared;
    equal += bound.nanoseconds >= fastest * (1 - 1e-6) ? 1 : 0;
    ratios += bound.nanoseconds / fastest;
  }
  CHECK(equal >= wanted / 2);
  CHECK(ratios / compared >= 0.9);
}

TEST_CASE("a step that copies little takes as long as its compute", "[step_bound]")
{
  step_trace trace;
  trace.access_nanoseconds = {100, 100, 100, 100};
  trace.chunk_bytes = {10, 10};
  trace.use(0, 0, use_kind::read);
  trace.use(1, 2, use_kind::read);
  trace.device_bytes = {20, 20, 20, 20};
  const reachable_step found = find_reachable_step(trace.input());
  CHECK(found.nanoseconds == 400);
  CHECK(found.compute == 400);
  CHECK(found.to_device == 20);
  CHECK(found.to_host == 0);
  CHECK(found.chain.empty());
}

TEST_CASE("a step that copies much takes as long as the busier link", "[step_bound]")
{
  step_trace trace;
  trace.access_nanoseconds = {10, 10, 10, 10};
  trace.chunk_bytes = {100, 100};
  trace.use(0, 0, use_kind::update);
  trace.use(1, 2, use_kind::update);
  trace.device_bytes.assign(4, 400);
  trace.to_host = {25, 1e9};
  const reachable_step found = find_reachable_step(trace.input());
  CHECK(found.to_device == 200);
  CHECK(found.to_host == 250);
  CHECK(found.nanoseconds == 250);  // a chunk alone is used, written back and loaded again in 10 + 125 + 100
}

TEST_CASE("without room for the next chunk its load waits for the one before", "[step_bound]")
{
  step_trace trace;
  trace.access_nanoseconds = {10, 10};
  trace.chunk_bytes = {100, 100};
  trace.use(0, 0, use_kind::read);
  trace.use(1, 1, use_kind::read);
  trace.device_bytes = {100, 100};
  const reachable_step found = find_reachable_step(trace.input());
  CHECK(found.nanoseconds == 220);  // load, use, load, use
  REQUIRE(found.chain.size() >= 2);
  CHECK(std::ranges::any_of(found.chain, [](const step_bound::chain_link& it) {
    return it.kind == chain_kind::room_for_loads || it.kind == chain_kind::loads;
  }));
  trace.device_bytes = {200, 200};
  CHECK(find_reachable_step(trace.input()).nanoseconds == 200);
}

TEST_CASE("at the turn from forward to backward what has just left comes back", "[step_bound]")
{
  // Used 0 1 2 3 3 2 1 0, room for one: 3 stays at the turn, 0 at the end.
  step_trace trace;
  trace.access_nanoseconds.assign(8, 10);
  trace.chunk_bytes.assign(4, 100);
  trace.device_bytes.assign(8, 100);
  for (std::uint32_t index = 0; index < 8; ++index)
    trace.use(index < 4 ? index : 7 - index, index, use_kind::read, index == 7);
  trace.retained[3] = 1;
  const reachable_step found = find_reachable_step(trace.input());
  CHECK(found.to_device == 600);
  CHECK(found.nanoseconds == 680);  // nothing overlaps
}

TEST_CASE("a global norm holds up all updates, and the last gradient passes down, is updated and comes back",
          "[step_bound]")
{
  // Forward reads 0 1 2 3, backward writes their gradients in place 3 2 1 0, then the host updates each.
  step_trace trace;
  trace.access_nanoseconds = {10, 10, 10, 10, 10, 10, 10, 10, 0, 0, 0, 0};
  trace.chunk_bytes.assign(4, 100);
  trace.device_bytes.assign(12, 400);
  for (std::uint32_t index = 0; index < 4; ++index) trace.use(index, index, use_kind::read, true);
  for (std::uint32_t index = 4; index < 8; ++index) trace.use(7 - index, index, use_kind::update);
  for (std::uint32_t index = 8; index < 12; ++index) trace.use(index - 8, index, use_kind::host_update);
  for (std::uint32_t index = 8; index < 12; ++index)
    trace.host_tasks.push_back({index, index + 1, 1'000, host_task::none});
  const reachable_step free = find_reachable_step(trace.input());
  CHECK(free.host == 4'000);
  CHECK(free.nanoseconds >= 4'000);
  for (host_task& it : trace.host_tasks) it.after = 7;
  const reachable_step held = find_reachable_step(trace.input());
  // Behind the norm: four updates, the load of the last; chunk 3 is used last, five accesses before the next norm.
  CHECK(held.nanoseconds == 4'000 + 100 + 50);
  REQUIRE(!held.chain.empty());
  CHECK(
      std::ranges::any_of(held.chain, [](const step_bound::chain_link& it) { return it.kind == chain_kind::updates; }));
}

TEST_CASE("merged moments give a bound that is not above the exact one", "[step_bound]")
{
  // 2,000 chunks are read one after the other and back; every other one stays at the turn.
  step_trace trace;
  const std::uint32_t chunks = 2'000;
  trace.chunk_bytes.assign(chunks, 100);
  trace.access_nanoseconds.assign(2 * chunks, 60);
  trace.device_bytes.assign(2 * chunks, 100 * (chunks / 2 + 8));
  for (std::uint32_t index = 0; index < 2 * chunks; ++index) {
    const std::uint32_t chunk = index < chunks ? index : 2 * chunks - 1 - index;
    trace.use(chunk, index, use_kind::read, index < chunks ? chunk % 2 == 0 : chunk % 2 == 1);
  }
  const reachable_step found = find_reachable_step(trace.input());
  CHECK(found.compute == 240'000);
  CHECK(found.to_device == 199'800);
  CHECK(found.nanoseconds >= 240'000);
  CHECK(found.nanoseconds <= 241'000);
}

}  // namespace reachable_step_test
