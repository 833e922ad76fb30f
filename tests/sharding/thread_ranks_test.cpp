// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/thread_ranks.hpp>

#include <support/catch.hpp>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace thread_ranks_test {

using namespace chunkmem;
using ownership::process_group;
using sharding::thread_ranks;

TEST_CASE("each rank has a thread, and its ends of all, its node, and its place in every node", "[sharding]")
{
  const thread_ranks six{6, 3};
  CHECK(six.world() == ownership::rank_world{6, 3});
  std::vector<std::uint32_t> sums(6, 0);
  six.run([&](thread_ranks::place& here) {
    const auto& it = here.process_groups();
    const std::uint64_t mine[] = {here.rank() + 1};
    std::vector<std::uint64_t> node(3);
    std::vector<std::uint64_t> across(2);
    std::vector<std::uint64_t> all(6);
    it.of(process_group::node).exchange(mine, node);
    it.of(process_group::across).exchange(mine, across);
    here.all().exchange(mine, all);
    std::uint64_t sum = 0;
    for (const std::uint64_t word : node) sum += word;
    for (const std::uint64_t word : across) sum += 100 * word;
    sums[here.rank()] = static_cast<std::uint32_t>(sum + 10'000 * all[5]);
  });
  CHECK(sums == std::vector<std::uint32_t>{60506, 60706, 60906, 60515, 60715, 60915});
  CHECK(thread_ranks{4}.world() == ownership::rank_world{4, 4});
  CHECK_THROWS_AS((thread_ranks{4, 3}), config_error);
}

TEST_CASE("where a rank fails the others end, and the cause is what is thrown", "[sharding]")
{
  const thread_ranks three{3, 0, {.deadline = 60'000'000'000}};
  std::atomic<int> ended = 0;
  const auto work = [&](thread_ranks::place& here) {
    if (here.rank() == 2) throw std::runtime_error{"no more room"};
    const std::uint64_t mine[] = {1};
    std::vector<std::uint64_t> all(3);
    try {
      here.all().exchange(mine, all);
    } catch (const comm_error&) {
      ++ended;
      throw;
    }
  };
  CHECK_THROWS_WITH(three.run(work), "no more room");
  CHECK(ended == 2);
}

TEST_CASE("a failure that all ranks share is thrown as the first one has it", "[sharding]")
{
  const thread_ranks two{2};
  CHECK_THROWS_AS(two.run([&](thread_ranks::place& here) {
    const std::uint64_t mine[] = {1, 2};
    std::vector<std::uint64_t> all(4);
    here.all().exchange({mine, here.rank() + 1}, {all.data(), 2 * (here.rank() + std::size_t{1})});
  }),
                  comm_error);
}

}  // namespace thread_ranks_test
