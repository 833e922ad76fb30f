// SPDX-License-Identifier: Apache-2.0
#include "matrix.hpp"

#include <chunkmem/transfer/transfers.hpp>
#include <support/sanitized.hpp>

#include <iostream>

namespace adversarial_test {

using namespace equality;
using support::adversarial;
using demand_manager = cm::manager<adversarial, support::every_eviction, cm::transfer::no_prefetch>;
using ahead_manager = cm::manager<adversarial, support::every_eviction, cm::transfer::lookahead>;

namespace {

// Under the address sanitizer fewer: which bytes are touched is another's question than when, which the thread
// sanitizer looks at.
constexpr std::uint64_t seeds = support::sanitized && !support::thread_sanitized ? 5 : 20;
constexpr int all_runs = 6 * (2 * 5 + 2 * static_cast<int>(seeds));  // settings times evictions

/// Always latest and always earliest with every eviction, and seeds in between with two evictions each.
int run_schedules(bool async, bool launched)
{
  int runs = 0;
  const support::adversarial_options fixed{.async_compute = async};
  auto with = [&](support::schedule when, std::uint64_t seed, names evictions) {
    INFO("schedule " << static_cast<int>(when) << ", seed " << seed);
    support::adversarial_options options = fixed;
    options.when = when;
    options.seed = seed;
    runs += run_matrix<demand_manager, ahead_manager, adversarial>(options, launched, evictions);
  };
  constexpr auto& all = support::every_eviction::names;
  with(support::schedule::latest, 1, all);
  with(support::schedule::earliest, 1, all);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::string_view two[] = {all[seed % all.size()], all[(seed + 1 + seed / 5 % 2) % all.size()]};
    with(support::schedule::random, seed, two);
  }
  return runs;
}

}  // namespace

TEST_CASE("no order of copies changes a bit", "[equality]")
{
  CHECK(run_schedules(false, false) == all_runs);
}

TEST_CASE("no order of copies and kernels changes a bit", "[equality]")
{
  CHECK(run_schedules(true, true) == all_runs);
}

}  // namespace adversarial_test
