// SPDX-License-Identifier: Apache-2.0
#include "divergence_run.hpp"

#include <support/catch.hpp>
#include <support/refusal.hpp>
#include <support/sanitized.hpp>

#include <cstdint>
#include <iostream>
#include <string>

namespace divergence_test {

using namespace divergence;

/// Planned transfers with every placement, share and way to update, in loops whose iterations leave the record at
/// random moments.

namespace {

constexpr std::uint64_t runs_in_ci = support::sanitized ? 10 : 60;

tally run_all(std::uint64_t first, std::uint64_t end)
{
  tally sum;
  for (std::uint64_t number = first; number < end; ++number) {
    const setting it = random_setting(number);
    INFO(it.name());
    const std::string difference = support::complaint_of([&] { return run(it, sum); });
    CHECK(difference == "");
    ++sum.runs;
    sum.identical += difference.empty() ? 1 : 0;
    if (sum.runs % 1'000 == 0 || number + 1 == end) std::cout << sum.text() << std::flush;
  }
  return sum;
}

/// The runs were what they are meant to be.
void check_that_they_diverged(const tally& sum)
{
  CHECK(sum.identical == sum.runs);
  CHECK(sum.divergences > 3 * sum.runs);
  CHECK(sum.replans > 3 * sum.runs);
  CHECK(sum.clipped > sum.runs);
  CHECK(4 * sum.skipped > sum.runs);
  CHECK(20 * sum.retried > sum.runs);
  CHECK(sum.loads > 50 * sum.runs);
  CHECK(4 * sum.enlarged < sum.runs);
}

}  // namespace

TEST_CASE("training that leaves its records at random moments equals training on vectors bit for bit", "[differential]")
{
  check_that_they_diverged(run_all(0, runs_in_ci));
}

TEST_CASE("so it does in twelve thousand runs", "[differential][.slow]")
{
  check_that_they_diverged(run_all(1'000, 13'000));
}

}  // namespace divergence_test
