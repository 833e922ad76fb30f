// SPDX-License-Identifier: Apache-2.0
#include "failed_copies.hpp"

#include <chunkmem/transfer/transfers.hpp>

#include <support/sanitized.hpp>

#include <cstdint>

namespace training_test {

/// The k-th copy and the k-th allocation of training fail, for every k: a typed error, and after the retry the same
/// bits.

using namespace failed_copies;

namespace {

// only some copies: under a sanitizer a run takes ten times as long
constexpr std::uint64_t pace = support::sanitized ? 7 : 1;

using demand_manager = cm::manager<any_backend, chosen_gradient, cm::transfer::no_prefetch>;
using ahead_manager = cm::manager<any_backend, chosen_gradient>;

const setting usual{.how = {.kind = mixed::precision::fp32, .steps = 3},
                    .rehearses = false,
                    .more_frames = 4,
                    .options = {.device_capacity = 2_MiB, .host_capacity = 512_KiB, .when = support::schedule::latest}};

}  // namespace

TEST_CASE("every copy that fails on demand is an error from which training recovers", "[faults]")
{
  CHECK(fail_copies<demand_manager, float>(usual, pace, true) > 100 / pace);
}

TEST_CASE("every copy that fails ahead of its use is an error from which training recovers", "[faults]")
{
  CHECK(fail_copies<ahead_manager, float>(usual, pace, true) > 100 / pace);
}

TEST_CASE("every copy that fails beside launched kernels is an error from which training recovers", "[faults]")
{
  setting launched = usual;
  launched.launched = true;
  launched.more_frames = 1;
  launched.options.when = support::schedule::random;
  launched.options.seed = 11;
  launched.options.async_compute = true;
  CHECK(fail_copies<ahead_manager, float>(launched, pace, true) > 100 / pace);
}

TEST_CASE("every allocation that fails is an error from which training recovers", "[faults]")
{
  const mixed::outcome expected = mixed::reference{usual.how}.train();
  setting tight = usual;
  tight.options.device_capacity = 72_KiB;
  for (const std::uint64_t k : {0U, 1U})
    for (const bool persistent : {false, true})
      fail_once<ahead_manager, float>({.allocation = k, .persistent = persistent}, tight, persistent, expected);
  patient<ahead_manager, float> quiet{{}, tight, false};
  (void)quiet.train(nullptr);
  CHECK(quiet.memory.allocations() == 2);  // there are no others
}

}  // namespace training_test
