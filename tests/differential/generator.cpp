// SPDX-License-Identifier: Apache-2.0
#include "generator.hpp"

#include <support/oracles/dice.hpp>

#include <cstddef>
#include <sstream>

namespace differential {
namespace {

using support::dice;

/// How often each call comes, in a thousand. Iterations are made around them.
struct weight {
  what call;
  std::uint32_t share;
};
constexpr weight weights[] = {
    {what::acquire, 400},
    {what::release, 120},
    {what::touch, 50},
    {what::move_pin, 10},
    {what::gradient_of_pin, 30},
    {what::gradient, 60},
    {what::done_with_pin, 15},
    {what::done, 25},
    {what::update, 50},
    {what::drop, 40},
    {what::drop_gradient, 30},
    {what::drop_gradients, 4},
    {what::lease, 45},
    {what::end_lease, 35},
    {what::pass, 40},
    {what::keep_record, 1},
    {what::begin, 6},
    {what::exchange, 8},
    {what::rehearse, 2},
    {what::use_profile, 3},
    {what::mistake, 20},
    {what::release_all, 5},
    {what::audit, 1},
    {what::step, 3},
    {what::late_step, 6},
    {what::early_step, 4},
    {what::finish_updates, 2},
    {what::end_late, 2},
};

[[nodiscard]] op random_call(dice& roll)
{
  constexpr std::uint32_t whole = [] {
    std::uint32_t sum = 0;
    for (const weight& it : weights) sum += it.share;
    return sum;
  }();
  std::uint32_t index = roll.below(whole);
  const std::uint32_t x = roll.below(UINT32_MAX);
  const std::uint32_t y = roll.below(UINT32_MAX);
  for (const weight& it : weights) {
    if (index < it.share) return {it.call, x, y};
    index -= it.share;
  }
  return {};
}

/// Several iterations of one script, now and then with another call in one of them, or ended by an exception.
void add_iterations(program& calls, dice& roll)
{
  program script;
  for (std::uint32_t left = roll.between(5, 60); left > 0; --left) script.push_back(random_call(roll));
  if (roll.one_in(2)) {
    constexpr what steps[] = {what::step, what::late_step, what::late_step, what::early_step};
    script.push_back({steps[roll.below(4)], roll.below(UINT32_MAX), roll.below(UINT32_MAX)});
  }
  const std::uint32_t name = roll.below(3);
  for (std::uint32_t round = roll.between(1, 8); round > 0; --round) {
    program once = script;
    if (roll.one_in(5)) once[roll.below(static_cast<std::uint32_t>(once.size()))] = random_call(roll);
    calls.push_back({what::begin, name, roll.one_in(8) ? 8U : 1U});
    calls.insert(calls.end(), once.begin(), once.end());
    calls.push_back({what::release_all});
    calls.push_back({roll.one_in(12) ? what::abandon : what::end});
  }
}

}  // namespace

setting random_setting(std::uint64_t seed, world where)
{
  dice roll{seed * 31 + static_cast<std::uint64_t>(where)};
  setting it;
  it.seed = seed;
  it.where = where;
  it.frame = 256U << roll.below(3);
  const std::uint32_t largest = (1'400 + it.frame - 1) / it.frame;
  it.device_frames = largest + roll.below(4);
  it.device_rest = roll.below(3);
  it.tensors = roll.below(3);
  it.host_frames = roll.one_in(4) ? 20'480 / it.frame : 40'960 / it.frame;  // sometimes hardly enough for everything
  it.eviction = roll.below(5);
  it.layout = roll.below(3);
  it.transfer = roll.below(3);
  it.schedule = roll.below(3);
  it.async_compute = roll.one_in(2);
  it.in_place = it.tensors != 0 && roll.one_in(2);
  it.wide = it.tensors != 0 && !it.in_place && roll.one_in(3);
  if (where == world::adversarial && roll.one_in(4)) it.faults = roll.between(3, 40);
  return it;
}

program random_program(std::uint64_t seed, std::size_t length)
{
  dice roll{seed};
  program calls;
  for (std::uint32_t index = 0; index < 36; ++index)  // most weights are filled, as a trainer does
    if (!roll.one_in(6)) calls.push_back({what::acquire, index, 0x84022U | roll.below(2) << 3U});
  while (calls.size() < length) {
    if (roll.one_in(2)) add_iterations(calls, roll);
    for (std::uint32_t left = roll.below(30); left > 0; --left) calls.push_back(random_call(roll));
    if (roll.one_in(2)) calls.push_back({what::release_all});
  }
  calls.resize(length);
  return calls;
}

std::string as_test(const setting& it, const program& calls, const std::string& difference)
{
  std::ostringstream out;
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  out << "TEST_CASE(\"a program that once failed equals the model\", \"[differential]\")\n{\n  // " << difference
      << '\n'
      << "  tally sum;\n  const setting wanted{.seed = " << it.seed
      << ", .where = world::" << world_names[static_cast<int>(it.where)]
      << ", .planted = bug::" << bug_names[static_cast<int>(it.planted)] << ", .frame = " << it.frame
      << ", .device_frames = " << it.device_frames << ", .device_rest = " << it.device_rest
      << ", .host_frames = " << it.host_frames << ", .tensors = " << it.tensors << ", .eviction = " << it.eviction
      << ", .layout = " << it.layout << ", .transfer = " << it.transfer << ", .schedule = " << it.schedule
      << ", .async_compute = " << flag(it.async_compute) << ", .in_place = " << flag(it.in_place)
      << ", .wide = " << flag(it.wide) << ", .faults = " << it.faults
      << ", .keeps_kernel_pins = " << flag(it.keeps_kernel_pins) << "};\n"
      << "  CHECK(run_program(wanted, {\n";
  for (const op& call : calls)
    out << "      {what::" << what_names[static_cast<std::size_t>(call.call)] << ", " << call.x << ", " << call.y
        << "},\n";
  out << "  }, sum) == \"\");\n}\n";
  return out.str();
}

}  // namespace differential
