// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/tensor_rules.hpp>

#include <conformance/tensor_rules.hpp>
#include <support/catch.hpp>

namespace inference_rules_test {

using namespace chunkmem;

TEST_CASE("inference rules keep the laws of tensor rules", "[tensor]")
{
  conformance::tensor_rules_laws<inference_rules>();
}

TEST_CASE("inference knows held weights and no gradient", "[tensor]")
{
  using enum tensor_state;
  using enum tensor_event;
  conformance::rules_are<inference_rules>({
      {{free, materialize}, hold},
      {{free, drop}, free},
      {{hold, acquire}, compute},
      {{hold, drop}, free},
      {{compute, acquire}, compute},
      {{compute, release}, hold},
  });
}

}  // namespace inference_rules_test
