// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/step_options.hpp>

#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/sgd.hpp>

#include <support/catch.hpp>
#include <support/count_allocations.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace settings_word_test {

using namespace chunkmem;
using optimizer::setting;
using optimizer::step_options;
using strings = std::vector<std::string>;

/// A kernel that says nothing of its settings.
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
