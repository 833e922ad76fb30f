// SPDX-License-Identifier: Apache-2.0
#include "memory_under_test.hpp"

#include <chunkmem/backend/on_caller.hpp>
#include <equality/precision_run.hpp>
#include <support/catch.hpp>
#include <support/refusal.hpp>
#include <support/sanitized.hpp>

#include <cstddef>
#include <string>

using memory = chunkmem::backend::on_caller<on_thrust::memory_under_test>;

// The settings of tests/equality, which holds host_arena to the same reference.
TEST_CASE("training in 32 and 16 bits in memory of a Thrust system equals training on vectors bit for bit",
          "[backend_thrust]")
{
  constexpr std::size_t pace = support::sanitized ? 7 : 1;  // no factor of the 40 rows
  std::size_t rows = 0;
  std::size_t runs = 0;
  for (const precision::setting& it : precision::pairwise_cover()) {
    if (rows++ % pace != 0) continue;
    INFO(it.name());
    const std::string difference =
        support::complaint_of([&] { return precision::run_on<memory>(it, on_thrust::capacities{}); });
    CHECK(difference == "");
    ++runs;
  }
  CHECK(rows == precision::most_runs);
  CHECK(runs == (rows + pace - 1) / pace);
}
