// SPDX-License-Identifier: Apache-2.0
#include "rank_on_host.hpp"
#include "ranks.hpp"

#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace gpt {

int run_on_threads(const options& chosen, const training_text& text, const display& show)
{
  using chunkmem::sharding::thread_ranks;
  const auto ranks = static_cast<std::uint32_t>(chosen.ranks);
  const rank_plan plan = rank_plan::of(chosen, ranks);
  std::atomic<int> result = EXIT_SUCCESS;
  const thread_ranks gathers{ranks, plan.of_node}, sums{ranks, plan.of_node};
  gathers.run([&](thread_ranks::place& here) {
    thread_ranks::place for_sums{sums, here.rank()};
    chunkmem::sharding::sums_apart both{here.process_groups(), for_sums.process_groups()};
    if (const int mine = run_rank(chosen, text, show, rank_on_host{both}, plan, "threads"); mine != EXIT_SUCCESS)
      result = mine;
  });
  return result;
}

}  // namespace gpt
