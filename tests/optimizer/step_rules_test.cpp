// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/step_options.hpp>

#include <support/catch.hpp>

#include <cmath>
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

TEST_CASE("a step is skipped for an infinity where it may be, else clipped by it to nothing", "[optimizer]")
{
  const step_options skips{.clip = {.norm = 10.0F}}, goes_on{.clip = {.norm = 10.0F}, .skip_nonfinite = false};
  CHECK(step_rules{skips}.judge(not_finite()).decision == step_decision::skip);
  CHECK(step_rules{goes_on}.judge(not_finite()).decision == step_decision::update);
  CHECK(step_rules{goes_on}.judge(not_finite()).factor == 0.0F);
  cm::gradient_measure no_number = not_finite();
  no_number.largest = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(step_rules{goes_on}.judge(no_number).factor));
  CHECK(std::isnan(step_rules{goes_on}.judge(no_number).norm));
  CHECK_FALSE(step_rules{skips}.is_usual(not_finite()));
  CHECK(step_rules{skips}.judge(of_norm(1)).decision == step_decision::update);
}

TEST_CASE("a gradient that overflows when it is unscaled is one that is not finite", "[optimizer]")
{
  auto scale = loss_scale::fixed(0x1p-10F);
  cm::gradient_measure all;
  all.squares = 9e76, all.magnitudes = 3e38, all.largest = 3e38F;
  const step_options options{.loss_scale = &scale};
  CHECK(step_rules{options}.judge(all).decision == step_decision::skip);
  CHECK_FALSE(step_rules{options}.is_usual(all));
  const step_options clips{.clip = {.norm = 1.0F}, .loss_scale = &scale};
  CHECK(step_rules{clips}.judge(all).decision == step_decision::update);  // what is used is finite
  CHECK_FALSE(step_rules{clips}.is_usual(all));
  all.largest = 0x1p117F;
  CHECK(step_rules{options}.judge(all).decision == step_decision::update);
  CHECK(step_rules{options}.is_usual(all));
}

}  // namespace step_rules_test
