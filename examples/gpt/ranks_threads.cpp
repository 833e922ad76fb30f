// SPDX-License-Identifier: Apache-2.0
#include "rank_on_host.hpp"
#include "ranks.hpp"

#include <chunkmem/collective/local_threads.hpp>
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
  thread_ranks{ranks, plan.of_node}.run([&](thread_ranks::place& here) {
    if (const int mine = run_rank(chosen, text, show, rank_on_host{here.process_groups()}, plan, "threads");
        mine != EXIT_SUCCESS)
      result = mine;
  });
  return result;
}

}  // namespace gpt
