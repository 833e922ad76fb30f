// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/host_arena.hpp>

#include <support/catch.hpp>
#include <support/forked_child.hpp>
#include <support/sanitized.hpp>

#include <atomic>
#include <optional>

namespace forked_child_test {

using namespace chunkmem;
using backend::host_arena;
using support::is_refused_to_children;
using support::result_in_child;

TEST_CASE("a forked child that only ends a host_arena ends, whatever its threads did at the fork", "[backend]")
{
  if (support::thread_sanitized) SKIP("the thread sanitizer allows no fork of a program with threads");
  const bool async_compute = GENERATE(false, true);
  const bool is_busy = GENERATE(false, true);
  CAPTURE(async_compute, is_busy);
  std::optional<host_arena> mem{
      std::in_place,
      backend::host_arena_options{.device_capacity = 1_MiB, .host_capacity = 1_MiB, .async_compute = async_compute}};
  std::byte* const on_device = mem->allocate(tier::device, 4_KiB);
  std::byte* const on_host = mem->allocate(tier::host, 4_KiB);
  std::atomic<bool> has_begun{false};
  std::atomic<bool> open{false};
  if (is_busy) {
    mem->launch(agent::to_host, [&] {
      has_begun = true;
      has_begun.notify_one();
      open.wait(false);
    });
    has_begun.wait(false);
    mem->wait(agent::to_device, mem->record(agent::to_host));  // a thread that waits for another one
    for (int copy = 0; copy < 20; ++copy) mem->copy(on_device, on_host, 4_KiB, agent::to_host);
  }
  CHECK(result_in_child([&] {
          mem.reset();
          return 0;
        }) == 0);
  CHECK(result_in_child([&] {
          mem->release(tier::device, on_device);
          return mem->unknown_releases() == 0 ? 0 : 1;
        }) == 0);
  open = true;
  open.notify_one();
  mem->wait(agent::to_device, mem->record(agent::to_host));     // behind the copies to the same bytes
  mem->fill(on_device, std::byte{7}, 4_KiB, agent::to_device);  // the parent goes on
  mem->wait(agent::host, mem->record(agent::to_device));
  CHECK(on_device[4095] == std::byte{7});
}

TEST_CASE("a forked child can give a host_arena no work and wait for none, and is told so", "[backend]")
{
  if (support::thread_sanitized) SKIP("the thread sanitizer allows no fork of a program with threads");
  host_arena mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  std::byte* const on_device = mem.allocate(tier::device, 4_KiB);
  std::byte* const on_host = mem.allocate(tier::host, 4_KiB);
  mem.fill(on_host, std::byte{3}, 4_KiB, agent::to_device);
  const event filled = mem.record(agent::to_device);
  mem.wait(agent::host, filled);
  CHECK(result_in_child([&] {
          if (!is_refused_to_children([&] { mem.copy(on_device, on_host, 4_KiB, agent::to_device); })) return 1;
          if (!is_refused_to_children([&] { mem.fill(on_device, std::byte{}, 4_KiB); })) return 2;
          if (!is_refused_to_children([&] { mem.launch(agent::compute, [] {}); })) return 3;
          if (!is_refused_to_children([&] { mem.wait(agent::host, filled); })) return 4;
          if (!is_refused_to_children([&] { (void)mem.adopt(); })) return 5;
          if (on_host[17] != std::byte{3}) return 6;                           // it has a copy of the bytes
          host_arena own{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};  // and may have an arena of its own
          std::byte* const place = own.allocate(tier::host, 4_KiB);
          own.copy(place, on_host, 4_KiB, agent::to_device);
          own.wait(agent::host, own.record(agent::to_device));
          return place[17] == std::byte{3} ? 0 : 7;
        }) == 0);
}

}  // namespace forked_child_test
