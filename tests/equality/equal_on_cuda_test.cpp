// SPDX-License-Identifier: Apache-2.0
#include "matrix.hpp"

#include <support/fake_device.hpp>
#include <support/sanitized.hpp>

namespace equal_on_cuda_test {

using namespace equality;
using support::fake_device;

TEST_CASE("training on a CUDA runtime that does everything as late as it may equals training on vectors", "[equality]")
{
  const support::fake_device_options options{.when = support::fake_schedule::latest};
  CHECK(run_matrix<fake_device>(options, true) == runs_of_matrix);
}

TEST_CASE("so it does where the runtime works at random moments, or at once", "[equality]")
{
  // under a sanitizer each of them has some of the evictions, and the latest schedule all
  constexpr names all = support::every_eviction::names;
  constexpr names of_random = support::sanitized ? all.last(2) : all;
  constexpr names of_earliest = support::sanitized ? all.first(1) : all;
  CHECK(run_matrix<fake_device>(support::fake_device_options{.seed = 7}, true, of_random) ==
        6 * static_cast<int>(of_random.size()));
  const support::fake_device_options early{.when = support::fake_schedule::earliest};
  CHECK(run_matrix<fake_device>(early, true, of_earliest) == 6 * static_cast<int>(of_earliest.size()));
}

TEST_CASE("so it does on memory that a user has allocated", "[equality]")
{
  const support::fake_device_options slabs{.when = support::fake_schedule::earliest, .on_slabs = true};
  CHECK(run_matrix<fake_device>(slabs, true, names{support::every_eviction::names}.first(1)) == 6);
}

}  // namespace equal_on_cuda_test
