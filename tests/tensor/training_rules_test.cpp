// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/tensor_rules.hpp>

#include <conformance/tensor_rules.hpp>
#include <support/catch.hpp>

namespace training_rules_test {

using namespace chunkmem;

TEST_CASE("training rules keep the laws of tensor rules", "[tensor]")
{
  conformance::tensor_rules_laws<training_rules>();
}

TEST_CASE("training rules are those of the documentation and no others", "[tensor]")
{
  using enum tensor_state;
  using enum tensor_event;
  conformance::rules_are<training_rules>({
      {{free, materialize}, hold},
      {{free, drop}, free},
      {{hold, acquire}, compute},
      {{hold, drop}, free},
      {{compute, acquire}, compute},
      {{compute, consume}, gradient},
      {{compute, release}, hold},
      {{gradient, release}, hold},
  });
}

}  // namespace training_rules_test
