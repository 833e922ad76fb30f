// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/residency_snapshot.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/trace/sinks.hpp>
#include <support/adversarial.hpp>
#include <support/catch.hpp>
#include <support/count_allocations.hpp>
#include <support/failing.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace error_details_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using arena = cm::backend::host_arena;

namespace {

constexpr cm::manager_options told{.chunk_bytes = 4_KiB, .error_details = true};

/// What is thrown, kept beyond its handler.
template <class Error, class Call>
std::optional<Error> refused(Call call)
{
  try {
    (void)call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}
template <class Error>
std::string text_of(const std::optional<Error>& error)
{
  return error ? std::string{error->details()} : "nothing was thrown";
}

template <class Manager>
auto filled(Manager& m, std::uint32_t layers)
{
  const auto stack = m.template add_stacked<float>(layers, {1024}, cm::role::parameter);
  for (std::uint32_t layer = 0; layer < layers; ++layer)
    for (float& value : m.acquire(stack.slice(layer), cm::access::write).span()) value = static_cast<float>(layer);
  return stack;
}

/// Recalls only as long as there is memory.
struct forgetful {
  using policy_kind = cm::sink_kind;
  static constexpr std::string_view name = "forgetful";
  void record(const cm::trace_event&) noexcept {}
  [[nodiscard]] std::string recall(std::size_t) const { throw std::bad_alloc{}; }
};

}  // namespace

TEST_CASE("an access that is refused for pins is told who holds them", "[manager]")
{
  std::optional<cm::out_of_memory> error;
  {
    arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
    cm::manager<arena> m{memory, told};
    const auto stack = filled(m, 4);
    m.name(stack.slice(3), "head");
    const auto first = m.acquire(stack.slice(0), cm::access::read);
    const auto second = m.acquire(stack.slice(3), cm::access::read);
    error = refused<cm::out_of_memory>([&] { return m.acquire(stack.slice(2), cm::access::read); });
    CHECK(text_of(error) == to_string(m.residency()));  // the state in which it failed is still there
  }
  REQUIRE(error);  // and the text outlives the manager
  CHECK_THAT(error->what(), ContainsSubstring("out of memory on the device tier"));
  CHECK_THAT(text_of(error), ContainsSubstring("  frames: 0-1 pinned\n"));
  CHECK_THAT(text_of(error), ContainsSubstring("head compute (pins 1)"));
  CHECK_THAT(text_of(error), ContainsSubstring("tensor.0 compute (pins 1)"));
  CHECK_THAT(text_of(error), ContainsSubstring("of them 2 pinned, 2 with a single copy"));
  CHECK_THAT(text_of(error), !ContainsSubstring("last events"));
}

TEST_CASE("a lease that is refused is told which leases and pins are in the way", "[manager]")
{
  support::adversarial memory{{.device_capacity = 16_KiB, .host_capacity = 64_KiB}};
  cm::manager<support::adversarial> m{memory, told};
  const auto stack = filled(m, 4);
  const auto scope = m.iteration();
  const auto pin = m.acquire(stack.slice(2), cm::access::read);
  const auto lease = m.lease(cm::tier::device, 6_KiB);
  const auto error = refused<cm::out_of_memory>([&] { return m.lease(cm::tier::device, 8_KiB); });
  CHECK_THAT(text_of(error), ContainsSubstring("residency at access 2 of an iteration"));
  CHECK_THAT(text_of(error), ContainsSubstring("leased 6144 B (at most 6144)"));
  CHECK_THAT(text_of(error), ContainsSubstring("  leases: 6144 B at 10240\n"));
  CHECK_THAT(text_of(error), ContainsSubstring("tensor.2 compute (pins 1)"));
  CHECK(memory.faults().empty());
}

TEST_CASE("a full host is told, with the windows that cannot be given up", "[manager]")
{
  arena memory{{.device_capacity = 8_KiB, .host_capacity = 8_KiB}};
  cm::manager<arena> m{memory, told};
  const auto stack = m.add_stacked<float>(5, {1024}, cm::role::buffer);
  for (std::uint32_t layer = 0; layer < 4; ++layer) m.acquire(stack.slice(layer), cm::access::write).release();
  const auto error = refused<cm::out_of_memory>([&] { return m.acquire(stack.slice(4), cm::access::write); });
  REQUIRE(error);
  CHECK(error->shortage().where == cm::tier::host);
  CHECK_THAT(text_of(error), ContainsSubstring("host: capacity 8192 B, in use 8192 B"));
  CHECK_THAT(
      text_of(error),
      ContainsSubstring("0 of 2 frames free, longest run free 0, that could be cleared 0\n  frames: 0-1 sole copy\n"));
}

TEST_CASE("a copy that failed is told, with the last events where the sink recalls them", "[manager]")
{
  using backend = support::failing<arena>;
  backend memory{{}, cm::backend::host_arena_options{.device_capacity = 8_KiB, .host_capacity = 96_KiB}};
  cm::trace::event_ring ring{200};
  cm::manager<backend, cm::trace::ring_sink> m{memory, told, cm::trace::ring_sink{ring}};
  const auto stack = filled(m, 20);
  memory.set_plan({.copy = memory.copies(), .persistent = true});
  const auto error = refused<cm::device_error>([&] { return m.acquire(stack.slice(0), cm::access::read); });
  CHECK_THAT(text_of(error), ContainsSubstring("residency outside of iterations"));
  const std::size_t index = text_of(error).find("last events:\n");
  REQUIRE(index != std::string::npos);
  const std::string events = text_of(error).substr(index);
  CHECK(std::count(events.begin(), events.end(), '\n') == 25);
  CHECK_THAT(events, ContainsSubstring("evict of chunk 17, bytes 4096, from device to host\n"));
  CHECK_THAT(events, !ContainsSubstring("chunk 1,"));
  const auto again = refused<cm::device_error>([&] { return m.iteration(); });  // an empty device is wanted first
  CHECK_THAT(text_of(again), ContainsSubstring("last events:\n"));
}

TEST_CASE("a mistake is told too, and arenas that could not be had", "[manager]")
{
  using backend = support::failing<arena>;
  backend memory{{.allocation = 1}, cm::backend::host_arena_options{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  cm::manager<backend> m{memory, told};
  const auto stack = m.add_stacked<float>(3, {1024}, cm::role::parameter);
  const auto none = refused<cm::out_of_memory>([&] { return m.acquire(stack.slice(0), cm::access::write); });
  CHECK_THAT(text_of(none), ContainsSubstring("device: capacity 8192 B, in use 0 B"));
  const auto pin = m.acquire(stack.slice(0), cm::access::write, cm::memory_location::host);
  const auto unwritten = refused<cm::usage_error>([&] { return m.acquire(stack.slice(1), cm::access::read); });
  CHECK_THAT(text_of(unwritten), ContainsSubstring("tensor.1 free"));
  const auto conflict = refused<cm::usage_error>([&] { return m.acquire(stack.slice(0), cm::access::read); });
  CHECK_THAT(text_of(conflict), ContainsSubstring("pins on the host 1 (writing 1)"));
  const auto dropped = refused<cm::usage_error>([&] { return m.drop(stack.slice(0)), 0; });
  CHECK_THAT(text_of(dropped), ContainsSubstring("tensor.0 compute (pins 1)"));
  const auto exchanged = refused<cm::usage_error>([&] { return m.exchange(cm::value_list, cm::gradient_list), 0; });
  CHECK_THAT(text_of(exchanged), ContainsSubstring("pins on the host 1 (writing 1)"));
  const auto scope = m.iteration();
  const auto nested = refused<cm::usage_error>([&] { return m.iteration(); });
  CHECK_THAT(text_of(nested), ContainsSubstring("residency at access 0 of an iteration"));
}

TEST_CASE("what goes wrong while an error is told does not replace it, and by default nothing is told", "[manager]")
{
  arena memory{{.device_capacity = 4_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena, forgetful> m{memory, told};
  const auto stack = filled(m, 3);
  const auto pin = m.acquire(stack.slice(0), cm::access::read);
  const auto error = refused<cm::out_of_memory>([&] { return m.acquire(stack.slice(1), cm::access::read); });
  REQUIRE(error);
  CHECK(error->details().empty());
  CHECK(error->shortage().pinned == 4'096);

  arena other{{.device_capacity = 4_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> quiet{other, {.chunk_bytes = 4_KiB}};
  const auto weights = filled(quiet, 3);
  const auto held = quiet.acquire(weights.slice(0), cm::access::read);
  const auto silent = refused<cm::out_of_memory>([&] { return quiet.acquire(weights.slice(1), cm::access::read); });
  REQUIRE(silent);
  CHECK(silent->details().empty());
}

TEST_CASE("details cost nothing while nothing fails, and without them an error asks for nothing but itself",
          "[manager]")
{
  if (!support::counts_allocations) SKIP("a sanitizer has the allocation functions");
  for (const bool asked : {false, true}) {
    arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
    cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB, .error_details = asked}};
    const auto stack = filled(m, 6);
    const auto step = [&] {
      const auto scope = m.iteration();
      for (std::uint32_t layer = 0; layer < 6; ++layer) m.acquire(stack.slice(layer), cm::access::read_write).release();
      m.lease(cm::tier::device, 4_KiB).release();
    };
    for (int turn = 0; turn < 3; ++turn) step();
    auto before = support::allocations_so_far();
    for (int turn = 0; turn < 5; ++turn) step();
    CHECK((support::allocations_so_far() - before).all() == 0);
    const auto first = m.acquire(stack.slice(0), cm::access::read);
    const auto second = m.acquire(stack.slice(1), cm::access::read);
    before = support::allocations_so_far();
    bool thrown = false;
    try {
      (void)m.acquire(stack.slice(2), cm::access::read);
    } catch (const cm::out_of_memory&) {
      thrown = true;
    }
    CHECK(thrown);
    const auto spent = support::allocations_so_far() - before;
    CHECK((spent.by_new > 0) == asked);  // an exception itself is made with malloc
    if (!asked) CHECK(spent.heap() == 1);
  }
}

}  // namespace error_details_test
