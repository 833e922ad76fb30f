// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/trace/sinks.hpp>

#include <support/catch.hpp>
#include <support/failing.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace iteration_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;
using arena_manager = cm::manager<arena>;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Eight weights of a chunk each, on a device of three.
struct fixture {
  fixture()
  {
    for (std::uint32_t index = 0; index < 8; ++index)
      for (float& value : m->acquire(weights.slice(index), cm::access::write).span()) value = static_cast<float>(index);
  }
  void walk(std::uint32_t count = 8)
  {
    for (std::uint32_t index = 0; index < count; ++index)
      CHECK(m->acquire(weights.slice(index), cm::access::read).span()[0] == static_cast<float>(index));
  }
  void run(std::string_view name, std::uint32_t count = 8)
  {
    auto scope = m->iteration(name);
    walk(count);
  }

  arena memory{{.device_capacity = 12_KiB, .host_capacity = 64_KiB}};
  std::unique_ptr<arena_manager> m = std::make_unique<arena_manager>(memory, cm::manager_options{.chunk_bytes = 4_KiB});
  cm::stacked<float> weights = m->add_stacked<float>(8, {1024}, cm::role::parameter);
};

}  // namespace

TEST_CASE("a list that begins at zero is read by the same calls in the first iteration and later", "[manager]")
{
  constexpr cm::list_spec lists[] = {{"average"}};
  for (const auto where : {cm::memory_location::device, cm::memory_location::host})
    for (const bool as_bytes : {false, true})
      for (const bool with_stream : {false, true}) {
        arena memory{{.device_capacity = 12_KiB, .host_capacity = 128_KiB}};
        arena_manager m{memory, {.chunk_bytes = 4_KiB}};
        const auto weights = m.add_stacked<float>(8, {1024}, cm::role::parameter);
        m.use(lists);
        const cm::list_id average = m.list("average");
        const auto read = [&](std::uint32_t layer) {
          const auto weight = weights.slice(layer);
          float sum = 0;
          if (as_bytes) {
            const auto pin = m.acquire_bytes(weight, average, cm::access::read, where);
            for (const std::uint8_t byte : pin.span()) sum += byte;
          } else if (with_stream) {
            const auto pin = m.acquire<float>(weight, average, cm::access::read, cm::agent::compute);
          } else {
            const auto pin = m.acquire<float>(weight, average, cm::access::read, where);
            for (const float x : pin.span()) sum += x;
          }
          CHECK(sum == 0.0F);
        };
        for (int step = 0; step < 4; ++step) {
          const auto scope = m.iteration();
          for (std::uint32_t layer = 0; layer < 8; ++layer) {
            m.acquire(weights.slice(layer), cm::access::write).release();
            read(layer);
          }
        }
        CHECK(m.report().divergences == 0);
        CHECK_FALSE(m.drifted());
      }
}

TEST_CASE("accesses between iterations belong to none", "[manager]")
{
  fixture it;
  for (int step = 0; step < 5; ++step) {
    it.run("train");
    it.walk(static_cast<std::uint32_t>(step) % 3 + 1);
  }
  CHECK(it.m->report().divergences == 0);
}

TEST_CASE("an iteration that ends while another exception is handled is complete", "[manager]")
{
  fixture it;
  for (int step = 0; step < 3; ++step) {
    try {
      throw std::runtime_error{"elsewhere"};
    } catch (const std::runtime_error&) {
      it.run("train");
    }
  }
  CHECK(!it.m->drifted());
}

TEST_CASE("an iteration inside an iteration is refused and harms nothing", "[manager]")
{
  fixture it;
  auto scope = it.m->iteration();
  CHECK_THROWS_AS(it.m->iteration(), cm::usage_error);
  CHECK_THROWS_AS(it.m->iteration("eval"), cm::usage_error);
  it.walk();
  scope.end();
  scope.end();  // the second time does nothing
  it.run("train");
  CHECK(!it.m->drifted());
}

TEST_CASE("passes name a micro-batch that the iteration has", "[manager]")
{
  fixture it;
  CHECK_THROWS_AS(it.m->iteration("train", 0), cm::usage_error);
  CHECK_THROWS_AS(it.m->iteration("train", 70'000), cm::usage_error);
  auto scope = it.m->iteration("train", 2);
  scope.pass(cm::pass::forward, 1);
  CHECK_THROWS_AS(scope.pass(cm::pass::forward, 2), cm::usage_error);
  it.walk(1);
  scope.pass(cm::pass::backward, 0);
  it.walk(1);
  scope.end();
  CHECK_THROWS_AS(scope.pass(cm::pass::forward), cm::usage_error);
}

TEST_CASE("the record and the trace say in which pass of which micro-batch a weight was used, and its state does not",
          "[manager]")
{
  using backend = support::failing<arena>;  // nothing fails
  backend memory{{}, cm::backend::host_arena_options{.device_capacity = 12_KiB, .host_capacity = 64_KiB}};
  cm::trace::event_ring ring{64};
  cm::manager<backend, cm::trace::ring_sink> m{memory, {.chunk_bytes = 4_KiB}, cm::trace::ring_sink{ring}};
  const auto weight = m.add<float>({1024}, cm::role::parameter);
  m.acquire(weight, cm::access::write).span()[0] = 1;
  constexpr std::pair<cm::pass, std::uint16_t> passes[] = {
      {cm::pass::none, 0},    {cm::pass::forward, 0},  {cm::pass::backward, 0},
      {cm::pass::forward, 1}, {cm::pass::backward, 1}, {cm::pass::forward, 0},  // back to one that was named before
  };
  {
    auto scope = m.iteration("train", 2);
    for (const auto& [during, micro_batch] : passes) {
      scope.pass(during, micro_batch);
      CHECK(m.acquire(weight, cm::access::read).span()[0] == 1);
      CHECK(m.state_of(weight) == cm::tensor_state::hold);
    }
  }
  CHECK(m.acquire(weight, cm::access::read).span()[0] == 1);  // of no iteration, so not in its record

  REQUIRE(m.profile() != nullptr);
  const cm::access_record& record = *m.profile();
  REQUIRE(record.size() == std::size(passes));
  for (std::uint32_t index = 0; index < record.size(); ++index) {
    CAPTURE(index);
    CHECK(record.details()[index].during == passes[index].first);
    CHECK(record.entries()[index].micro_batch == passes[index].second);
  }

  std::string named;
  for (std::size_t age = ring.size(); age-- > 0;)
    if (const cm::trace_event& event = ring.last(age); cm::is_numbered(event.what))
      named.append(cm::name_of(event.what)).append(" ").append(std::to_string(event.bytes)).append(", ");
  CHECK(named == "forward 0, backward 0, forward 1, backward 1, forward 0, iteration 1, ");
}

TEST_CASE("an iteration that ends before all of its micro-batches were named says so, and its record stays as it was",
          "[manager]")
{
  fixture it;
  const auto step = [&](std::uint32_t named, auto end) {
    auto scope = it.m->iteration("train", 4);
    for (std::uint32_t index = 0; index < named; ++index) {
      scope.pass(cm::pass::forward, index);
      it.walk();
    }
    end(scope);
  };
  const auto by_call = [](auto& scope) { scope.end(); };
  const auto by_scope = [](auto&) {};
  for (int now = 0; now < 3; ++now) step(4, by_scope);
  CHECK_THROWS_WITH(step(2, by_call), ContainsSubstring("an iteration of 4 micro-batches ended after 2 of them"));
  CHECK_FALSE(it.m->is_iterating());
  step(4, by_call);
  CHECK_FALSE(it.m->drifted());

  step(3, by_scope);  // a destructor cannot throw
  CHECK_FALSE(it.m->is_iterating());
  CHECK_THROWS_WITH(it.m->iteration("eval"), ContainsSubstring("ended after 3 of them"));
  step(4, by_scope);  // it was said
  CHECK_FALSE(it.m->drifted());
  CHECK(it.m->report().divergences == 0);
}

TEST_CASE("an iteration that an exception ends need not have named its micro-batches", "[manager]")
{
  fixture it;
  try {
    auto scope = it.m->iteration("train", 2);
    throw std::runtime_error{"the trainer's own"};
  } catch (const std::runtime_error&) {
  }
  it.run("train");
}

TEST_CASE("a rehearsal that names too few micro-batches is told so before step 1", "[manager]")
{
  fixture it;
  CHECK_THROWS_AS(it.m->rehearse([&] {
    auto scope = it.m->iteration("train", 2);
    scope.pass(cm::pass::forward, 0);
    scope.end();
  }),
                  cm::usage_error);
  it.run("train");
}

TEST_CASE("an iteration that outlives its manager says so", "[manager]")
{
  fixture it;
  auto scope = it.m->iteration();
  it.walk();
  it.m.reset();
  CHECK_THROWS_AS(scope.pass(cm::pass::forward), cm::usage_error);
  scope.end();
}

TEST_CASE("an iteration moves into what a trainer keeps, and is one of several by another name", "[manager]")
{
  fixture it;
  using iteration = decltype(it.m->iteration());
  static_assert(std::is_nothrow_move_constructible_v<iteration> && std::is_nothrow_move_assignable_v<iteration>);
  static_assert(!std::is_copy_constructible_v<iteration>);
  std::optional<iteration> now;
  for (int step = 0; step < 4; ++step) {
    now.emplace(it.m->iteration("train", 2));
    now->pass(cm::pass::forward, 0);
    it.walk(4);
    iteration elsewhere = std::move(*now);
    CHECK_THROWS_AS(now->pass(cm::pass::forward, 1), cm::usage_error);
    CHECK_FALSE(now->is_of(it.weights.slice(0)));
    now->end();  // which was moved from: nothing ends
    CHECK(it.m->is_iterating());
    elsewhere.pass(cm::pass::forward, 1);
    it.walk();
    *now = std::move(elsewhere);
    CHECK(now->is_of(it.weights.slice(0)));
    now.reset();
    CHECK_FALSE(it.m->is_iterating());
  }
  CHECK(it.m->report().divergences == 0);
  now.emplace(it.m->iteration());
  it.m.reset();
  iteration orphan = std::move(*now);
  CHECK_THROWS_AS(orphan.pass(cm::pass::forward), cm::usage_error);
}

TEST_CASE("pins of several element types are kept in one container", "[manager]")
{
  arena memory{{.device_capacity = 12_KiB, .host_capacity = 64_KiB}};
  arena_manager m{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<float>({10}, cm::role::frozen);
  const auto table = m.add<std::int64_t>({3}, cm::role::buffer);
  {
    std::vector<arena_manager::kept_pin> pins;
    pins.emplace_back(m.acquire(weight, cm::access::write));
    pins.emplace_back(m.acquire(table, cm::access::write));
    CHECK((m.state_of(weight) == cm::tensor_state::compute && m.state_of(table) == cm::tensor_state::compute));
    pins.erase(pins.begin());
    CHECK((m.state_of(weight) == cm::tensor_state::hold && m.state_of(table) == cm::tensor_state::compute));
  }
  CHECK(m.state_of(table) == cm::tensor_state::hold);
}

TEST_CASE("a pin that lives across iterations keeps its chunk and their records", "[manager]")
{
  fixture it;
  auto held = it.m->acquire(it.weights.slice(7), cm::access::read);
  for (int step = 0; step < 4; ++step) {
    it.run("train", 7);
    CHECK(held.span()[1023] == 7.0F);
    held = it.m->acquire(it.weights.slice(7), cm::access::read);
  }
  held.release();
  it.run("train", 7);
  CHECK(!it.m->drifted());
  CHECK(it.m->report().divergences == 0);
}

}  // namespace iteration_test
