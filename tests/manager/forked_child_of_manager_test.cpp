// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/optimizer/thread_pool.hpp>
#include <support/catch.hpp>
#include <support/forked_child.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace forked_child_of_manager_test {

namespace cm = chunkmem;
using namespace cm::literals;
using arena = cm::backend::host_arena;
using support::result_in_child;

namespace {

/// Eight tensors of a chunk each, of which two fit on the device.
struct trainer {
  trainer()
  {
    for (std::uint32_t index = 0; index < 8; ++index)
      for (float& value : m.acquire(weights.slice(index), cm::access::write).span()) value = static_cast<float>(index);
    for (int step = 0; step < 3; ++step) {
      const auto scope = m.iteration();
      for (std::uint32_t index = 0; index < 8; ++index) (void)first_of(index);
    }
  }
  float first_of(std::uint32_t index)
  {
    const auto pin = m.acquire(weights.slice(index), cm::access::read);
    return pin.span()[0];
  }

  arena memory{{.device_capacity = 8_KiB, .host_capacity = 64_KiB}};
  cm::manager<arena> m{memory, {.chunk_bytes = 4_KiB}};
  cm::stacked<float> weights = m.add_stacked<float>(8, {1024}, cm::role::parameter);
};

}  // namespace

TEST_CASE("a forked child of a program with a static manager ends by exit", "[manager]")
{
  if (support::thread_sanitized) SKIP("the thread sanitizer allows no fork of a program with threads");
  static trainer whole;
  static cm::optimizer::thread_pool pool{3};
  // The address sanitizer allocates under a lock where a thread starts. A child forked meanwhile would wait for that
  // lock at its exit, so every thread has to be at work first.
  std::barrier all{3};
  pool.run(3, [&](unsigned) { all.arrive_and_wait(); });
  CHECK(result_in_child([]() -> int { std::exit(42); }) == 42);
  CHECK(whole.first_of(3) == 3.0F);
}

TEST_CASE("a forked child that reads tensors which are elsewhere is told so, and does not wait", "[manager]")
{
  if (support::thread_sanitized) SKIP("the thread sanitizer allows no fork of a program with threads");
  trainer whole;
  CHECK(result_in_child([&] {
          int refused = 0;
          for (std::uint32_t index = 0; index < 8; ++index) {
            try {
              if (whole.first_of(index) != static_cast<float>(index)) return 1;
            } catch (const cm::usage_error& failed) {
              if (std::string_view{failed.what()}.find("in a forked child") == std::string_view::npos) return 2;
              ++refused;
            }
          }
          return refused >= 6 ? 0 : 3;  // two fit on the device
        }) == 0);
  for (std::uint32_t index = 0; index < 8; ++index) CHECK(whole.first_of(index) == static_cast<float>(index));
}

TEST_CASE("a forked child destroys a manager in the middle of an iteration", "[manager]")
{
  if (support::thread_sanitized) SKIP("the thread sanitizer allows no fork of a program with threads");
  std::optional<trainer> whole{std::in_place};
  {
    const auto iteration = whole->m.iteration();
    (void)whole->first_of(0);
    (void)whole->first_of(1);
    CHECK(result_in_child([&] {
            whole.reset();
            return 0;
          }) == 0);
    for (std::uint32_t index = 2; index < 8; ++index) CHECK(whole->first_of(index) == static_cast<float>(index));
  }
}

TEST_CASE("a forked child does the parts of a thread pool itself, and ends the pool", "[manager]")
{
  if (support::thread_sanitized) SKIP("the thread sanitizer allows no fork of a program with threads");
  std::optional<cm::optimizer::thread_pool> pool{std::in_place, 3U};
  std::array<int, 64> done{};
  const auto all_are = [&](int value) { return std::ranges::all_of(done, [&](int it) { return it == value; }); };
  pool->run(64, [&](unsigned part) { ++done[part]; });
  CHECK(result_in_child([&] {
          pool->run(64, [&](unsigned part) { ++done[part]; });
          pool.reset();
          return all_are(2) ? 0 : 1;
        }) == 0);
  pool->run(64, [&](unsigned part) { ++done[part]; });
  CHECK(all_are(2));
}

}  // namespace forked_child_of_manager_test
