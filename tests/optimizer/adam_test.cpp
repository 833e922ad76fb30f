// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/version_1.hpp>

#include <support/catch.hpp>
#include <support/hostile.hpp>
#include <support/oracles/plain_updates.hpp>

#include <cmath>
#include <limits>
#include <vector>

namespace adam_test {

namespace cm = chunkmem;
using Catch::Matchers::ContainsSubstring;
using cm::optimizer::adam;
using cm::optimizer::adam_options;
using cm::optimizer::instruction_set;

namespace {

constexpr std::size_t count = 300;

struct state {
  std::vector<float> parameter = support::tame_numbers(count, 3);
  std::vector<float> momentum = std::vector<float>(count, 0.0F);
  std::vector<float> variance = std::vector<float>(count, 0.0F);

  friend bool same(const state& left, const state& right)
  {
    return support::same_bits(left.parameter, right.parameter) && support::same_bits(left.momentum, right.momentum) &&
           support::same_bits(left.variance, right.variance);
  }
};

void update(const adam& kernel, state& it, const std::vector<float>& gradient,
            const cm::optimizer::step_settings& settings, std::size_t begin = 0, std::size_t end = count)
{
  const auto cut = [&](std::vector<float>& all) { return std::span{all}.subspan(begin, end - begin); };
  kernel.update(
      {cut(it.parameter), std::span{gradient}.subspan(begin, end - begin), {cut(it.momentum), cut(it.variance)}},
      settings);
}

/// Beta to the power of a step, by plain multiplication in extended precision.
double power(float beta, std::uint64_t step)
{
  long double result = 1.0L;
  for (std::uint64_t index = 0; index < step; ++index) result *= static_cast<long double>(beta);
  return static_cast<double>(result);
}

/// The paper, in double precision; L2 where the decay is coupled.
struct exact_adam {
  explicit exact_adam(const state& begin, const adam_options& options)
      : o{options},
        parameter(begin.parameter.begin(), begin.parameter.end()),
        momentum(count, 0.0),
        variance(count, 0.0)
  {
  }
  void update(const std::vector<float>& gradient, double rate, std::uint64_t step)
  {
    const double beta1 = static_cast<double>(o.beta1);
    const double beta2 = static_cast<double>(o.beta2);
    const double decay = static_cast<double>(o.weight_decay);
    for (std::size_t index = 0; index < count; ++index) {
      const double slope = static_cast<double>(gradient[index]) + (o.decoupled ? 0.0 : decay * parameter[index]);
      momentum[index] = beta1 * momentum[index] + (1 - beta1) * slope;
      variance[index] = beta2 * variance[index] + (1 - beta2) * slope * slope;
      const double first = momentum[index] / (1 - power(o.beta1, step));
      const double second = variance[index] / (1 - power(o.beta2, step));
      const double kept = o.decoupled ? decay * parameter[index] : 0.0;
      parameter[index] -= rate * (first / (std::sqrt(second) + static_cast<double>(o.epsilon)) + kept);
    }
  }
  adam_options o;
  std::vector<double> parameter, momentum, variance;
};

support::oracle::adam_settings settings_of(const adam_options& it)
{
  return {it.beta1, it.beta2, it.epsilon, it.weight_decay, it.decoupled, it.rate_factor};
}

}  // namespace

static_assert(cm::optimizer_kernel<adam>);

TEST_CASE("adam names two lists and a master, and says how moments are stored", "[optimizer]")
{
  const adam plain;
  REQUIRE(plain.lists().size() == 3);
  CHECK(plain.lists()[0].name == "adam/momentum");
  CHECK(plain.lists()[1].name == "adam/variance");
  CHECK(plain.lists()[2].name == cm::master_list.name);
  CHECK(plain.lists()[2].use == cm::list_use::master);
  for (const cm::list_spec& spec : plain.lists()) CHECK(spec.type == cm::dtype::float32);

  const adam small{{}, {.moments = cm::dtype::bfloat16, .masters = false}};
  REQUIRE(small.lists().size() == 2);
  for (const cm::list_spec& spec : small.lists()) {
    CHECK(spec.type == cm::dtype::bfloat16);
    CHECK(spec.use == cm::list_use::state);
  }
  CHECK(adam{{.beta1 = 0.5F}}.options().beta1 == 0.5F);
}

TEST_CASE("adam follows the papers in double precision, with either kind of decay", "[optimizer]")
{
  for (const adam_options options : {adam_options{},
                                     {.weight_decay = 0.1F},
                                     {.weight_decay = 0.1F, .decoupled = false},
                                     {.beta1 = 0.0F, .beta2 = 0.5F, .epsilon = 1e-3F, .rate_factor = 0.25F}}) {
    const adam kernel{options};
    state it;
    exact_adam exact{it, options};
    for (std::uint64_t step = 1; step <= 50; ++step) {
      const std::vector<float> gradient = support::tame_numbers(count, 1000 + step);
      update(kernel, it, gradient, {0.01F, step});
      exact.update(gradient, static_cast<double>(0.01F) * static_cast<double>(options.rate_factor), step);
    }
    for (std::size_t index = 0; index < count; ++index) {
      // 50 steps, each with a handful of roundings (2^-24 relative) of values below 2
      CHECK(std::abs(static_cast<double>(it.parameter[index]) - exact.parameter[index]) < 2e-5);
      CHECK(std::abs(static_cast<double>(it.momentum[index]) - exact.momentum[index]) < 2e-6);
      CHECK(std::abs(static_cast<double>(it.variance[index]) - exact.variance[index]) <
            2e-6 * (exact.variance[index] + 0.001));
    }
  }
}

TEST_CASE("adam equals the page's formulas bit for bit on every instruction set, whatever the numbers", "[optimizer]")
{
  for (const instruction_set set : cm::optimizer::instruction_sets) {
    if (!cm::optimizer::is_available(set)) continue;
    for (const bool is_decoupled : {true, false}) {
      INFO(name_of(set) << (is_decoupled ? " AdamW" : " L2"));
      const adam_options options{.weight_decay = 0.01F, .decoupled = is_decoupled, .rate_factor = 0.7F};
      const adam kernel{options, {.instructions = set}};
      state it;
      it.parameter = support::hostile_numbers(count, 4);
      it.momentum = support::hostile_numbers(count, 5);
      it.variance = support::hostile_numbers(count, 6);
      state twin = it;
      for (std::uint64_t step = 1; step <= 6; ++step) {
        const std::vector<float> gradient = support::hostile_numbers(count, 100 + step);
        update(kernel, it, gradient, {0.02F, step});
        const support::oracle::adam_step scalar{settings_of(options), 0.02F, step};
        for (std::size_t index = 0; index < count; ++index)
          scalar.update(twin.parameter[index], gradient[index], twin.momentum[index], twin.variance[index]);
        REQUIRE(same(it, twin));
      }
    }
  }
}

TEST_CASE("adam gives the same bits however a parameter is cut", "[optimizer]")
{
  const adam kernel;
  state whole;
  state cut = whole;
  for (std::uint64_t step = 1; step <= 5; ++step) {
    const std::vector<float> gradient = support::tame_numbers(count, step);
    update(kernel, whole, gradient, {0.01F, step});
    for (std::size_t begin = 0, length = 1; begin < count; begin += length, length = length * 2 + 1)
      update(kernel, cut, gradient, {0.01F, step}, begin, std::min(count, begin + length));
  }
  CHECK(same(whole, cut));
}

TEST_CASE("adam stores no denormals, and takes tiny gradients for zeros", "[optimizer]")
{
  const adam kernel;
  state it;
  for (std::uint64_t step = 1; step <= 40; ++step) {
    std::vector<float> gradient(count);
    for (std::size_t index = 0; index < count; ++index)
      gradient[index] = std::ldexp(1.0F, -static_cast<int>(index % 126));
    if (step > 20) gradient.assign(count, 0.0F);
    update(kernel, it, gradient, {0.01F, step});
    for (const std::vector<float>* all : {&it.parameter, &it.momentum, &it.variance})
      for (const float value : *all) REQUIRE((value == 0.0F || std::isnormal(value)));
  }
  CHECK(it.variance[57] != 0.0F);  // 0.001 * 2^-114 is a normal number
  CHECK(it.variance[58] == 0.0F);
  CHECK(it.momentum[57] != 0.0F);
  CHECK(it.momentum[58] == 0.0F);
  CHECK(it.parameter[58] == state{}.parameter[58]);
}

TEST_CASE("a group of adam has its own options", "[optimizer]")
{
  adam kernel{{.weight_decay = 0.1F}};
  kernel.group(cm::group_id{2}, {.rate_factor = 0.5F}).group(cm::group_id{5}, {.beta1 = 0.0F});
  CHECK(kernel.options(cm::group_id{2}).rate_factor == 0.5F);
  CHECK(kernel.options(cm::group_id{1}).weight_decay == 0.1F);
  const std::vector<float> gradient = support::tame_numbers(count, 9);
  state of_group;
  state of_twin;
  update(kernel, of_group, gradient, {0.5F, 1, cm::group_id{2}});
  update(adam{}, of_twin, gradient, {0.25F, 1});
  CHECK(same(of_group, of_twin));
}

TEST_CASE("a weight decay that is a denormal counts in version 1 of the numerics alone", "[optimizer]")
{
  const auto momentum_of = [](const auto& kernel) {
    float parameter[] = {0x1p60F}, momentum[] = {0.0F}, variance[] = {0.0F};
    const float gradient[] = {0.0F};
    kernel.update({parameter, gradient, {momentum, variance}}, {.learning_rate = 1e-3F, .number = 1});
    return momentum[0];
  };
  const adam_options options{.beta1 = 0.5F, .weight_decay = 0x1p-130F, .decoupled = false};
  CHECK(momentum_of(cm::optimizer::basic_adam<cm::optimizer::numerics::version_1>{options}) == 0x1p-71F);
  CHECK(momentum_of(adam{options}) == 0.0F);
}

TEST_CASE("adam refuses settings that cannot work", "[optimizer]")
{
  for (const adam_options options : {adam_options{.beta1 = 1.0F},
                                     {.beta1 = -0.1F},
                                     {.beta2 = 1.5F},
                                     {.epsilon = 0.0F},
                                     {.epsilon = 1e-40F},
                                     {.weight_decay = std::numeric_limits<float>::infinity()},
                                     {.weight_decay = -0.1F},
                                     {.rate_factor = -1.0F},
                                     {.beta1 = std::numeric_limits<float>::quiet_NaN()},
                                     {.rate_factor = std::nanf("")}}) {
    CHECK_THROWS_AS(adam{options}, cm::config_error);
    adam kernel{{.weight_decay = 0.5F}};
    CHECK_THROWS_AS(kernel.group(cm::group_id{1}, options), cm::config_error);
    CHECK(kernel.options(cm::group_id{1}).weight_decay == 0.5F);
  }
  CHECK_THROWS_WITH((adam{{.beta2 = 1.5F}}),
                    ContainsSubstring("beta2 of Adam is 1.5 (give one in [0, 1), such as 0.999)"));
  CHECK_THROWS_WITH((adam{{.weight_decay = -0.25F}}), ContainsSubstring("weight decay of Adam is -0.25 ("));
  CHECK_THROWS_WITH((adam{{}, {.moments = cm::dtype::float16}}),
                    ContainsSubstring("float16") && ContainsSubstring("bfloat16"));
  if (!cm::optimizer::is_available(instruction_set::avx512))
    CHECK_THROWS_AS((adam{{}, {.instructions = instruction_set::avx512}}), cm::config_error);
}

}  // namespace adam_test
