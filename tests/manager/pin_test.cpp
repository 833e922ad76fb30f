// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/pin.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/manager/manager.hpp>

#include <support/catch.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace held_span_test {

namespace cm = chunkmem;
using namespace cm::literals;

TEST_CASE("a held span keeps its holder until it ends", "[manager]")
{
  const auto alive = std::make_shared<int>(1);
  {
    std::vector<float> numbers{1, 2, 3};
    const cm::held_span<float, std::shared_ptr<int>> all{numbers, std::shared_ptr<int>{alive}};
    CHECK(alive.use_count() == 2);
    CHECK(all.size() == 3);
    CHECK(all[2] == 3.0F);
  }
  CHECK(alive.use_count() == 1);
}

TEST_CASE("a loop over the span of a temporary pin holds the pin", "[manager]")
{
  cm::backend::host_arena memory{{.device_capacity = 4_KiB, .host_capacity = 64_KiB}};
  cm::manager<cm::backend::host_arena> m{memory, {.chunk_bytes = 1_KiB}};
  const auto weights = m.add_stacked<float>(8, {256}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 8; ++index)
    for (float& x : m.acquire(weights.slice(index), cm::access::write).span()) {
      CHECK(m.state_of(weights.slice(index)) == cm::tensor_state::compute);
      x = 1;
      break;
    }
  CHECK(m.state_of(weights.slice(0)) == cm::tensor_state::hold);
  for (float& x : m.lease(cm::tier::device, 512_B).span<float>()) {
    CHECK(m.report().in_use[cm::tier::device] > 0_B);
    x = 1;
    break;
  }
}

}  // namespace held_span_test

namespace pin_test {

namespace cm = chunkmem;
using namespace cm::literals;
using Catch::Matchers::ContainsSubstring;
using arena = cm::backend::host_arena;
using arena_manager = cm::manager<arena>;
using pin = arena_manager::pin_type<float>;

static_assert(!std::is_copy_constructible_v<pin> && std::is_nothrow_move_constructible_v<pin> &&
              std::is_nothrow_move_assignable_v<pin>);

namespace {

struct fixture {
  arena memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  std::unique_ptr<arena_manager> m = std::make_unique<arena_manager>(memory, cm::manager_options{.chunk_bytes = 4_KiB});
  cm::tensor<float> weight = m->add<float>({512}, cm::role::parameter);
  cm::tensor<float> other = m->add<float>({512}, cm::role::parameter);
};

}  // namespace

TEST_CASE("a pin gives its elements until it is released, then a typed error", "[manager]")
{
  fixture it;
  auto held = it.m->acquire(it.weight, cm::access::write);
  CHECK(held.size() == 512);
  CHECK(held.span().size() == 512);
  CHECK(held.data() == held.span().data());
  CHECK(held.is_live());
  held.release();
  held.release();  // the second time does nothing
  CHECK(!held.is_live());
  CHECK_THROWS_AS(held.data(), cm::usage_error);
  CHECK_THROWS_AS(held.span(), cm::usage_error);
  CHECK_THROWS_AS(held.size(), cm::usage_error);
  CHECK_THROWS_WITH(held.data(), ContainsSubstring("after it was released"));
  CHECK(it.m->state_of(it.weight) == cm::tensor_state::hold);
}

TEST_CASE("only a pin that was acquired for writing gives writable elements", "[manager]")
{
  fixture it;
  auto& m = *it.m;
  const auto read = cm::access::read;
  const auto both = cm::access::read_write;
  const bool overwrites = m.access_index() == 0;
  static_assert(std::is_same_v<decltype(m.acquire(it.weight, read).span())::element_type, const float>);
  static_assert(std::is_same_v<decltype(m.acquire(it.weight, both).span())::element_type, float>);
  {
    const auto held = m.acquire(it.weight, overwrites ? cm::access::write : cm::access::read_write);
    float* const numbers = held;
    std::fill_n(numbers, held.size(), 3.0F);
  }
  const cm::access modes[] = {cm::access::read, cm::access::read_write, cm::access::write};
  for (const cm::access mode : modes) {
    const auto held = m.acquire(it.weight, mode);
    const float* const numbers = held;
    static_assert(std::is_same_v<decltype(held.span())::element_type, const float>);
    CHECK((numbers == held.data() && held.data_without_const() == held.data()));
    if (mode == cm::access::read) {
      CHECK_THROWS_WITH(held.writable(), ContainsSubstring("access::read cannot be written"));
      CHECK_THROWS_AS(held.writable(), cm::usage_error);
    } else {
      held.writable()[7] = 5.0F;
    }
  }
  CHECK(m.acquire(it.weight, overwrites ? modes[0] : cm::access::write).span()[7] == 5.0F);
  CHECK_THROWS_WITH(cm::access{static_cast<cm::access_mode>(7)},
                    ContainsSubstring("none of read, read_write and write"));
}

TEST_CASE("a pin for reading and a pin for writing both become the gradient's", "[manager]")
{
  fixture it;
  for (float& x : it.m->acquire(it.weight, cm::access::write).span()) x = 1.0F;
  {
    const auto gradient = it.m->gradient(it.m->acquire(it.weight, cm::access::read));
    for (float& x : gradient.span()) x = 2.0F;
  }
  const auto again = it.m->gradient(it.m->acquire(it.weight, cm::access::read_write));
  CHECK(again.beta() == 1.0F);
  float* const numbers = again;
  CHECK(numbers[0] == 2.0F);
}

TEST_CASE("a writable pin becomes one of const elements, and still counts as a write", "[manager]")
{
  fixture it;
  auto writing = it.m->acquire(it.weight, cm::access::write);
  writing.span()[0] = 4.0F;
  const arena_manager::pin_type<const float> reading = std::move(writing);
  CHECK_FALSE(writing.is_live());
  CHECK(reading.span()[0] == 4.0F);
  CHECK(cm::writes(cm::access_of(reading.details().kind)));
}

TEST_CASE("a pin that was moved from is empty, and the other one holds", "[manager]")
{
  fixture it;
  auto first = it.m->acquire(it.weight, cm::access::write);
  auto second = std::move(first);
  CHECK_THROWS_AS(first.span(), cm::usage_error);
  CHECK(second.span().size() == 512);
  CHECK(it.m->state_of(it.weight) == cm::tensor_state::compute);
  second = it.m->acquire(it.other, cm::access::write);  // lets go of the weight
  CHECK(it.m->state_of(it.weight) == cm::tensor_state::hold);
  CHECK(it.m->state_of(it.other) == cm::tensor_state::compute);
  second = pin{};
  CHECK(it.m->state_of(it.other) == cm::tensor_state::hold);
  const pin nothing;
  CHECK_THROWS_AS(nothing.data(), cm::usage_error);
  CHECK_THROWS_AS(nothing.size(), cm::usage_error);
}

TEST_CASE("a tensor is in use until its last pin ends", "[manager]")
{
  fixture it;
  {
    const auto filled = it.m->acquire(it.weight, cm::access::write);
  }
  auto first = it.m->acquire(it.weight, cm::access::read);
  auto second = it.m->acquire(it.weight, cm::access::read);
  first.release();
  CHECK(it.m->state_of(it.weight) == cm::tensor_state::compute);
  CHECK_THROWS_AS(it.m->drop(it.weight), cm::usage_error);
  CHECK(second.span().size() == 512);
  second.release();
  CHECK(it.m->state_of(it.weight) == cm::tensor_state::hold);
  it.m->drop(it.weight);
  CHECK(it.m->state_of(it.weight) == cm::tensor_state::free);
}

TEST_CASE("pins and leases that outlive their manager say so and leak nothing", "[manager]")
{
  fixture it;
  auto held = it.m->acquire(it.weight, cm::access::write);
  auto gradient = it.m->gradient(it.other);
  auto lease = it.m->lease(cm::tier::device, 1_KiB);
  std::optional<pin> kept{std::move(held)};
  it.m.reset();
  CHECK_THROWS_WITH(kept->data(), ContainsSubstring("outlived its manager"));
  CHECK_THROWS_AS(kept->size(), cm::usage_error);
  CHECK_THROWS_AS(gradient.span(), cm::usage_error);
  CHECK_THROWS_AS(lease.data(), cm::usage_error);
  CHECK_THROWS_AS(lease.size(), cm::usage_error);
  CHECK_THROWS_AS(lease.span<float>(), cm::usage_error);
  kept.reset();
  auto moved = std::move(lease);
  CHECK(!moved.is_live());
}

TEST_CASE("a gradient starts at beta 0 and adds from then on", "[manager]")
{
  fixture it;
  {
    const auto filled = it.m->acquire(it.weight, cm::access::write);
  }
  auto held = it.m->acquire(it.weight, cm::access::read);
  CHECK(!it.m->has_gradient(it.weight));
  {
    const auto gradient = it.m->gradient(std::move(held));
    CHECK(gradient.beta() == 0.0F);
    CHECK(gradient.span().size() == 512);
  }
  CHECK_THROWS_AS(held.data(), cm::usage_error);  // consumed
  CHECK(it.m->has_gradient(it.weight));
  CHECK(it.m->gradient(it.weight).beta() == 1.0F);
  it.m->drop_gradient(it.weight);
  CHECK(!it.m->has_gradient(it.weight));
  it.m->drop_gradient(it.weight);  // not there: passed over
  CHECK(it.m->gradient(it.weight).beta() == 0.0F);
  it.m->drop_gradients();
  CHECK(!it.m->has_gradient(it.weight));
}

TEST_CASE("a gradient is asked for with a pin of a parameter only", "[manager]")
{
  fixture it;
  const auto buffer = it.m->add<float>({16}, cm::role::buffer);
  {
    const auto filled = it.m->acquire(buffer, cm::access::write);
  }
  CHECK_THROWS_AS(it.m->gradient(it.m->acquire(buffer, cm::access::read)), cm::usage_error);
  CHECK_THROWS_AS(it.m->gradient(pin{}), cm::usage_error);
  CHECK(it.m->state_of(buffer) == cm::tensor_state::hold);
}

TEST_CASE("the elements of a lease lie in the budget and go with it", "[manager]")
{
  fixture it;
  const auto before = it.m->report().in_use[cm::tier::device];
  {
    const auto lease = it.m->lease(cm::tier::device, 1000_B);
    CHECK(lease.size() == 1024_B);  // whole units of alignment
    CHECK(lease.span<float>().size() == 256);
    CHECK(it.m->report().in_use[cm::tier::device] == before + 1_KiB);
  }
  CHECK(it.m->report().in_use[cm::tier::device] == before);
  CHECK_THROWS_AS(it.m->lease(cm::tier::device, 0_B), cm::usage_error);
  CHECK_THROWS_AS(it.m->lease(cm::no_tier, 1_KiB), cm::usage_error);
  CHECK_THROWS_AS(it.m->lease(cm::tier::device, 65_KiB), cm::out_of_memory);
  CHECK_THROWS_AS(it.m->lease(cm::tier::host, cm::bytes{UINT64_MAX - 300}), cm::out_of_memory);
  CHECK_THROWS_AS(it.m->lease(cm::tier::device, cm::bytes{UINT64_MAX}), cm::size_overflow);
}

TEST_CASE("the calling thread gets no span of memory that it cannot read", "[manager]")
{
  cm::backend::simulated memory{{.device_capacity = 64_KiB, .host_capacity = 64_KiB}};
  cm::manager<cm::backend::simulated> m{memory, {.chunk_bytes = 4_KiB}};
  const auto weight = m.add<float>({512}, cm::role::parameter);
  auto held = m.acquire(weight, cm::access::write, cm::agent::compute);
  CHECK(held.data() != nullptr);
  CHECK_THROWS_WITH(held.span(), ContainsSubstring("device memory"));
  held.release();
  CHECK(m.acquire(weight, cm::access::read, cm::memory_location::host).size() == 512);
}

}  // namespace pin_test
