// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/step_options.hpp>

#include <support/catch.hpp>

namespace step_options_test {

using namespace chunkmem;

TEST_CASE("an outcome compares like its result", "[optimizer]")
{
  const optimizer::step_outcome skipped{optimizer::step_result::skipped_nonfinite, 3.0};
  CHECK(skipped == optimizer::step_result::skipped_nonfinite);
  CHECK(optimizer::step_outcome{} == optimizer::step_result::updated);
  CHECK(skipped.norm == 3.0);
}

TEST_CASE("a step without options clips nothing and skips what is not finite", "[optimizer]")
{
  const optimizer::step_options options;
  CHECK(options.clip.norm == 0.0F);
  CHECK(options.clip.value == 0.0F);
  CHECK(options.skip_nonfinite);
  CHECK(options.loss_scale == nullptr);
  CHECK(options.group_rates.empty());
}

}  // namespace step_options_test
