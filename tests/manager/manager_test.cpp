// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/manager.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/eviction/evictions.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>
#include <chunkmem/trace/chrome_sink.hpp>
#include <chunkmem/trace/sinks.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace manager_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;

// The order of policies never makes a new type, and a default that is named is the default.
static_assert(std::same_as<cm::manager<arena, cm::eviction::lru, cm::transfer::no_prefetch>,
                           cm::manager<arena, cm::transfer::no_prefetch, cm::eviction::lru>>);
static_assert(std::same_as<cm::manager<arena>, cm::manager<arena, cm::eviction::belady>>);
static_assert(std::same_as<cm::manager<arena>,
                           cm::manager<arena, cm::transfer::lookahead, cm::size_class_layout, cm::training_rules,
                                       cm::placement::optimizer_on_host, cm::trace::null_sink, cm::copy_mover>>);
static_assert(!std::same_as<cm::manager<arena>, cm::manager<arena, cm::eviction::lru>>);
static_assert(std::same_as<cm::manager<arena, cm::inference_rules, cm::eviction::lru, cm::trace::counter_sink>,
                           cm::manager<arena, cm::trace::counter_sink, cm::inference_rules, cm::eviction::lru>>);

TEST_CASE("a manager is given settings of its policies as values, in any order", "[manager]")
{
  arena memory{{.device_capacity = 12_KiB, .host_capacity = 64_KiB}};
  cm::trace::counter_totals totals;
  cm::transfer::lookahead ahead;
  ahead.window = 3;
  cm::manager<arena, cm::transfer::lookahead, cm::trace::counter_sink> m{
      memory, {.chunk_bytes = 4_KiB}, cm::trace::counter_sink{totals}, ahead};
  const auto weights = m.add_stacked<float>(6, {1024}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 6; ++index)
    for (float& value : m.acquire(weights.slice(index), cm::access::write).span()) value = 1;
  for (int step = 0; step < 3; ++step) {
    auto scope = m.iteration();
    for (std::uint32_t index = 0; index < 6; ++index) {
      const auto pin = m.acquire(weights.slice(index), cm::access::read);
      const auto lease = m.lease(cm::tier::device, 256_B);
    }
  }
  using cm::trace_event_kind;
  const cm::report seen = m.report();
  CHECK(totals[trace_event_kind::load].count == seen.loads);
  CHECK(totals[trace_event_kind::load].bytes == seen.loaded.count());
  CHECK(totals[trace_event_kind::write_back].count == seen.write_backs);
  CHECK(totals[trace_event_kind::write_back].bytes == seen.written_back.count());
  CHECK(totals[trace_event_kind::evict].count == seen.evictions);
  CHECK(totals[trace_event_kind::iteration].count == 3);
  CHECK(totals[trace_event_kind::lease].count == 18);
  CHECK(totals[trace_event_kind::lease_end].count == 18);
  CHECK(totals[trace_event_kind::lease].bytes == totals[trace_event_kind::lease_end].bytes);
  CHECK(totals[trace_event_kind::divergence].count == seen.divergences);
  CHECK(totals[trace_event_kind::replan].count == seen.replans);
  CHECK(seen.loads > 0);
}

TEST_CASE("from a trace follow the peak of the device, chunks that were never loaded, passes and updates", "[manager]")
{
  arena memory{{.device_capacity = 24_KiB, .host_capacity = 128_KiB}};
  cm::trace::chrome_trace trace;
  cm::manager<arena, cm::trace::chrome_sink> m{memory, {.chunk_bytes = 4_KiB}, cm::trace::chrome_sink{trace}};
  cm::optimizer::sgd kernel;
  m.use(kernel);
  const auto weights = m.add_stacked<float>(8, {1000}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 8; ++index)
    m.acquire(weights.slice(index), cm::access::write).span().back() = 1;
  for (int step = 0; step < 2; ++step) {
    auto scope = m.iteration();
    scope.pass(cm::pass::forward);
    const auto lease = m.lease(cm::tier::device, 2_KiB);
    for (std::uint32_t index = 0; index < 8; ++index) m.acquire(weights.slice(index), cm::access::read).release();
    scope.pass(cm::pass::backward);
    for (std::uint32_t index = 8; index-- > 0;) {
      auto gradient = m.gradient(m.acquire(weights.slice(index), cm::access::read));
      for (float& each : gradient.span()) each = 0;
      m.gradient_done(std::move(gradient));
    }
    cm::optimizer::step(m, kernel);
  }
  std::map<cm::chunk_id, std::uint64_t> there;
  std::uint64_t held = 0;
  std::uint64_t peak = 0;
  std::string marks;
  for (const cm::trace_event& event : trace.events()) {
    switch (event.what) {
      case cm::trace_event_kind::load:
      case cm::trace_event_kind::claim:
        held += there[event.chunk] = cm::align_up(cm::bytes{event.bytes}, 4_KiB).count();
        break;
      case cm::trace_event_kind::evict:
      case cm::trace_event_kind::discard: held -= std::exchange(there[event.chunk], 0); break;
      case cm::trace_event_kind::lease: held += event.bytes; break;
      case cm::trace_event_kind::lease_end: held -= event.bytes; break;
      case cm::trace_event_kind::forward: marks += 'f'; break;
      case cm::trace_event_kind::backward: marks += 'b'; break;
      case cm::trace_event_kind::update: marks += 'u'; break;
      case cm::trace_event_kind::iteration: marks += ' '; break;
      default: break;
    }
    peak = std::max(peak, held);
  }
  CHECK(peak == m.report().peak[cm::tier::device].count());
  CHECK(held == m.report().in_use[cm::tier::device].count());
  CHECK(marks == "fbu fbu ");
}

TEST_CASE("the umbrella header is enough for a quick start", "[manager]")
{
  arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 64_KiB}};
  const auto weight = m.add<float>({100, 100}, cm::role::parameter);
  for (float& value : m.acquire(weight, cm::access::write).span()) value = 2;
  CHECK(m.acquire(weight, cm::access::read).span()[9'999] == 2.0F);
}

}  // namespace manager_test
