// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/step_rules.hpp>

#include <support/catch.hpp>

#include <limits>

namespace step_rules_test {

namespace cm = chunkmem;
using cm::optimizer::loss_scale;
using cm::optimizer::step_decision;
using cm::optimizer::step_options;
using cm::optimizer::detail::step_rules;

namespace {

cm::gradient_measure of_norm(double norm)
{
  cm::gradient_measure all;
  all.squares = norm * norm;
  return all;
}
cm::gradient_measure not_finite()
{
  cm::gradient_measure all;
  all.squares = std::numeric_limits<double>::infinity();
  all.finite = false;
  return all;
}

}  // namespace

TEST_CASE("a step measures its gradients where it clips by their norm or may skip", "[optimizer]")
{
  const auto measures = [](const step_options& options) { return step_rules{options}.needs_measures(); };
  auto scale = loss_scale::fixed(2.0F);
  CHECK(measures({}));
  CHECK_FALSE(measures({.skip_nonfinite = false}));
  CHECK_FALSE(measures({.clip = {.value = 1.0F}, .skip_nonfinite = false}));
  CHECK(measures({.clip = {.norm = 1.0F}, .skip_nonfinite = false}));
  CHECK(measures({.loss_scale = &scale, .skip_nonfinite = false}));
}

TEST_CASE("gradients are divided by the loss scale, and clipped by their norm after it", "[optimizer]")
{
  auto scale = loss_scale::fixed(4.0F);
  const step_options options{.clip = {.norm = 10.0F}, .loss_scale = &scale};
  const step_rules rules{options};
  CHECK(rules.usual_factor() == 0.25F);
  CHECK(rules.judge(of_norm(20)).norm == 5.0);
  CHECK(rules.judge(of_norm(20)).factor == 0.25F);
  CHECK(rules.judge(of_norm(80)).factor == Catch::Approx(0.125F));
  CHECK(rules.is_usual(of_norm(20)));
  CHECK(rules.is_usual(of_norm(40)));
  CHECK_FALSE(rules.is_usual(of_norm(40.001)));
}

TEST_CASE("a step is skipped for an infinity where it may be, and never clipped by one", "[optimizer]")
{
  const step_options skips{.clip = {.norm = 10.0F}}, goes_on{.clip = {.norm = 10.0F}, .skip_nonfinite = false};
  CHECK(step_rules{skips}.judge(not_finite()).decision == step_decision::skip);
  CHECK(step_rules{goes_on}.judge(not_finite()).decision == step_decision::update);
  CHECK(step_rules{goes_on}.judge(not_finite()).factor == 1.0F);
  CHECK_FALSE(step_rules{skips}.is_usual(not_finite()));
  CHECK(step_rules{skips}.judge(of_norm(1)).decision == step_decision::update);
}

}  // namespace step_rules_test
