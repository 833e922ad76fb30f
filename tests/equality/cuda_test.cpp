// SPDX-License-Identifier: Apache-2.0
#include "matrix.hpp"

#include <chunkmem/transfer/transfers.hpp>
#include <support/fake_device.hpp>

namespace cuda_test {

using namespace equality;
using support::fake_device;
using demand_manager = cm::manager<fake_device, support::every_eviction, cm::transfer::no_prefetch>;
using ahead_manager = cm::manager<fake_device, support::every_eviction, cm::transfer::lookahead>;

TEST_CASE("training on a CUDA runtime that does everything as late as it may equals training on vectors", "[equality]")
{
  const support::fake_device_options options{.when = support::fake_schedule::latest};
  CHECK(run_matrix<demand_manager, ahead_manager, fake_device>(options, true) == runs_of_matrix);
}

TEST_CASE("so it does where the runtime works at random moments, or at once", "[equality]")
{
  CHECK(run_matrix<demand_manager, ahead_manager, fake_device>(support::fake_device_options{.seed = 7}, true) ==
        runs_of_matrix);
  const support::fake_device_options early{.when = support::fake_schedule::earliest};
  CHECK(run_matrix<demand_manager, ahead_manager, fake_device>(early, true) == runs_of_matrix);
}

}  // namespace cuda_test
