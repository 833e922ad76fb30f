// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/manager_options.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/chunk/layouts.hpp>
#include <chunkmem/chunk/size_class_layout.hpp>
#include <chunkmem/manager/manager.hpp>
#include <support/any_manager.hpp>
#include <support/catch.hpp>
#include <support/mixed_trainer.hpp>
#include <support/own_policies.hpp>
#include <support/refusal.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace manager_options_test {

namespace cm = chunkmem;
using namespace chunkmem;

namespace {

static_assert(manager_options{}.chunk_bytes == 4_MiB);  // users count on the default

using memory = cm::backend::simulated;

/// Eight tensors, two in a chunk, used in another order than they are declared in, on a device of one chunk.
template <class Manager>
std::uint64_t loads_of_a_walk(const manager_options& options)
{
  memory mem{{.device_capacity = 1_KiB, .host_capacity = 1_MiB}};
  Manager m{mem, options};
  const auto weights = m.template add_stacked<float>(8, {128}, role::parameter);
  const auto walk = [&] {
    const auto scope = m.iteration();
    for (const std::uint32_t index : {0U, 4U, 1U, 5U, 2U, 6U, 3U, 7U})
      (void)m.acquire(weights.slice(index), access::read);
  };
  m.rehearse(walk);
  for (std::uint32_t index = 0; index < 8; ++index) (void)m.acquire(weights.slice(index), access::write);
  for (int step = 0; step < 3; ++step) walk();
  const std::uint64_t before = m.report().loads;
  walk();
  return m.report().loads - before;
}

/// The results of training after three steps, with these options.
support::mixed::outcome train(const manager_options& options, cm::bytes& chunk,
                              std::string_view layout = "size_class_layout")
{
  cm::backend::host_arena mem{{.device_capacity = 160_KiB, .host_capacity = 1_MiB}};
  using manager = support::any_manager<cm::backend::host_arena>;
  manager m{support::make_manager<manager>(mem, options, {.layout = support::every_layout{layout}})};
  support::mixed::trainer<manager, cm::backend::host_arena, float> trainer{m, mem, support::mixed::usual_recipe(3)};
  const memory_requirement need = trainer.rehearse();
  chunk = need.chunk_bytes;
  return trainer.train();
}

}  // namespace

TEST_CASE("tensors in the order of first use come with fewer loads where they were declared in another order",
          "[manager]")
{
  using manager = cm::manager<memory>;
  CHECK(loads_of_a_walk<manager>({.chunk_bytes = 1_KiB}) == 8);
  CHECK(loads_of_a_walk<manager>({.chunk_bytes = 1_KiB, .order = tensor_order::first_use}) == 4);
}

TEST_CASE("the order of first use is refused where nothing tells it, and settled by the first rehearsal", "[manager]")
{
  memory mem{{.device_capacity = 4_KiB, .host_capacity = 1_MiB}};
  cm::manager<memory> m{mem, {.chunk_bytes = 1_KiB, .order = tensor_order::first_use}};
  const auto weights = m.add_stacked<float>(4, {128}, role::parameter);
  CHECK_THROWS_AS(m.acquire(weights.slice(0), access::write), config_error);
  CHECK_THROWS_AS(m.rehearse([&] {
    (void)m.acquire(weights.slice(0), access::read);
    throw 1;
  }),
                  int);
  CHECK_THROWS_AS(m.acquire(weights.slice(0), access::write), config_error);
  const auto step = [&] {
    const auto scope = m.iteration();
    for (const std::uint32_t index : {3U, 1U, 2U, 0U}) (void)m.acquire(weights.slice(index), access::read_write);
  };
  const memory_requirement first = m.rehearse(step);
  CHECK(m.rehearse(step).smallest_device == first.smallest_device);
  for (std::uint32_t index = 0; index < 4; ++index) (void)m.acquire(weights.slice(index), access::write);
  step();
  CHECK(m.rehearse(step).smallest_device == first.smallest_device);
  CHECK(m.report().divergences == 0);
}

TEST_CASE("the order and the size of chunks change no bit", "[manager]")
{
  cm::bytes chunk;
  const support::mixed::outcome expected = train({.chunk_bytes = 4_KiB}, chunk);
  const auto equal = [&](const support::mixed::outcome& other) { return expected.difference(other) == ""; };
  CHECK(equal(train({.chunk_bytes = 4_KiB, .order = tensor_order::first_use}, chunk)));
  CHECK(equal(train({.chunk_bytes = least_waste_chunks}, chunk)));
  CHECK(equal(train({.chunk_bytes = least_waste_chunks}, chunk, "best_fit_layout")));
  CHECK(equal(train({.chunk_bytes = least_waste_chunks, .order = tensor_order::first_use}, chunk)));
  CHECK(chunk <= 10_KiB);  // a sixteenth of the device
}

TEST_CASE("a searched size of chunks wastes little of a model of layers", "[manager]")
{
  memory mem{{.device_capacity = 64_MiB, .host_capacity = 1_GiB}};
  cm::manager<memory, size_class_layout> m{mem, {.chunk_bytes = least_waste_chunks}};
  for (int layer = 0; layer < 6; ++layer) {
    for (const std::uint64_t width : {768U, 256U, 1024U, 1024U}) m.add<float>({256, width}, role::parameter);
    for (int tiny = 0; tiny < 4; ++tiny) m.add<float>({256}, role::parameter);
  }
  const memory_requirement need = m.seal();
  const double payload = static_cast<double>((need.by_role[role::parameter] + need.by_role[role::gradient]).count());
  CHECK(need.chunk_bytes.count() % tensor_alignment.count() == 0);
  CHECK(static_cast<double>(need.chunks.count()) <= payload * 1.001);
}

TEST_CASE("a seal tells the waste of the chunks, and a size that would waste less", "[manager]")
{
  const auto waste_of = [](cm::bytes chunk_bytes) {
    memory mem{{.device_capacity = 1_MiB, .host_capacity = 16_MiB}};
    cm::manager<memory> m{mem, {.chunk_bytes = chunk_bytes}};
    for (int layer = 0; layer < 8; ++layer) m.add<float>({1536}, role::parameter);
    return m.seal().waste;
  };
  const cm::chunk_waste seen = waste_of(8_KiB);  // a tensor of 6 KiB in each, and a gradient
  CHECK(seen.now.chunk_bytes == 8_KiB);
  CHECK(seen.now.chunks == 128_KiB);
  CHECK(seen.now.tensors == 96_KiB);
  CHECK(seen.now.wasted() == 32_KiB);
  CHECK(seen.now.percent() == 25);
  CHECK(seen.better.tensors == seen.now.tensors);
  CHECK(seen.better.wasted() == 0_B);
  const cm::chunk_waste again = waste_of(seen.better.chunk_bytes);
  CHECK(again.now.percent() == 0);
  CHECK(again.better.chunk_bytes == seen.better.chunk_bytes);
  CHECK(waste_of(least_waste_chunks).now.chunk_bytes == seen.better.chunk_bytes);
  CHECK(cm::chunk_waste{}.now.percent() == 0);
}

TEST_CASE("a layout that cannot be searched says so", "[manager]")
{
  memory mem{{.device_capacity = 64_MiB, .host_capacity = 1_GiB}};
  cm::manager<memory, support::one_each_layout> m{mem, {.chunk_bytes = least_waste_chunks}};
  m.add<float>({256}, role::parameter);
  const std::string said = support::refusal<config_error>([&] { m.seal(); });
  CHECK(said.rfind("chunkmem: this layout cannot be searched", 0) == 0);
  cm::manager<memory, support::one_each_layout> named{mem, {.chunk_bytes = 4_KiB}};
  named.add<float>({256}, role::parameter);
  const cm::chunk_waste seen = named.seal().waste;
  CHECK(seen.now.percent() == 75);
  CHECK(seen.better.chunk_bytes == 4_KiB);
}

}  // namespace manager_options_test
