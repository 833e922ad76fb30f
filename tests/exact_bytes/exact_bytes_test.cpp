// SPDX-License-Identifier: Apache-2.0
// Random models, ranks and pipelines: the trainer of a plan runs in the bytes that the plan names, and is refused with
// one frame less.
#include <support/catch.hpp>
#include <support/figures.hpp>

#include "lone_plans.hpp"
#include "pipeline_plans.hpp"
#include "rank_plans.hpp"

#include <cstdint>
#include <iostream>

namespace exact_bytes_test {

namespace {

/// @return   the total difference of plans and trainings in bytes
std::uint64_t try_all(std::uint64_t first, std::uint64_t lone, std::uint64_t ranks, std::uint64_t pipelines)
{
  std::uint64_t apart = 0;
  for (std::uint64_t seed = first; seed < first + lone; ++seed) apart += lone_plans::try_job(seed);
  for (std::uint64_t seed = first; seed < first + ranks; ++seed) apart += rank_plans::try_job(seed);
  for (std::uint64_t seed = first; seed < first + pipelines; ++seed) apart += pipeline_plans::try_plan(seed);
  std::cout << lone << " trainings of one rank, " << ranks << " over ranks and " << pipelines << " of pipelines are "
            << apart << " B from their plans\n";
  return apart;
}

}  // namespace

TEST_CASE("trainings run in the bytes of their plans, and not in one frame less", "[exact_bytes]")
{
  const std::uint64_t apart = try_all(1, 16, 8, 8);
  CHECK(apart == 0);
  support::write_figures("test_exact_bytes", "build/test/bin/test_exact_bytes",
                         {{"plan.memory_error_bytes", apart, "B", "==", 0}});
}

TEST_CASE("so do 200 trainings", "[exact_bytes][.slow]")
{
  CHECK(try_all(1'001, 80, 60, 60) == 0);
}

TEST_CASE("ranks that gather units ahead run in the bytes of their rehearsal, and not in one frame less",
          "[exact_bytes]")
{
  for (const std::uint64_t seed : {8U, 10U})  // of zero_3, without a norm
    for (const std::uint32_t ahead : {1U, 3U}) rank_plans::check_ahead(seed, ahead);
}

}  // namespace exact_bytes_test
