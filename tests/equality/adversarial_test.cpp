// SPDX-License-Identifier: Apache-2.0
#include "matrix.hpp"

#include <support/sanitized.hpp>

namespace adversarial_test {

using namespace equality;

namespace {

// Under a sanitizer two seeds, each with two evictions of its own, and the earliest schedule has the one that is left.
constexpr std::uint64_t last_seed = support::sanitized ? 3 : 20;
constexpr std::uint64_t pace = support::sanitized ? 2 : 1;
constexpr std::uint64_t seeds = (last_seed + pace - 1) / pace;
constexpr names all = support::every_eviction::names;
constexpr names of_earliest = all.first(support::sanitized ? 1 : all.size());
constexpr int all_runs = 6 * (static_cast<int>(all.size() + of_earliest.size()) + 2 * static_cast<int>(seeds));

/// Always latest and always earliest with every eviction, and seeds in between with two evictions each.
int run_schedules(bool async, bool launched)
{
  int runs = 0;
  auto with = [&](support::schedule when, std::uint64_t seed, names evictions) {
    INFO("schedule " << static_cast<int>(when) << ", seed " << seed);
    const support::any_options options =
        support::adversarial_options{.when = when, .seed = seed, .async_compute = async};
    runs += run_matrix<any_backend>(options, launched, evictions);
  };
  with(support::schedule::latest, 1, all);
  with(support::schedule::earliest, 1, of_earliest);
  for (std::uint64_t seed = 1; seed <= last_seed; seed += pace) {
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
