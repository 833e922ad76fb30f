#include "matrix.hpp"

#include <chunkmem/transfer/no_prefetch.hpp>

#include <iostream>

using namespace equality;
using support::adversarial;
using demand_manager = cm::manager<adversarial, support::chosen_eviction, cm::transfer::no_prefetch>;
using ahead_manager = cm::manager<adversarial, support::chosen_eviction, cm::transfer::lookahead>;

namespace {

/// Always latest, always earliest, and twenty seeds in between.
int run_schedules(bool async, bool launched)
{
  int runs = 0;
  const support::adversarial_options fixed{.async_compute = async};
  auto with = [&](support::schedule when, std::uint64_t seed) {
    INFO("schedule " << static_cast<int>(when) << ", seed " << seed);
    support::adversarial_options options = fixed;
    options.when = when;
    options.seed = seed;
    runs += run_matrix<demand_manager, ahead_manager, adversarial>(options, launched);
  };
  with(support::schedule::latest, 1);
  with(support::schedule::earliest, 1);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) with(support::schedule::random, seed);
  return runs;
}

}  // namespace

TEST_CASE("no order of copies changes a bit", "[equality]")
{
  CHECK(run_schedules(false, false) == 264);
}

TEST_CASE("no order of copies and kernels changes a bit", "[equality]")
{
  CHECK(run_schedules(true, true) == 264);
}
