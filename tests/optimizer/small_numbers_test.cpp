// SPDX-License-Identifier: Apache-2.0
// Versions 2 and 3 of the numerics at the borders of the denormals: with flush mode and without, on each set.
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/element_pass.hpp>
#include <chunkmem/optimizer/element_streams.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/sgd.hpp>
#include <support/catch.hpp>
#include <support/hostile.hpp>
#include <support/oracles/plain_updates.hpp>
#include <support/sanitized.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

namespace small_numbers_test {

namespace cm = chunkmem;
namespace oracle = support::oracle;
using namespace cm::optimizer;
using environment = cm::float_environment::settings;
using oracle::quotient;

namespace {

/// One element. SGD has no variance.
struct element {
  float parameter, gradient, momentum, variance;
};
using elements = std::vector<element>;

std::array<std::uint32_t, 3> bits_of(const element& it)
{
  return {std::bit_cast<std::uint32_t>(it.parameter), std::bit_cast<std::uint32_t>(it.momentum),
          std::bit_cast<std::uint32_t>(it.variance)};
}
void expect_same(const elements& begin, const elements& seen, const elements& expected)
{
  for (std::size_t index = 0; index < begin.size(); ++index)
    if (bits_of(seen[index]) != bits_of(expected[index])) {
      const auto text = [](const element& it) {
        char line[80];
        std::snprintf(line, sizeof line, "%a %a %a %a", static_cast<double>(it.parameter),
                      static_cast<double>(it.gradient), static_cast<double>(it.momentum),
                      static_cast<double>(it.variance));
        return std::string{line};
      };
      INFO("element " << index << ", parameter, gradient, momentum, variance: " << text(begin[index]));
      INFO(text(seen[index]) << ", and not " << text(expected[index]));
      FAIL("other bits");
    }
}

/// `one(parameter, slope, states...)` for each element. Not inlined: it runs in the mode of its caller.
template <std::size_t States, class One>
[[gnu::noinline]] void for_each_element(elements& all, const One& one)
{
  for (element& it : all)
    if constexpr (States == 2)
      one(it.parameter, it.gradient, it.momentum, it.variance);
    else if constexpr (States == 1)
      one(it.parameter, it.gradient, it.momentum);
    else
      one(it.parameter, it.gradient);
}

/// By the kernel's loop for vectors.
template <class Kernel>
void update(const Kernel& kernel, elements& all, const gradient_transform& how, const step_settings& settings,
            const environment& mode)
{
  std::vector<float> lists[4];
  for (const element& it : all) {
    const float numbers[] = {it.parameter, it.gradient, it.momentum, it.variance};
    for (std::size_t list = 0; list < 4; ++list) lists[list].push_back(numbers[list]);
  }
  const update_spans spans{lists[0], lists[1], {lists[2], lists[3]}};
  kernel.with_lane_work(settings, [&]<class Work>(const Work& work) {
    detail::element_pass<Work>{work, detail::streams_of<Work::states>(spans), &how, mode}.run(kernel.instructions(),
                                                                                              all.size());
  });
  for (std::size_t index = 0; index < all.size(); ++index)
    all[index] = {lists[0][index], all[index].gradient, lists[2][index], lists[3][index]};
}

/// Single elements with flush mode and without, and each instruction set, beside the oracle.
template <std::size_t States, class Step, class Work, class KernelOf>
void compare(const elements& begin, const gradient_transform& how, const step_settings& settings, const Step& step,
             const Work& work, KernelOf kernel_of)
{
  elements expected = begin;
  for_each_element<States>(expected, [&](float& parameter, float gradient, auto&... states) {
    step.update(parameter, oracle::transformed(gradient, how.factor, how.limit), states...);
  });
  for (const environment& mode : {environment{}, environment::flushing()}) {
    // nothing runs a single element in flush mode but this test: the pass leaves that mode for such a factor
    if (mode == environment::flushing() && how.factor < 0x1p-126F) continue;
    elements seen = begin;
    const auto one = [&, cuts = how.limit > 0.0F](float& parameter, float gradient, auto&... states) {
      const float slope = cuts ? detail::transformed<true>(how, gradient) : detail::transformed<false>(how, gradient);
      work.one(parameter, slope, states...);
    };
    {
      const cm::float_environment fixed{mode};
      for_each_element<States>(seen, one);
    }
    INFO("single elements" << (mode == environment{} ? "" : " in flush mode"));
    expect_same(begin, seen, expected);
  }
  for (const instruction_set set : instruction_sets) {
    if (!is_available(set)) continue;
    for (const environment& mode : {environment{}, environment::flushing()}) {
      INFO(name_of(set) << (mode == environment{} ? "" : " in flush mode"));
      elements seen = begin;
      update(kernel_of(set), seen, how, settings, mode);
      expect_same(begin, seen, expected);
    }
  }
}

struct adam_case {
  oracle::adam_settings settings{};
  float learning_rate = 1e-3F;
  std::uint64_t count = 1;
};
struct sgd_case {
  oracle::sgd_settings settings{};
  float learning_rate = 1e-3F;
};

void compare(const adam_case& of, const elements& begin, const gradient_transform& how)
{
  const oracle::adam_settings& it = of.settings;
  const adam_options options{it.beta1, it.beta2, it.epsilon, it.weight_decay, it.decoupled, it.rate_factor};
  const step_settings settings{of.learning_rate, of.count};
  const oracle::adam_step step{it, of.learning_rate, of.count};
  const auto kernel_of = [&](instruction_set set) { return adam{options, {.instructions = set}}; };
  const detail::adam_factors factors{options, settings};
  adam{options}.with_arithmetic(cm::group_id{0}, [&]<class Work>(std::type_identity<Work>) {
    compare<2>(begin, how, settings, step, Work{factors}, kernel_of);
  });
}
void compare(const sgd_case& of, const elements& begin, const gradient_transform& how)
{
  const oracle::sgd_settings& it = of.settings;
  const sgd_options options{it.momentum, it.weight_decay, it.dampening, it.nesterov, it.rate_factor};
  const step_settings settings{of.learning_rate};
  const oracle::sgd_step step{it, of.learning_rate};
  const auto kernel_of = [&](instruction_set set) { return sgd{options, {.instructions = set}}; };
  const detail::sgd_factors factors{options, settings};
  sgd{options}.with_arithmetic(cm::group_id{0}, [&]<class Work>(std::type_identity<Work>) {
    compare<Work::states>(begin, how, settings, step, Work{factors}, kernel_of);
  });
}

/// The options at the ends of what they may be, and usual ones.
std::vector<adam_case> adam_cases()
{
  using settings = oracle::adam_settings;
  return {
      {},
      {settings{.weight_decay = 0.1F}, 1e-3F, 1000},
      {settings{.weight_decay = 0.1F, .decoupled = false}, 0.25F, 3},
      {settings{.beta1 = 0.0F, .beta2 = 0.5F, .weight_decay = 0.25F}, 1.5F},  // short numbers: ties
      {settings{.beta1 = 0.0F, .beta2 = 0.0F, .epsilon = 1.0F, .weight_decay = 0.75F, .decoupled = false}, 1.5F},
      {settings{.beta1 = 0x1p-30F, .beta2 = 0x1p-40F}},
      {settings{.beta1 = 0x1p-140F, .beta2 = 0x1p-140F}},
      {settings{.beta1 = 0x1.fffffep-1F, .beta2 = 0x1.fffffep-1F}},
      {settings{.epsilon = 0x1p-126F}},
      {settings{.epsilon = 0x1p-126F, .weight_decay = 1.0F}, 0x1p60F, 7},
      {settings{.epsilon = 0x1p100F}},
      {settings{}, 0x1p-140F},
      {settings{.rate_factor = 0x1p-30F}, 0x1p-110F},
      {settings{}, 40.0F},
      {settings{}, 0x1.8p100F},
      {settings{.weight_decay = 0x1p40F}, 0x1p60F},
      {settings{.weight_decay = 3.0F}, 1.0F},
      {settings{.weight_decay = 1.0F}, 1.0F},                     // nothing is kept
      {settings{.weight_decay = 0x1.fffffcp-1F}, 0x1.000002p0F},  // 2^-46 is kept
      {settings{.weight_decay = 0x1p100F, .decoupled = false}, 1.0F},
      {settings{.weight_decay = 0x1p-140F, .decoupled = false}},
      {settings{.weight_decay = 0x1p-120F, .decoupled = false}},
  };
}
std::vector<sgd_case> sgd_cases()
{
  using settings = oracle::sgd_settings;
  return {
      {},
      {settings{.weight_decay = 0.1F, .dampening = 0.1F}, 0.25F},
      {settings{.weight_decay = 0.01F, .nesterov = true}, 0.1F},
      {settings{.momentum = 0.0F, .weight_decay = 0.1F}, 0.1F},
      {settings{.momentum = 0.0F}, 1.5F},
      {settings{.momentum = 0.5F, .weight_decay = 0.75F, .nesterov = true}, 1.5F},
      {settings{.momentum = 0x1p-140F}},
      {settings{.momentum = 0x1p-120F, .nesterov = true}, 0x1p80F},
      {settings{.momentum = 0x1.fffffep-1F, .dampening = 0x1.fffffep-1F}},
      {settings{.dampening = 0x1p100F}},
      {settings{.dampening = 1.0F}, 40.0F},
      {settings{.weight_decay = 0x1p100F}, 1.0F},
      {settings{.momentum = 0.0F, .weight_decay = 0x1p-140F}, 0x1p100F},
      {settings{}, 0x1p-140F},
      {settings{.rate_factor = 0x1p-30F}, 0x1p-110F},
  };
}

constexpr gradient_transform transforms[] = {{},           {0.37F},        {0x1p-16F},          {0x1p26F},
                                             {0x1.8p26F},  {0x1.8p60F},    {0x1.8p-60F},        {0x1p-140F},
                                             {3.0F, 0.5F}, {1.0F, 1e-30F}, {0x1p40F, 0x1p-140F}};

/// A few steps of the last digit away, of any sign.
float near(float border, std::uint64_t seed)
{
  const std::uint64_t drawn = support::scrambled(seed);
  const auto magnitude = static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(std::fabs(border)));
  const std::int64_t moved = std::max<std::int64_t>(magnitude + static_cast<std::int64_t>(drawn % 7) - 3, 0);
  return std::bit_cast<float>(static_cast<std::uint32_t>(moved) | static_cast<std::uint32_t>(drawn >> 32U << 31U));
}
/// Of any magnitude, with few digits or many.
float any(std::uint64_t seed)
{
  const std::uint64_t drawn = support::scrambled(seed);
  const auto digits = static_cast<std::uint32_t>(drawn & 0x7fffffU);
  const std::uint32_t fraction = drawn >> 40U & 1U ? digits & 0x700000U : digits;
  return std::bit_cast<float>(static_cast<std::uint32_t>(drawn >> 63U << 31U) |
                              static_cast<std::uint32_t>(drawn >> 32U) % 170 << 23U | fraction);
}
constexpr float denormal_borders[] = {0x1p-126F, 0x1p-127F, 0x1p-149F, 0x1p-125F, 0x1p-100F, 0x1p-101F};
float border(std::uint64_t seed)
{
  return denormal_borders[support::scrambled(seed) % std::size(denormal_borders)];
}

/// The operations of an update.
enum class operation : std::uint8_t {
  scaled,
  slope,
  decayed,
  momentum,
  cancelled_momentum,
  variance,
  loaded_variance,
  direction,
  step,
  kept,
  sum,
  cancelled_sum,
  tie,
  none
};
constexpr std::uint32_t operations = static_cast<std::uint32_t>(operation::none) + 1;

/// An element whose update has an operand or a result of that operation at a border.
element at_border(operation which, const oracle::adam_step& it, float factor, std::uint64_t seed)
{
  element made{any(seed + 1), any(seed + 2), any(seed + 3), std::fabs(any(seed + 4))};
  const auto divisor = [&] { return std::fma(std::sqrt(it.beta2 * made.variance), it.scale, it.epsilon); };
  const auto step = [&] { return quotient(it.beta1 * made.momentum, divisor()) * it.rate; };
  switch (which) {
    case operation::scaled: made.gradient = near(quotient(border(seed), factor), seed + 5); break;
    case operation::slope: made.gradient = near(quotient(it.least_slope, factor), seed + 5); break;
    case operation::decayed:
      made.parameter = near(quotient(border(seed), it.decay > 0.0F ? it.decay : 1.0F), seed + 5);
      if (seed % 2 == 0) made.gradient = near(quotient(-it.decay * made.parameter, factor), seed + 6);
      break;
    case operation::momentum:
      made.gradient = 0.0F;
      made.momentum = near(quotient(border(seed), it.beta1), seed + 5);
      break;
    case operation::cancelled_momentum:
      made.gradient =
          near(quotient(it.least_slope * (1.0F + 15.0F * std::fabs(support::tame(seed))), factor), seed + 5);
      made.momentum = near(quotient(-it.rest1 * (made.gradient * factor), it.beta1), seed + 6);
      break;
    case operation::variance:
      if (seed % 2 == 0) made.gradient = 0.0F;
      made.variance = std::fabs(near(quotient(border(seed), it.beta2), seed + 5));
      break;
    case operation::loaded_variance: made.variance = near(it.least_variance, seed + 5); break;
    case operation::direction:
      made.gradient = 0.0F;
      made.momentum = near(quotient(border(seed) * divisor(), it.beta1), seed + 5);
      break;
    case operation::step:
      made.gradient = 0.0F;
      made.momentum = near(quotient(quotient(border(seed), it.rate) * divisor(), it.beta1), seed + 5);
      break;
    case operation::kept: made.parameter = near(quotient(border(seed), it.keep), seed + 5); break;
    case operation::sum:
      made.gradient = 0.0F;
      made.parameter = near(quotient(step() + it.least_parameter, it.keep), seed + 5);
      break;
    case operation::cancelled_sum:
      made.gradient = 0.0F;
      made.parameter = near(quotient(step(), it.keep), seed + 5);
      break;
    case operation::tie:  // the digits that a product has too many, and a denormal beside it
      if (seed / 16 % 2 == 0)
        made.parameter = near(0x1p-130F, seed + 5);
      else
        made.gradient = near(quotient(0x1p-130F, factor), seed + 5);
      break;
    case operation::none: break;
  }
  return made;
}
element at_border(operation which, const oracle::sgd_step& it, float factor, std::uint64_t seed)
{
  element made{any(seed + 1), any(seed + 2), any(seed + 3), 0.0F};
  switch (which) {
    case operation::scaled: made.gradient = near(quotient(border(seed), factor), seed + 5); break;
    case operation::slope: made.gradient = near(quotient(it.least_slope, factor), seed + 5); break;
    case operation::decayed:
      made.parameter = near(quotient(border(seed), it.decay > 0.0F ? it.decay : 1.0F), seed + 5);
      if (seed % 2 == 0) made.gradient = near(quotient(-it.decay * made.parameter, factor), seed + 6);
      break;
    case operation::momentum:
      made.gradient = 0.0F;
      made.momentum = near(quotient(border(seed), it.momentum), seed + 5);
      break;
    case operation::cancelled_momentum:
      made.momentum = near(quotient(-it.rest * (made.gradient * factor), it.momentum), seed + 6);
      break;
    case operation::variance:
    case operation::loaded_variance: made.gradient = near(quotient(border(seed), it.rest * factor), seed + 5); break;
    case operation::direction: made.momentum = near(quotient(-made.gradient * factor, it.momentum), seed + 5); break;
    case operation::step:
      made.gradient = 0.0F;
      made.momentum = near(quotient(quotient(border(seed), it.rate), it.momentum), seed + 5);
      break;
    case operation::kept: made.parameter = near(border(seed), seed + 5); break;
    case operation::sum:
      made.gradient = 0.0F;
      made.parameter = near(it.rate * it.momentum * made.momentum + it.least_parameter, seed + 5);
      break;
    case operation::cancelled_sum:
      made.gradient = 0.0F;
      made.parameter = near(it.rate * it.momentum * made.momentum, seed + 5);
      break;
    case operation::tie:  // the digits that a product has too many, and a denormal beside it
      if (seed / 16 % 2 == 0)
        made.parameter = near(0x1p-130F, seed + 5);
      else
        made.gradient = near(quotient(0x1p-130F, factor), seed + 5);
      break;
    case operation::none: break;
  }
  return made;
}
oracle::adam_step step_of(const adam_case& it)
{
  return {it.settings, it.learning_rate, it.count};
}
oracle::sgd_step step_of(const sgd_case& it)
{
  return {it.settings, it.learning_rate};
}

/// Elements of all operations in turn. @param each   of each operation; where it is odd, no vector has the last ones
template <class Case>
elements elements_at_borders(const Case& of, float factor, std::size_t each, std::uint64_t seed)
{
  elements all;
  for (std::size_t index = 0; index < each; ++index)
    for (std::uint32_t which = 0; which < operations; ++which)
      all.push_back(at_border(static_cast<operation>(which), step_of(of), factor, seed += 16));
  return all;
}
template <class Case>
void check_borders(const std::vector<Case>& cases, std::size_t each)
{
  std::uint64_t seed = 0;
  for (std::size_t number = 0; number < cases.size(); ++number)
    for (const gradient_transform& how : transforms) {
      CAPTURE(number, how.factor, how.limit);
      compare(cases[number], elements_at_borders(cases[number], how.factor, each, seed += 1'000'000), how);
    }
  SUCCEED();  // else something failed
}

/// An update without any rule for small numbers.
struct unruled_adam : oracle::adam_step {
  using oracle::adam_step::adam_step;
  void one(float& parameter, float gradient, float& m, float& v) const
  {
    const float slope = std::fma(decay, parameter, gradient);
    m = std::fma(beta1, m, oracle::product(rest1, slope));
    v = std::fma(beta2, v, oracle::product(rest2, oracle::product(slope, slope)));
    const float direction = quotient(m, std::fma(std::sqrt(v), scale, epsilon));
    parameter = std::fma(-rate, direction, oracle::product(keep, parameter));
  }
};

constexpr std::size_t of_each = support::sanitized ? 9 : 129;

}  // namespace

TEST_CASE("flush mode changes no bit of Adam at the border of any operation", "[optimizer]")
{
  check_borders(adam_cases(), of_each);
}

TEST_CASE("flush mode changes no bit of SGD at the border of any operation", "[optimizer]")
{
  check_borders(sgd_cases(), of_each);
}

TEST_CASE("flush mode would change bits at the border of every operation, if there were no rule", "[optimizer]")
{
  std::vector<std::uint32_t> unlike(operations, 0);
  std::uint64_t seed = 0;
  for (const adam_case& of : adam_cases()) {
    const elements begin = elements_at_borders(of, 1.0F, 256, seed += 1'000'000);
    elements seen[2] = {begin, begin};
    const unruled_adam without{of.settings, of.learning_rate, of.count};
    const auto one = [&](auto&... all) { without.one(all...); };
    for_each_element<2>(seen[0], one);
    {
      const cm::float_environment fast{environment::flushing()};
      for_each_element<2>(seen[1], one);
    }
    for (std::size_t index = 0; index < begin.size(); ++index) {
      const element &left = seen[0][index], &right = seen[1][index];
      // a denormal that is stored is flushed by any rule
      const auto differ = [](float a, float b) {
        return std::bit_cast<std::uint32_t>(oracle::without_denormals(a)) !=
                   std::bit_cast<std::uint32_t>(oracle::without_denormals(b)) &&
               !(std::isnan(a) && std::isnan(b));
      };
      unlike[index % operations] += differ(left.parameter, right.parameter) || differ(left.momentum, right.momentum) ||
                                    differ(left.variance, right.variance);
    }
  }
  for (std::uint32_t which = 0; which < operations; ++which) {
    INFO("operation " << which);
    CHECK(unlike[which] > 0);
  }
}

namespace {

/// No number has a pattern of bits twice. @param count   at most 2^32
void check_patterns(std::uint64_t count)
{
  constexpr std::uint64_t of_a_run = 4096;
  const auto number = [](std::uint64_t pattern) { return std::bit_cast<float>(static_cast<std::uint32_t>(pattern)); };
  const std::vector<adam_case> adams = adam_cases();
  elements all(of_a_run);
  for (std::uint64_t first = 0; first < count; first += of_a_run) {
    for (std::uint64_t index = 0; index < of_a_run; ++index) {
      const std::uint64_t pattern = first + index;
      all[index] = {number(pattern * 0x9e3779b1U), number(pattern * 0x85ebca6bU + 1), number(pattern * 0xc2b2ae35U + 2),
                    number(pattern * 0x27d4eb2fU + 3)};
    }
    CAPTURE(first);
    compare(adams[first / of_a_run % adams.size()], all, transforms[first / of_a_run % std::size(transforms)]);
  }
  SUCCEED();  // else something failed
}

}  // namespace

TEST_CASE("a million random patterns of bits are updated alike with flush mode and without", "[optimizer]")
{
  check_patterns(support::sanitized ? 1 << 15U : 1 << 20U);
}

TEST_CASE("a thousand million patterns of bits are updated alike with flush mode and without", "[optimizer][.slow]")
{
  check_borders(adam_cases(), (1 << 14U) + 1);
  check_borders(sgd_cases(), (1 << 14U) + 1);
  check_patterns(std::uint64_t{1} << 30U);
}

}  // namespace small_numbers_test
