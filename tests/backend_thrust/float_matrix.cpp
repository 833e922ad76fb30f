// SPDX-License-Identifier: Apache-2.0
#include "memory_under_test.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/backend/on_caller.hpp>
#include <equality/matrix.hpp>

#include <cstdint>
#include <string>

using namespace equality;
using memory = cm::backend::on_caller<on_thrust::memory_under_test>;

namespace {

/// The results of a run, and the bytes that it moved.
struct result {
  mixed::outcome left;
  traffic moved;
};

template <class Backend, class Options>
result train_on(Options limits, cm::bytes device, std::string_view which)
{
  limits.device_capacity = device;
  limits.host_capacity = plenty;
  Backend backend{limits};
  using manager_type = support::any_manager<Backend>;
  manager_type manager = make<manager_type>(backend, evicting(which));
  const mixed::outcome left = trainer_of<manager_type, Backend>{manager, backend, usual}.train();
  return {left, traffic::of(manager.report())};
}

}  // namespace

TEST_CASE("training in memory of a Thrust system equals training on vectors bit for bit", "[backend_thrust]")
{
  const bool launched = GENERATE(false, true);
  CAPTURE(launched);
  CHECK(run_matrix<memory>(on_thrust::capacities{}, launched) == runs_of_matrix);
}

TEST_CASE("memory of a Thrust system ends with the bytes of host_arena after the same decisions", "[backend_thrust]")
{
  const support::any_options on_arena = cm::backend::host_arena_options{};
  for (const std::string_view which : {"lru", "belady"}) {
    const policies with = evicting(which);
    const cm::memory_requirement need =
        need_of<support::any_manager<memory>, memory>(on_thrust::capacities{}, plenty, with);
    const cm::memory_requirement arenas = need_of<ahead_manager, any_backend>(on_arena, plenty, with);
    REQUIRE(need.smallest_device == arenas.smallest_device);
    for (const std::uint64_t more : {0u, 1u, 2u, 3u, 5u, 8u, 100u}) {
      INFO("frames more than the smallest: " << more << ", eviction " << which);
      const cm::bytes device = need.smallest_device + more * frame;
      const result here = train_on<memory>(on_thrust::capacities{}, device, which);
      const result there = train_on<any_backend>(on_arena, device, which);
      const std::string difference = there.left.difference(here.left);
      CHECK(difference == "");
      CHECK(here.moved.loads == there.moved.loads);
      CHECK(here.moved.bytes == there.moved.bytes);
    }
  }
}
