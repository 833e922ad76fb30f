// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/sgd.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>
#include <support/oracles/plain_updates.hpp>

#include <cmath>
#include <vector>

namespace sgd_test {

namespace cm = chunkmem;
using Catch::Matchers::ContainsSubstring;
using cm::optimizer::instruction_set;
using cm::optimizer::sgd;
using cm::optimizer::sgd_options;

static_assert(cm::optimizer_kernel<sgd>);

namespace {

constexpr std::size_t count = 300;
const sgd_options variants[] = {{},
                                {.momentum = 0.8F, .weight_decay = 0.05F},
                                {.momentum = 0.0F, .weight_decay = 0.05F},
                                {.momentum = 0.5F, .dampening = 0.25F},
                                {.weight_decay = 0.01F, .nesterov = true, .rate_factor = 0.5F}};

void update(const sgd& kernel, std::vector<float>& parameter, std::vector<float>& velocity,
            const std::vector<float>& gradient, std::uint64_t step)
{
  cm::optimizer::update_spans spans{parameter, gradient, {}};
  if (kernel.lists().size() == 2) spans.lists[0] = velocity;
  kernel.update(spans, {0.01F, step});
}

}  // namespace

TEST_CASE("sgd names a list and a master, and no list without momentum", "[optimizer]")
{
  const sgd plain;
  REQUIRE(plain.lists().size() == 2);
  CHECK(plain.lists()[0].name == "sgd/momentum");
  CHECK(plain.lists()[0].type == cm::dtype::float32);
  CHECK(plain.lists()[1].use == cm::list_use::master);
  CHECK(sgd{{.momentum = 0.5F}}.options().momentum == 0.5F);
  CHECK(sgd{{}, {.momentum = cm::dtype::bfloat16, .masters = false}}.lists().size() == 1);
  CHECK(sgd{{}, {.momentum = cm::dtype::bfloat16}}.lists()[0].type == cm::dtype::bfloat16);
  const sgd bare{{.momentum = 0.0F}};
  REQUIRE(bare.lists().size() == 1);
  CHECK(bare.lists()[0].use == cm::list_use::master);
  CHECK(sgd{{.momentum = 0.0F}, {.masters = false}}.lists().empty());
}

TEST_CASE("sgd follows the plain sum of gradients in double precision", "[optimizer]")
{
  for (const sgd_options& options : variants) {
    const sgd kernel{options};
    std::vector<float> parameter = support::tame_numbers(count, 6);
    std::vector<float> velocity(count, 0.0F);
    std::vector<double> exact(parameter.begin(), parameter.end());
    std::vector<double> exact_velocity(count, 0.0);
    for (std::uint64_t step = 1; step <= 40; ++step) {
      const std::vector<float> gradient = support::tame_numbers(count, 500 + step);
      update(kernel, parameter, velocity, gradient, step);
      for (std::size_t index = 0; index < count; ++index) {
        const double slope =
            static_cast<double>(gradient[index]) + static_cast<double>(options.weight_decay) * exact[index];
        exact_velocity[index] = static_cast<double>(options.momentum) * exact_velocity[index] +
                                (1 - static_cast<double>(options.dampening)) * slope;
        const double direction = options.nesterov
                                     ? slope + static_cast<double>(options.momentum) * exact_velocity[index]
                                     : exact_velocity[index];
        exact[index] -= static_cast<double>(0.01F) * static_cast<double>(options.rate_factor) * direction;
      }
    }
    for (std::size_t index = 0; index < count; ++index)
      CHECK(std::abs(static_cast<double>(parameter[index]) - exact[index]) < 5e-6);
  }
}

TEST_CASE("sgd equals the page's formulas bit for bit on every instruction set, whatever the numbers", "[optimizer]")
{
  for (const instruction_set set : cm::optimizer::instruction_sets) {
    if (!cm::optimizer::is_available(set)) continue;
    for (const sgd_options& options : variants) {
      const sgd kernel{options, {.instructions = set}};
      std::vector<float> parameter = support::hostile_numbers(count, 7);
      std::vector<float> velocity = support::hostile_numbers(count, 8);
      if (options.momentum == 0.0F) velocity.assign(count, 0.0F);
      std::vector<float> twin = parameter;
      std::vector<float> twin_velocity = velocity;
      for (std::uint64_t step = 1; step <= 6; ++step) {
        const std::vector<float> gradient = support::hostile_numbers(count, 200 + step);
        update(kernel, parameter, velocity, gradient, step);
        const support::oracle::sgd_step scalar{
            {options.momentum, options.weight_decay, options.dampening, options.nesterov, options.rate_factor}, 0.01F};
        for (std::size_t index = 0; index < count; ++index)
          if (options.momentum > 0.0F)
            scalar.update(twin[index], gradient[index], twin_velocity[index]);
          else
            scalar.update(twin[index], gradient[index]);
        REQUIRE(support::same_bits(parameter, twin));
        REQUIRE(support::same_bits(velocity, twin_velocity));
      }
    }
  }
}

TEST_CASE("a group of sgd has its own options", "[optimizer]")
{
  sgd kernel;
  kernel.group(cm::group_id{1}, {.momentum = 0.0F, .rate_factor = 2.0F});
  std::vector<float> parameter = support::tame_numbers(count, 9);
  std::vector<float> twin = parameter;
  std::vector<float> velocity(count, 0.5F);
  const std::vector<float> gradient = support::tame_numbers(count, 10);
  kernel.update({parameter, gradient, {velocity}}, {0.01F, 1, cm::group_id{1}});
  sgd{{.momentum = 0.0F}}.update({twin, gradient, {}}, {0.02F, 1});
  CHECK(support::same_bits(parameter, twin));
}

TEST_CASE("sgd refuses settings that cannot work", "[optimizer]")
{
  for (const sgd_options options : {sgd_options{.momentum = 1.0F},
                                    {.momentum = -0.5F},
                                    {.momentum = 0.0F, .nesterov = true},
                                    {.dampening = 0.5F, .nesterov = true},
                                    {.weight_decay = std::nanf("")}})
    CHECK_THROWS_AS(sgd{options}, cm::config_error);
  CHECK_THROWS_WITH((sgd{{}, {.momentum = cm::dtype::float16}}), ContainsSubstring("float16"));
  sgd bare{{.momentum = 0.0F}};
  CHECK_THROWS_WITH(bare.group(cm::group_id{1}, {}), ContainsSubstring("momentum"));
  CHECK_NOTHROW(bare.group(cm::group_id{1}, {.momentum = 0.0F, .weight_decay = 0.1F}));
}

}  // namespace sgd_test
