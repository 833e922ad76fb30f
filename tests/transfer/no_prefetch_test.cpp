// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/policies.hpp>

#include <conformance/transfer_policy.hpp>
#include <support/catch.hpp>

namespace no_prefetch_test {

using namespace chunkmem;

TEST_CASE("no_prefetch keeps the laws of a transfer policy and plans nothing", "[transfer]")
{
  static_assert(!transfer::no_prefetch::plans);
  CHECK(conformance::transfer_policy_laws<transfer::no_prefetch>(30) == 0);
}

TEST_CASE("no_prefetch empties the list that it is given", "[transfer]")
{
  std::vector<transfer::move> actions(3);
  const access_record record;
  transfer::no_prefetch{}.schedule({record, {}, {}, 0, 0, true}, actions);
  CHECK(actions.empty());
}

}  // namespace no_prefetch_test
