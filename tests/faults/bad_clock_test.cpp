// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/trace/sinks.hpp>
#include <support/catch.hpp>
#include <support/decisions_in.hpp>
#include <support/faulty.hpp>
#include <support/mixed_reference.hpp>
#include <support/mixed_trainer.hpp>

#include <cstdint>
#include <string>

namespace bad_clock_test {

/// A clock that stands still, jumps or runs backwards changes no bit, no decision and no count: time is for traces
/// alone.

namespace cm = chunkmem;
namespace mixed = support::mixed;
using namespace cm::literals;
using backend = support::faulty<cm::backend::host_arena>;
using manager = cm::manager<backend, cm::trace::ring_sink>;
using support::clock_kind;

namespace {

constexpr mixed::recipe usual = mixed::usual_recipe(4);

struct result {
  mixed::outcome left;
  std::string report;
  std::string events;  ///< what happened to which chunk, in order, without times
  std::uint64_t looks = 0;
  bool is_steady = true;  ///< times never go back
};

result train(clock_kind clock)
{
  cm::trace::event_ring ring{20'000};
  backend memory{cm::backend::host_arena_options{96_KiB, 1_MiB}};
  memory.set_clock(clock);
  manager m{memory, {.chunk_bytes = 4_KiB}, cm::trace::ring_sink{ring}};
  result it;
  it.left = mixed::trainer<manager, backend, float>{m, memory, usual}.train();
  it.report = support::decisions_in(m.report());
  it.events = to_string(ring);
  it.looks = memory.looks_at_the_clock();
  std::uint64_t before = 0;
  for (std::size_t age = ring.size(); age-- > 0;) {
    it.is_steady = it.is_steady && ring.last(age).begin >= before && ring.last(age).end >= ring.last(age).begin;
    before = ring.last(age).begin;
  }
  REQUIRE(ring.seen() == ring.size());
  return it;
}

}  // namespace

TEST_CASE("a clock that stands still, jumps or runs backwards changes neither bits nor decisions", "[faults]")
{
  const mixed::outcome expected = mixed::reference{usual}.train();
  const result real = train(clock_kind::real);
  CHECK(expected.difference(real.left) == "");
  CHECK(real.looks > 500);
  CHECK(real.is_steady);
  for (const clock_kind clock : {clock_kind::stands, clock_kind::jumps, clock_kind::runs_backwards}) {
    INFO("clock " << static_cast<int>(clock));
    const result bad = train(clock);
    CHECK(expected.difference(bad.left) == "");
    CHECK(bad.report == real.report);
    CHECK(bad.events == real.events);
    CHECK(bad.looks == real.looks);
    CHECK(bad.is_steady == (clock == clock_kind::stands));
  }
}

}  // namespace bad_clock_test
