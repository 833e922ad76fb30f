// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/on_caller.hpp>
#include <chunkmem/collective/local_threads.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <support/catch.hpp>
#include <support/forked_child.hpp>
#include <support/sanitized.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <thread>

namespace forked_child_of_ranks_test {

using namespace chunkmem;
using collective::local_threads;
using collective::shares;
using collective::thread_group;
using support::is_refused_to_children;
using support::result_in_child;

TEST_CASE("a forked child waits for no rank that is a thread of its parent", "[collective]")
{
  if (support::thread_sanitized) SKIP("the thread sanitizer allows no fork of a program with threads");
  thread_group group{2};
  std::optional<local_threads> first{std::in_place, group, rank_id{0}};
  local_threads second{group, rank_id{1}};
  backend::host_arena mem{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  std::byte* const place = mem.allocate(tier::host, 4_KiB);
  std::uint64_t met = 0;
  std::thread other{[&] {
    const std::uint64_t mine = 7;
    std::array<std::uint64_t, 2> all{};
    second.exchange({&mine, 1}, all);  // waits for the first rank, at the fork too
    met = all[0];
  }};
  for (int child = 0; child < 20; ++child)  // at several moments of the other thread
    CHECK(result_in_child([&] {
            const std::uint64_t mine = 5;
            std::array<std::uint64_t, 2> all{};
            if (!is_refused_to_children([&] { first->exchange({&mine, 1}, all); })) return 1;
            if (!is_refused_to_children(
                    [&] { first->all_gather(mem, agent::to_device, place, shares::of(4_KiB, 2), 0); }))
              return 2;
            if (!is_refused_to_children([&] { first->barrier(mem, agent::to_device, 0); })) return 3;
            if (!is_refused_to_children([&] { local_threads{group, rank_id{0}}; })) return 4;
            first->revoke();
            (void)group.waits();
            first.reset();
            second.~local_threads();  // the group goes with its last user
            group.~thread_group();
            return 0;
          }) == 0);
  const std::uint64_t mine = 5;
  std::array<std::uint64_t, 2> all{};
  first->exchange({&mine, 1}, all);  // no child has changed anything here
  other.join();
  CHECK(all[1] == 7);
  CHECK(met == 5);
}

}  // namespace forked_child_of_ranks_test
