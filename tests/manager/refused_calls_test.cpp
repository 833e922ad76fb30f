// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/placement/placements.hpp>

#include <support/any_manager.hpp>
#include <support/catch.hpp>
#include <support/refusal.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace refused_calls_test {

/// A refused call of the manager leaves no trace.

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;

namespace {

/// Eight weights whose states lie on the device while a step leases little of it.
struct trainer {
  trainer()
  {
    m.use(adam);
    weights = m.add_stacked<float>(8, {1024}, cm::role::parameter);
    for (std::uint32_t index = 0; index < 8; ++index)
      for (float& value : m.acquire(weights.slice(index), cm::access::write).span()) value = 1;
  }
  void step(cm::bytes leased = cm::bytes{})
  {
    const auto iteration = m.iteration();
    if (leased != cm::bytes{}) (void)m.lease(cm::tier::device, leased);
    for (std::uint32_t index = 0; index < 8; ++index)
      for (float& value : m.gradient(weights.slice(index)).span()) value = 0.5F;
    (void)cm::optimizer::step(m, adam, {.learning_rate = 1e-3F});
  }
  void steps(int count)
  {
    for (int index = 0; index < count; ++index) step();
  }

  arena memory{{.device_capacity = 256_KiB, .host_capacity = 4_MiB}};
  using manager = support::any_manager<cm::backend::host_arena>;
  manager m{support::make_manager<manager>(memory, {.chunk_bytes = 4_KiB},
                                           {.placement = support::every_placement{"device_margin"}})};
  cm::optimizer::adam adam;
  cm::stacked<float> weights;
};

/// Iterations that left their record, and bytes that left the device, in four steps after `call`.
template <class Call>
std::pair<std::uint64_t, std::uint64_t> disturbed_by(Call call)
{
  trainer it;
  it.steps(4);
  const cm::report before = it.m.report();
  call(it.m);
  it.steps(4);
  const cm::report after = it.m.report();
  return {after.divergences - before.divergences, (after.written_back - before.written_back).count()};
}

const std::pair<std::uint64_t, std::uint64_t> nothing{0, 0};

}  // namespace

TEST_CASE("a profile that is refused leaves the tiers of states as they were", "[manager]")
{
  trainer other;
  other.step(200_KiB);
  const cm::access_record large = *other.m.profile();
  CHECK(disturbed_by([](auto&) {}) == nothing);
  CHECK(disturbed_by([&](auto& m) { CHECK_THROWS_AS(m.use_profile(large), cm::usage_error); }) == nothing);
}

TEST_CASE("a rehearsal that is refused leaves the tiers of states as they were", "[manager]")
{
  CHECK(disturbed_by([](auto& m) {
          const auto too_large = [&] {
            const auto iteration = m.iteration();
            (void)m.lease(cm::tier::device, 512_KiB);
          };
          CHECK_THROWS_AS(m.rehearse(too_large), cm::config_error);
        }) == nothing);
}

TEST_CASE("an error about late updates that were lost names a weight whose update waits", "[manager]")
{
  arena memory{{.device_capacity = 256_KiB, .host_capacity = 4_MiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::optimizer::adam adam;
  m.use(adam);
  const auto weights = m.add_stacked<float>(3, {1024}, cm::role::parameter);
  for (std::uint32_t index = 0; index < 3; ++index) {
    m.name(weights.slice(index), "layer" + std::to_string(index));
    for (float& value : m.acquire(weights.slice(index), cm::access::write).span()) value = 1;
  }
  {
    std::optional<cm::optimizer::late_updates<decltype(m), cm::optimizer::adam>> late;
    late.emplace(m, adam);
    const auto iteration = m.iteration();
    for (float& value : m.gradient(weights.slice(2)).span()) value = 0.5F;
    (void)late->step({.learning_rate = 1e-3F});
  }
  const std::string message = support::refusal<cm::usage_error>([&] { m.drop_gradients(); });
  CHECK(message.find("layer2") != std::string::npos);
  CHECK(message.find("layer0") == std::string::npos);
}

}  // namespace refused_calls_test
