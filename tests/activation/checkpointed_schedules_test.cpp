// SPDX-License-Identifier: Apache-2.0
#include "checkpointed_runs.hpp"

#include <chunkmem/transfer/transfers.hpp>
#include <support/fake_device.hpp>

namespace checkpointed_schedules_test {

/// Training has the bits of one that keeps all activations, whenever copies and kernels run.

using namespace checkpointed_runs;
using support::fake_device;

// Under a sanitizer each schedule has every second planner: two of them one half, the third the other.
constexpr bool whole = !support::sanitized;

TEST_CASE("no order of copies changes a bit, under every plan", "[activation]")
{
  run_matrix<adversarial>(false, support::adversarial_options{.when = support::schedule::latest}, whole, 1);
}

TEST_CASE("no order of copies and kernels changes a bit, under every plan", "[activation]")
{
  run_matrix<adversarial>(true, support::adversarial_options{.seed = 3, .async_compute = true}, whole, 2);
}

TEST_CASE("nor does a CUDA runtime that does everything as late as it may", "[activation]")
{
  run_matrix<fake_device, cm::transfer::lookahead>(
      true, support::fake_device_options{.when = support::fake_schedule::latest}, whole, 1);
}

TEST_CASE("the same for all planners, evictions and capacities, also under a sanitizer", "[activation][.slow]")
{
  run_matrix<adversarial>(true, support::adversarial_options{.seed = 5, .async_compute = true}, true);
  run_matrix<fake_device, cm::transfer::lookahead>(
      true, support::fake_device_options{.when = support::fake_schedule::latest}, true);
}

}  // namespace checkpointed_schedules_test
