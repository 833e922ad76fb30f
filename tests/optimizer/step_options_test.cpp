// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/step_options.hpp>

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <chunkmem/optimizer/version_1.hpp>

#include <support/catch.hpp>
#include <support/count_allocations.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace clipping_test {

using namespace chunkmem;
using namespace chunkmem::optimizer;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

static_assert(clipping{}.norm == 0.0F && clipping{}.value == 0.0F && clipping{}.order == norm_order::l2);
static_assert(clip_factor(0.0, 1.0F) == 1.0F);

}  // namespace

TEST_CASE("the three norms of a measured gradient", "[optimizer]")
{
  const std::vector<float> values = {3.0F, -4.0F, 12.0F};
  const gradient_measure found = measure(std::span<const float>{values});
  CHECK(norm_of(found, norm_order::l1) == 19.0);
  CHECK(norm_of(found, norm_order::l2) == 13.0);
  CHECK(norm_of(found, norm_order::linf) == 12.0);
  for (const norm_order order : {norm_order::l1, norm_order::l2, norm_order::linf}) CHECK(norm_of({}, order) == 0.0);
}

TEST_CASE("a gradient with an infinity has an infinite norm of each order, and one with a NaN none", "[optimizer]")
{
  constexpr float infinite = std::numeric_limits<float>::infinity();
  for (const norm_order order : {norm_order::l1, norm_order::l2, norm_order::linf}) {
    for (const std::vector<float>& values : {std::vector{1.0F, infinite}, std::vector{-infinite, infinite}})
      CHECK(norm_of(measure(std::span{values}), order) == infinite);
    for (const std::vector<float>& values : {std::vector{1.0F, not_a_number}, std::vector{-infinite, -not_a_number}})
      CHECK(std::isnan(norm_of(measure(std::span{values}), order)));
  }
}

TEST_CASE("a norm that is infinite clips to nothing, and one that is NaN to NaN, as in PyTorch", "[optimizer]")
{
  constexpr double infinite = std::numeric_limits<double>::infinity();
  CHECK(clip_factor(infinite, 1.0F) == 0.0F);
  CHECK(std::isnan(clip_factor(std::numeric_limits<double>::quiet_NaN(), 1.0F)));
  CHECK(clip_factor(1e30, std::numeric_limits<float>::infinity()) == 1.0F);
  CHECK(std::isnan(clip_factor(infinite, std::numeric_limits<float>::infinity())));  // inf / inf
}

TEST_CASE("the clip factor is one below the limit and brings larger norms to just below it", "[optimizer]")
{
  CHECK(clip_factor(0.5, 1.0F) == 1.0F);
  CHECK(clip_factor(1.0 - 1e-6, 1.0F) == 1.0F);
  CHECK(clip_factor(1.0, 1.0F) == static_cast<float>(1.0 / (1.0 + 1e-6)));
  CHECK(clip_factor(4.0, 1.0F) == static_cast<float>(1.0 / (4.0 + 1e-6)));
  CHECK(clip_factor(1e300, 1.0F) == 0.0F);
  for (const double norm : {1.0, 1.5, 7.0, 1234.5, 1e9, 1e30})
    for (const float limit : {1e-3F, 1.0F, 10.0F}) {
      const double clipped = norm * static_cast<double>(clip_factor(norm, limit));
      CHECK(clipped <= static_cast<double>(limit) * (1 + 1e-7));
      if (norm > static_cast<double>(limit)) CHECK(clipped == Catch::Approx(limit).epsilon(2e-6));
    }
}

TEST_CASE("limits that are negative or no number are refused", "[optimizer]")
{
  CHECK_NOTHROW(check(clipping{}));
  CHECK_NOTHROW(
      check(clipping{.norm = 1.0F, .order = norm_order::l1, .value = std::numeric_limits<float>::infinity()}));
  for (const float wrong : {-1.0F, not_a_number}) {
    CHECK_THROWS_AS(check(clipping{.norm = wrong}), usage_error);
    CHECK_THROWS_AS(check(clipping{.value = wrong}), usage_error);
  }
}

}  // namespace clipping_test

namespace learning_rates_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using optimizer::learning_rates;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();
constexpr float no_number = std::numeric_limits<float>::quiet_NaN();

static_assert(!std::is_copy_constructible_v<learning_rates> && !std::is_move_constructible_v<learning_rates> &&
              !std::is_copy_assignable_v<learning_rates>);

restart_state state_of(learning_rates& rates)
{
  restart_state found;
  rates.for_each_state([&](const restart_state& it) { found = it; });
  return found;
}

}  // namespace

TEST_CASE("learning rates are finite and not negative", "[optimizer]")
{
  for (const float right : {0.0F, -0.0F, 1e-45F, 1.0F, optimizer::largest_learning_rate})
    CHECK(optimizer::is_learning_rate(right));
  for (const float wrong : {-1e-45F, -1.0F, infinite, -infinite, no_number, 0x1.000002p100F}) {
    CHECK_FALSE(optimizer::is_learning_rate(wrong));
    CHECK_THROWS_AS(optimizer::check_learning_rate(wrong), usage_error);
    CHECK_THROWS_AS((learning_rates{0.1F, wrong}), usage_error);
  }
  CHECK_THROWS_AS(learning_rates{std::span<const float>{}}, usage_error);
  CHECK_THROWS_WITH(optimizer::check_learning_rate(-0.5F),
                    ContainsSubstring("a learning rate of -0.5 (give a finite one, 0 or above)"));
  CHECK_THROWS_WITH(optimizer::check_learning_rate(1e35F),
                    ContainsSubstring("a learning rate of 1e+35 (give one of at most 1.2676506e+30)"));
}

TEST_CASE("learning rates are set by group, and a wrong one changes nothing", "[optimizer]")
{
  learning_rates rates{0.5F, 0.25F};
  const std::span<const float> seen = rates;
  rates.set(group_id{1}, 0.125F);
  CHECK((seen.size() == 2 && seen[0] == 0.5F && seen[1] == 0.125F && rates.of(group_id{1}) == 0.125F));
  CHECK_THROWS_AS(rates.set(group_id{1}, no_number), usage_error);
  CHECK_THROWS_AS(rates.set(group_id{2}, 0.5F), usage_error);
  CHECK_THROWS_AS(rates.of(group_id{2}), usage_error);
  CHECK(seen[1] == 0.125F);
  const float by_group[] = {1.0F, 2.0F, 3.0F};
  CHECK(learning_rates{std::span<const float>{by_group}}.of(group_id{2}) == 3.0F);
}

TEST_CASE("learning rates survive as bytes, and those that no step takes are refused", "[optimizer]")
{
  learning_rates rates{0.5F, 0.25F};
  const restart_state state = state_of(rates);
  CHECK(state.name == "learning rates");
  float loaded[] = {0.1F, 0.2F};
  state.check(std::as_bytes(std::span{loaded}));
  std::memcpy(state.content.data(), loaded, sizeof loaded);
  CHECK(rates.of(group_id{1}) == 0.2F);
  loaded[1] = infinite;
  CHECK_THROWS_WITH(state.check(std::as_bytes(std::span{loaded})),
                    ContainsSubstring("a checkpoint with a learning rate of inf"));
  CHECK_THROWS_AS(state.check(std::as_bytes(std::span{loaded})), config_error);
}

}  // namespace learning_rates_test

namespace loss_scale_test {

using namespace chunkmem;
using optimizer::loss_scale;
using optimizer::loss_scale_options;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

static_assert(std::is_nothrow_copy_constructible_v<loss_scale> && std::is_nothrow_copy_assignable_v<loss_scale>);

void update(loss_scale& scale, int times)
{
  for (int time = 0; time < times; ++time) scale.updated();
}

}  // namespace

TEST_CASE("a dynamic scale begins, grows and backs off as mixed-precision training is used to", "[optimizer]")
{
  loss_scale scale = loss_scale::dynamic();
  CHECK(scale.is_dynamic());
  CHECK(scale.scale() == 65536.0F);
  update(scale, 1999);
  CHECK(scale.scale() == 65536.0F);
  CHECK(scale.updates_in_a_row() == 1999);
  scale.updated();
  CHECK(scale.scale() == 131072.0F);
  CHECK(scale.updates_in_a_row() == 0);
  scale.skipped();
  CHECK(scale.scale() == 65536.0F);
  CHECK(scale.updates() == 2000);
  CHECK(scale.skips() == 1);
}

TEST_CASE("only updates in a row count, and a scale that is skipped begins to count anew", "[optimizer]")
{
  loss_scale scale = loss_scale::dynamic({.initial = 8.0F, .window = 3});
  update(scale, 2);
  scale.skipped();
  CHECK(scale.scale() == 4.0F);
  update(scale, 2);
  CHECK(scale.scale() == 4.0F);
  scale.updated();
  CHECK(scale.scale() == 8.0F);
}

TEST_CASE("a scale stays between its bounds", "[optimizer]")
{
  loss_scale scale = loss_scale::dynamic(
      {.initial = 3.0F, .window = 1, .growth = 4.0F, .backoff = 0.25F, .smallest = 2.0F, .largest = 40.0F});
  scale.skipped();
  CHECK(scale.scale() == 2.0F);
  for (const float expected : {8.0F, 32.0F, 40.0F, 40.0F}) {
    scale.updated();
    CHECK(scale.scale() == expected);
  }
  for (const float expected : {10.0F, 2.5F, 2.0F, 2.0F}) {
    scale.skipped();
    CHECK(scale.scale() == expected);
  }
  loss_scale high = loss_scale::dynamic(
      {.initial = 1e38F, .window = 1, .growth = 10.0F, .largest = std::numeric_limits<float>::max()});
  high.updated();
  CHECK(high.scale() == std::numeric_limits<float>::max());
}

TEST_CASE("a fixed scale stays and counts", "[optimizer]")
{
  loss_scale scale = loss_scale::fixed(1024.0F);
  CHECK(!scale.is_dynamic());
  update(scale, 5000);
  scale.skipped();
  CHECK(scale.scale() == 1024.0F);
  CHECK(scale.updates() == 5000);
  CHECK(scale.skips() == 1);
  CHECK(scale.updates_in_a_row() == 0);
}

TEST_CASE("the bytes of a scale are all that changes: another one goes on from them", "[optimizer]")
{
  const loss_scale_options options{.initial = 64.0F, .window = 5};
  loss_scale first = loss_scale::dynamic(options);
  update(first, 7);
  first.skipped();
  update(first, 4);
  loss_scale second = loss_scale::dynamic(options);
  REQUIRE(first.bytes().size() == second.bytes().size());
  std::memcpy(second.bytes().data(), first.bytes().data(), first.bytes().size());
  for (loss_scale* scale : {&first, &second}) {
    CHECK(scale->scale() == 64.0F);
    scale->updated();
    CHECK(scale->scale() == 128.0F);
    CHECK(scale->updates() == 12);
    CHECK(scale->skips() == 1);
  }
}

TEST_CASE("a loss scale says by itself what must survive, and which loaded bytes cannot be right", "[optimizer]")
{
  loss_scale scale = loss_scale::dynamic();
  int states = 0;
  scale.for_each_state([&](const restart_state& it) {
    ++states;
    CHECK(it.name == "loss scale");
    CHECK((it.content.data() == scale.bytes().data() && it.content.size() == scale.bytes().size()));
    loss_scale loaded = loss_scale::fixed(4.0F);
    it.check(loaded.bytes());
    for (const float wrong : {0.0F, -2.0F, infinity, not_a_number, 2.9e-39F, 1e-38F}) {
      std::memcpy(loaded.bytes().data() + 16, &wrong, sizeof wrong);
      CHECK_THROWS_AS(it.check(loaded.bytes()), config_error);
    }
  });
  CHECK(states == 1);
}

TEST_CASE("a scale that is skipped again and again at its smallest ends in an error", "[optimizer]")
{
  loss_scale scale = loss_scale::dynamic({.initial = 4.0F, .smallest = 2.0F, .most_skips = 3});
  const auto skips = [&](int count) {
    for (; count > 0; --count) scale.check_usable(), scale.skipped();
  };
  skips(3);  // to 2, and twice at 2
  scale.check_usable();
  scale.updated();
  skips(2);
  std::vector<std::byte> saved{scale.bytes().begin(), scale.bytes().end()};
  skips(1);
  CHECK_THROWS_WITH(scale.check_usable(),
                    Catch::Matchers::ContainsSubstring("the last 3 steps were skipped at the smallest loss scale, 2"));
  std::copy(saved.begin(), saved.end(), scale.bytes().begin());  // a load of another generation
  skips(3);
  CHECK_THROWS_AS(scale.check_usable(), usage_error);
  loss_scale fixed = loss_scale::fixed(8.0F);
  for (int step = 0; step < 100; ++step) fixed.check_usable(), fixed.skipped();
  CHECK_THROWS_AS(fixed.check_usable(), usage_error);
  fixed.check_usable();  // it was said: a trainer may go on, also with a checkpoint of these counts
  loss_scale patient = loss_scale::dynamic({.initial = 1.0F, .most_skips = 0});
  for (int step = 0; step < 1000; ++step) patient.check_usable(), patient.skipped();
}

TEST_CASE("settings that cannot work are refused", "[optimizer]")
{
  for (const float wrong : {0.0F, -1.0F, not_a_number, infinity, 2.9e-39F, 1e-45F, 1e-38F})
    CHECK_THROWS_AS(loss_scale::fixed(wrong), usage_error);
  CHECK_THROWS_WITH(loss_scale::fixed(2.9e-39F),
                    Catch::Matchers::ContainsSubstring("a loss scale of 2.9e-39 (give one from 1.1754944e-38 to"));
  CHECK(std::isfinite(1.0F / loss_scale::fixed(0x1p-126F).scale()));
  const std::vector<loss_scale_options> all = {
      {.initial = 0.5F},     {.initial = not_a_number}, {.initial = 3e7F},    {.window = 0},
      {.growth = 1.0F},      {.growth = not_a_number},  {.growth = infinity}, {.backoff = 1.0F},
      {.backoff = 0.0F},     {.backoff = not_a_number}, {.smallest = 0.0F},   {.smallest = not_a_number},
      {.largest = infinity}, {.largest = not_a_number}, {.smallest = 1e6F},   {.smallest = 8.0F, .largest = 4.0F},
      {.smallest = 2.9e-39F}};
  for (const loss_scale_options& wrong : all) CHECK_THROWS_AS(loss_scale::dynamic(wrong), usage_error);
}

}  // namespace loss_scale_test

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

namespace settings_word_test {

using namespace chunkmem;
using optimizer::setting;
using optimizer::step_options;
using strings = std::vector<std::string>;

/// A kernel without a description of its settings.
struct silent {
  static constexpr std::string_view name = "silent";
  std::span<const list_spec> all{};
  float sharpness = 1;
  [[nodiscard]] std::span<const list_spec> lists() const noexcept { return all; }
  void update(const optimizer::update_spans&, const optimizer::step_settings&) const noexcept {}
  optimizer::step_progress progress{};
};
struct telling : silent {
  static constexpr std::string_view name = "telling";
  template <class Visit>
  void for_each_setting(Visit visit) const
  {
    visit(setting{"sharpness", sharpness});
    visit(setting{"rounds", -3});
  }
};
static_assert(optimizer_kernel<silent> && !names_settings<silent>);
static_assert(optimizer_kernel<telling> && names_settings<telling>);
static_assert(names_settings<optimizer::adam> && names_settings<optimizer::sgd>);

template <class Kernel>
strings texts(const step_options& options, Kernel& kernel)
{
  strings all;
  optimizer::for_each_setting(options, kernel, [&](const setting& it) { all.push_back(it.text()); });
  return all;
}

/// What the second of two steps has and the first one has not. Their words differ where something does.
template <class Left, class Right>
strings differences(const step_options& left, Left one, const step_options& right, Right two)
{
  const strings before = texts(left, one);
  strings found;
  for (const std::string& it : texts(right, two))
    if (std::ranges::find(before, it) == before.end()) found.push_back(it);
  CHECK((optimizer::settings_word(left, one) == optimizer::settings_word(right, two)) == found.empty());
  return found;
}
template <class Options>
strings differences(const Options& options)
{
  using kernel = std::conditional_t<std::is_same_v<Options, optimizer::adam_options>, optimizer::adam, optimizer::sgd>;
  return differences({}, kernel{}, {}, kernel{options});
}
strings differences_of(const step_options& options)
{
  return differences({}, optimizer::sgd{}, options, optimizer::sgd{});
}

TEST_CASE("each option of a step, and no other, makes another word, and is named with its value", "[optimizer]")
{
  const std::vector<float> rates{0.5F, 0.25F};
  CHECK(differences_of({}).empty());
  using enum optimizer::numerics;
  CHECK(differences({}, optimizer::basic_adam<version_1>{}, {}, optimizer::adam{}) == strings{"numerics = 3"});
  CHECK(differences({}, optimizer::sgd{}, {}, optimizer::basic_sgd<version_2>{}) == strings{"numerics = 2"});
  CHECK(differences({}, optimizer::sgd{}, {}, optimizer::basic_sgd<version_1>{}) == strings{"numerics = 1"});
  CHECK(differences_of({.learning_rate = 0.5F}) == strings{"learning rate = 0.5"});
  CHECK(differences_of({.group_rates = rates}) ==
        strings{"learning rate of group 0 = 0.5", "learning rate of group 1 = 0.25"});
  CHECK(differences_of({.clip = {.norm = 2}}) == strings{"clip.norm = 2"});
  CHECK(differences_of({.clip = {.order = optimizer::norm_order::linf}}) == strings{"clip.order = linf"});
  CHECK(differences_of({.clip = {.value = -0.0F}}) == strings{"clip.value = -0"});
  CHECK(differences_of({.skip_nonfinite = false}) == strings{"skip_nonfinite = false"});
  CHECK(differences_of({.seed = 7}) == strings{"seed = 7"});
}

TEST_CASE("so does each setting of a loss scale, and its value", "[optimizer]")
{
  auto fixed = optimizer::loss_scale::fixed(4);
  auto other = optimizer::loss_scale::fixed(8);
  auto dynamic = optimizer::loss_scale::dynamic();
  CHECK(differences_of({.loss_scale = &fixed}) == strings{"loss scale = fixed", "value of the loss scale = 4"});
  const auto against = [](optimizer::loss_scale& left, optimizer::loss_scale& right) {
    return differences({.loss_scale = &left}, optimizer::sgd{}, {.loss_scale = &right}, optimizer::sgd{});
  };
  CHECK(against(fixed, other) == strings{"value of the loss scale = 8"});
  const auto of = [&](const optimizer::loss_scale_options& options) {
    auto made = optimizer::loss_scale::dynamic(options);
    return against(dynamic, made);
  };
  CHECK(of({}).empty());
  CHECK(of({.window = 9}) == strings{"window of the loss scale = 9"});
  CHECK(of({.growth = 4}) == strings{"growth of the loss scale = 4"});
  CHECK(of({.backoff = 0.25F}) == strings{"backoff of the loss scale = 0.25"});
  CHECK(of({.smallest = 2}) == strings{"smallest loss scale = 2"});
  CHECK(of({.largest = 65536}) == strings{"largest loss scale = 65536"});
  auto older = optimizer::loss_scale::dynamic();
  older.updated();
  CHECK(against(dynamic, older) == strings{"updates in a row of the loss scale = 1"});
}

TEST_CASE("so does each option of the kernels of this library, and each list", "[optimizer]")
{
  using adam = optimizer::adam_options;
  using sgd = optimizer::sgd_options;
  CHECK(differences(adam{}).empty());
  CHECK(differences(adam{.beta1 = 0.5F}) == strings{"beta1 = 0.5"});
  CHECK(differences(adam{.beta2 = 0.5F}) == strings{"beta2 = 0.5"});
  CHECK(differences(adam{.epsilon = 0.5F}) == strings{"epsilon = 0.5"});
  CHECK(differences(adam{.weight_decay = 0.5F}) == strings{"weight_decay = 0.5"});
  CHECK(differences(adam{.decoupled = false}) == strings{"decoupled = false"});
  CHECK(differences(adam{.rate_factor = 0.5F}) == strings{"rate_factor = 0.5"});
  CHECK(differences(sgd{}).empty());
  CHECK(differences(sgd{.momentum = 0.5F}) == strings{"momentum = 0.5"});
  CHECK(differences(sgd{.weight_decay = 0.5F}) == strings{"weight_decay = 0.5"});
  CHECK(differences(sgd{.dampening = 0.5F}) == strings{"dampening = 0.5"});
  CHECK(differences(sgd{.nesterov = true}) == strings{"nesterov = true"});
  CHECK(differences(sgd{.rate_factor = 0.5F}) == strings{"rate_factor = 0.5"});
  CHECK(differences({}, optimizer::adam{}, {}, optimizer::adam{{}, {.moments = dtype::bfloat16}}) ==
        strings{"adam/momentum = bfloat16", "adam/variance = bfloat16"});
  CHECK(differences({}, optimizer::sgd{{}, {.masters = false}}, {}, optimizer::sgd{}).size() == 1);
}

TEST_CASE("options of groups count by what they mean, whatever the order in which they were given", "[optimizer]")
{
  optimizer::adam one, two;
  one.group(group_id{1}, {.beta2 = 0.5F}).group(group_id{4}, {});
  two.group(group_id{4}, {.beta1 = 0.25F}).group(group_id{1}, {.beta2 = 0.5F}).group(group_id{4}, {});
  CHECK(differences({}, one, {}, two).empty());
  two.group(group_id{4}, {.beta1 = 0.25F});
  CHECK(differences({}, one, {}, two) == strings{"beta1 of group 4 = 0.25"});
}

TEST_CASE("a kernel of one's own counts by its name and lists, and by the settings that it names", "[optimizer]")
{
  CHECK(differences({}, silent{}, {}, telling{}) ==
        strings{"optimizer kernel = telling", "sharpness = 1", "rounds = -3"});
  CHECK(differences({}, silent{}, {}, silent{.sharpness = 2}).empty());
  telling sharp{{.sharpness = std::numeric_limits<float>::quiet_NaN()}};
  CHECK(differences({}, telling{}, {}, sharp).size() == 1);
  CHECK(differences({}, silent{}, {}, silent{.all = {&master_list, 1}}).size() == 1);
}

TEST_CASE("the word of a step is made without an allocation", "[optimizer]")
{
  optimizer::adam kernel;
  kernel.group(group_id{1}, {.beta1 = 0.5F});
  auto scale = optimizer::loss_scale::dynamic();
  const step_options options{.loss_scale = &scale};
  const std::uint64_t first = optimizer::settings_word(options, kernel);
  const auto before = support::allocations_so_far();
  const bool same = optimizer::settings_word(options, kernel) == first;
  if (support::counts_allocations) CHECK((support::allocations_so_far() - before).all() == 0);
  CHECK(same);
}

}  // namespace settings_word_test
