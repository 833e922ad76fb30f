// SPDX-License-Identifier: Apache-2.0
#include "numerics_cases.hpp"

#include <chunkmem/optimizer/thread_pool.hpp>
#include <chunkmem/optimizer/version_1.hpp>
#include <support/catch.hpp>

#include <cmath>
#include <map>
#include <string>

namespace numerics_test {

namespace cm = chunkmem;
using namespace cm::optimizer;

namespace {

using prints = std::map<std::string, std::uint64_t>;

template <cm::optimizer::numerics Rule = cm::optimizer::numerics::version_3, class Executor>
prints prints_of(instruction_set set, std::size_t elements, Executor& workers)
{
  prints all;
  numerics_cases::run_all<Rule>(set, elements, 3, workers,
                                [&](const std::string& name, std::uint64_t print) { all[name] = print; });
  return all;
}

#if defined(__SSE__)
/// The caller's floating-point environment, during the life of this object.
struct caller_habits {
  explicit caller_habits(unsigned control) : before{__builtin_ia32_stmxcsr()} { __builtin_ia32_ldmxcsr(control); }
  ~caller_habits() { __builtin_ia32_ldmxcsr(before); }
  caller_habits(const caller_habits&) = delete;
  caller_habits& operator=(const caller_habits&) = delete;
  unsigned before;
};

constexpr unsigned flush_to_zero = 0x8000U;
constexpr unsigned denormals_are_zero = 0x0040U;
constexpr unsigned masked = 0x1f80U;
#endif

}  // namespace

TEST_CASE("every instruction set gives the same bits for every kind of parameter", "[equality]")
{
  chunkmem::serial alone;
  const prints expected = prints_of(instruction_set::baseline, 700, alone);
  CHECK(expected.size() == 22 * 5 + 11);
  for (const instruction_set set : instruction_sets) {
    INFO(name_of(set));
    if (is_available(set)) CHECK(prints_of(set, 700, alone) == expected);
  }
}

TEST_CASE("each version of the numerics has the bits that it had when it was made", "[equality]")
{
  chunkmem::serial alone;
  const auto pin_of = [](const prints& all) {
    std::uint64_t pin = 0xcbf29ce484222325U;
    for (const auto& [name, print] : all) pin = (pin ^ print) * 0x100000001b3U;
    return pin;
  };
  using enum cm::optimizer::numerics;
  for (const instruction_set set : instruction_sets) {
    if (!is_available(set)) continue;
    INFO(name_of(set));
    CHECK(pin_of(prints_of<version_1>(set, 1'100, alone)) == 0x74608cfe55d5dd3U);
    CHECK(pin_of(prints_of<version_2>(set, 1'100, alone)) == 0x6a1425c1dbeb1cbbU);
    CHECK(pin_of(prints_of<version_3>(set, 1'100, alone)) == 0xdcccc9dbc6f670adU);
  }
}

TEST_CASE("one, two and three threads give the same bits", "[equality]")
{
  chunkmem::serial alone;
  constexpr std::size_t elements = 32768 + 4096 + 77;
  const adam kernel{{.weight_decay = 0.1F}, {.moments = cm::dtype::bfloat16}};
  for (const numerics_cases::parameter_case& it : numerics_cases::parameter_cases()) {
    if (it.states != cm::dtype::bfloat16 || !it.masters || it.value == cm::dtype::float16) continue;
    const std::uint64_t expected = numerics_cases::run_case(kernel, it, elements, 2, alone);
    for (const unsigned threads : {1U, 2U, 3U}) {
      thread_pool pool{threads};
      INFO(numerics_cases::name_of(it) << ", threads: " << threads);
      CHECK(numerics_cases::run_case(kernel, it, elements, 2, pool) == expected);
    }
  }
}

#if defined(__SSE__)

TEST_CASE("what the caller told the processor about rounding and denormals changes no bit, and stays told",
          "[equality]")
{
  chunkmem::serial alone;
  const prints expected = prints_of(best_instruction_set(), 300, alone);
  for (unsigned rounding = 0; rounding < 4; ++rounding)
    for (const unsigned flags : {0U, flush_to_zero, denormals_are_zero, flush_to_zero | denormals_are_zero}) {
      const unsigned control = masked | rounding << 13U | flags;
      prints seen;
      unsigned after = 0;
      {
        const caller_habits habits{control};
        seen = prints_of(best_instruction_set(), 300, alone);
        after = __builtin_ia32_stmxcsr();
      }
      INFO("MXCSR " << control);
      CHECK(seen == expected);
      CHECK((after & ~0x3fU) == control);  // the flags of exceptions aside
    }
}

TEST_CASE("an update raises no trap where the caller wants traps", "[equality]")
{
  const adam kernel;
  chunkmem::serial alone;
  std::vector<float> value = support::hostile_numbers(500, 1);
  const std::vector<float> gradient = support::hostile_numbers(500, 2);
  std::vector<float> momentum(500, 0.0F);
  std::vector<float> variance(500, 0.0F);
  parameter_bytes all;
  all.value = reinterpret_cast<std::byte*>(value.data());
  all.gradient = reinterpret_cast<const std::byte*>(gradient.data());
  all.lists[0] = {reinterpret_cast<std::byte*>(momentum.data())};
  all.lists[1] = {reinterpret_cast<std::byte*>(variance.data())};
  all.list_count = 2;
  all.elements = 500;
  const step_settings settings{0.01F, 3};
  const caller_habits habits{0};
  update_parameter(kernel, all, {}, settings, 0, alone);
  CHECK(__builtin_ia32_stmxcsr() == 0);
}

#endif

TEST_CASE("a bf16 run with masters is the exact run within the rounding of its states", "[equality]")
{
  constexpr std::size_t count = 1'000;
  const adam kernel;
  chunkmem::serial alone;
  std::vector<cm::bf16> value(count);
  std::vector<cm::bf16> gradient(count);
  std::vector<float> master(count), momentum(count, 0.0F), variance(count, 0.0F);
  std::vector<double> exact(count), exact_momentum(count, 0.0), exact_variance(count, 0.0);
  for (std::size_t index = 0; index < count; ++index) {
    value[index] = cm::round_to<cm::bf16>(support::tame(index));
    exact[index] = static_cast<double>(cm::to_float(value[index]));
  }
  parameter_bytes all;
  all.value = reinterpret_cast<std::byte*>(value.data());
  all.gradient = reinterpret_cast<const std::byte*>(gradient.data());
  all.value_type = all.gradient_type = cm::dtype::bfloat16;
  all.lists[0] = {reinterpret_cast<std::byte*>(momentum.data())};
  all.lists[1] = {reinterpret_cast<std::byte*>(variance.data())};
  all.lists[2] = {reinterpret_cast<std::byte*>(master.data()), cm::dtype::float32, cm::list_use::master};
  all.list_count = 3;
  all.elements = count;
  double left1 = 1;
  double left2 = 1;
  for (std::uint64_t step = 1; step <= 60; ++step) {
    left1 *= static_cast<double>(0.9F);
    left2 *= static_cast<double>(0.999F);
    for (std::size_t index = 0; index < count; ++index) {
      gradient[index] = cm::round_to<cm::bf16>(support::tame(step * 5000 + index));
      const double slope = 0.25 * static_cast<double>(cm::to_float(gradient[index]));
      exact_momentum[index] += (1 - static_cast<double>(0.9F)) * (slope - exact_momentum[index]);
      exact_variance[index] += (1 - static_cast<double>(0.999F)) * (slope * slope - exact_variance[index]);
      exact[index] -= static_cast<double>(0.01F) * exact_momentum[index] / (1 - left1) /
                      (std::sqrt(exact_variance[index] / (1 - left2)) + static_cast<double>(1e-8F));
    }
    all.fresh_master = step == 1;
    update_parameter(kernel, all, {0.25F}, {0.01F, step}, 0, alone);
  }
  for (std::size_t index = 0; index < count; ++index) {
    CHECK(std::abs(static_cast<double>(master[index]) - exact[index]) < 2e-5);
    CHECK(std::abs(static_cast<double>(cm::to_float(value[index])) - exact[index]) <=
          std::abs(exact[index]) * 0x1p-8 + 2e-5);
  }
}

}  // namespace numerics_test
