// SPDX-License-Identifier: Apache-2.0
#include "foresight.hpp"

#include "activations.hpp"
#include "size_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <utility>
#include <vector>

namespace gpt {
namespace {

using chunkmem::bytes;
using chunkmem::activation::activation_plan;
using chunkmem::activation::chain_run;
using chunkmem::activation::chain_step;

constexpr double no_limit = 1e30;      // a rate
constexpr double worth_a_cause = 0.1;  // least relative difference that gets a cause
constexpr double out_of_reach = std::numeric_limits<double>::max();

/// @return   a rate that a clock can have
[[nodiscard]] double rate_of(double units, double seconds)
{
  return units > 0 && seconds > 0 ? std::min(units / seconds, no_limit) : no_limit;
}

[[nodiscard]] std::size_t runs_forward(const activation_plan& plan)
{
  return static_cast<std::size_t>(
      std::ranges::count_if(plan.steps, [](const chain_step& step) { return step.run != chain_run::backward; }));
}

[[nodiscard]] bytes whole(double size)
{
  return bytes{static_cast<std::uint64_t>(std::llround(size))};
}

template <class... Numbers>
[[nodiscard]] std::string line(const char* format, Numbers... numbers)
{
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), format, numbers...);
  return text.data();
}

[[nodiscard]] std::string rate_text(double rate, double scale, const char* unit)
{
  return rate < no_limit ? line("%.3g %s", rate / scale, unit) : std::string{"unmeasured"};
}

[[nodiscard]] std::string row(const char* name, const std::string& said, const std::string& seen, double of, double to)
{
  std::string text = line("  %-22s %24s %24s", name, said.c_str(), seen.c_str());
  if (of > 0) text += line(" %+8.1f %%", 100 * (to / of - 1));
  return text + '\n';
}
[[nodiscard]] std::string byte_text(bytes size)
{
  return size_text(size) + " (" + std::to_string(size.count()) + " B)";
}
[[nodiscard]] std::string row(const char* name, bytes said, bytes seen)
{
  return row(name, byte_text(said), byte_text(seen), static_cast<double>(said.count()),
             static_cast<double>(seen.count()));
}

[[nodiscard]] std::string head_of_table()
{
  return line("  %-22s %24s %24s\n", "a step", "expected", "measured");
}
[[nodiscard]] std::string row_of_seconds(const step_account& said, const step_account& seen)
{
  return row("seconds", line("%.4g", said.seconds), line("%.4g", seen.seconds), said.seconds, seen.seconds);
}
[[nodiscard]] std::string rows_of_bytes(const step_account& said, const step_account& seen)
{
  return row("to the device", whole(said.loaded), whole(seen.loaded)) +
         row("back to the host", whole(said.written_back), whole(seen.written_back)) +
         row("peak of the device", said.device_peak, seen.device_peak);
}
[[nodiscard]] bool is_worth_a_cause(const step_account& said, const step_account& seen)
{
  return std::abs(seen.seconds - said.seconds) > worth_a_cause * said.seconds;
}
[[nodiscard]] bool are_equal_bytes(const step_account& said, const step_account& seen)
{
  return said.loaded == seen.loaded && said.written_back == seen.written_back && said.device_peak == seen.device_peak;
}

/// The part of a step whose time differs most from the forecast.
[[nodiscard]] std::string cause_of_seconds(const options& chosen, const step_account& said, const step_account& seen)
{
  constexpr std::array<const char*, step_parts> names{"forward runs of layers", "backward runs of layers",
                                                      "embeddings, head and loss", "updates"};
  const auto rest_of = [](const step_account& account) {
    double rest = account.seconds - account.waited;
    for (const double part : account.parts) rest -= part;
    return rest;
  };
  const char* const waits = over_ranks(chosen) ? "waits for copies and other ranks" : "waits for copies";
  std::string cause = line("%s, %.4g s instead of %.4g s", waits, seen.waited, said.waited);
  double most = seen.waited - said.waited;
  const double direction = seen.seconds > said.seconds ? 1 : -1;
  const auto consider = [&](const char* name, double expected, double found) {
    if (direction * (found - expected) <= direction * most) return;
    most = found - expected;
    cause = line("%s, %.4g s instead of %.4g s", name, found, expected);
  };
  for (std::size_t part = 0; part < step_parts; ++part) consider(names[part], said.parts[part], seen.parts[part]);
  consider("work outside of the passes, such as plans of the manager", rest_of(said), rest_of(seen));
  return cause;
}

[[nodiscard]] std::string cause_of_bytes(const options& chosen, const unforeseen& events)
{
  if (events.skipped > 0) return std::to_string(events.skipped) + " steps whose gradients were not finite";
  if (events.is_resumed) return "a training that starts with the values of a file, whose bytes lie elsewhere";
  if (events.was_saved) return "a checkpoint that was saved in these steps";
  if (chosen.when == update_time::measured) return "updates on the device, whose share is still being measured";
  if (events.divergences > 0) return std::to_string(events.divergences) + " steps that differed from the record";
  return "none is known: please report it";
}

}  // namespace

std::string bytes_told(const step_account& step)
{
  return size_text(whole(step.loaded)) + " to the device, " + size_text(whole(step.written_back)) +
         " back, peak of the device " + size_text(step.device_peak);
}
std::string seconds_told(double seconds)
{
  return line("%.4g s", seconds);
}
std::string compared_stages(const options& chosen, std::span<const step_account> said,
                            std::span<const step_account> seen, std::size_t seconds_of, const unforeseen& events)
{
  const step_account &own_said = said[seconds_of], &own_seen = seen[seconds_of];
  std::string text = head_of_table() + row_of_seconds(own_said, own_seen);
  bool are_equal = true;
  for (std::size_t stage = 0; stage < said.size(); ++stage) {
    text += "  stage " + std::to_string(stage) + '\n' + rows_of_bytes(said[stage], seen[stage]);
    are_equal = are_equal && are_equal_bytes(said[stage], seen[stage]);
  }
  if (is_worth_a_cause(own_said, own_seen))
    text += own_seen.seconds > own_said.seconds
                ? "  likely cause, seconds: runs of stages that share processors, or waits for other stages\n"
                : "  likely cause, seconds: measured steps that other work made slower\n";
  if (!are_equal) text += "  likely cause, bytes: " + cause_of_bytes(chosen, events) + '\n';
  return text;
}

foresight::foresight(const options& chosen, const activation_plan& first, bytes room, std::uint64_t parameters,
                     look look_ahead, agree agree_on)
    : chosen_{chosen},
      first_{first},
      room_{room},
      parameters_{parameters},
      look_{std::move(look_ahead)},
      agree_{std::move(agree_on)},
      plan_{first}
{
}

const activation_plan& foresight::choose(const measured_times& times)
{
  const std::vector<activation_plan> plans = candidates(agreed(times));
  std::vector<foreseen_steps> seen;
  std::vector<double> seconds;
  for (const activation_plan& plan : plans) {
    seen.push_back(look_(plan, rates_));
    seconds.push_back(seen.back().fits ? seen.back().compared.seconds : out_of_reach);
  }
  agree_(seconds);
  const auto best = static_cast<std::size_t>(std::ranges::min_element(seconds) - seconds.begin());
  fits_ = seen[best].fits;
  said_ = seen[best].compared;
  plan_ = plans[best];
  return plan_;
}

measured_times foresight::agreed(measured_times times)
{
  clock_rates any;
  any.operations_per_second.fill(no_limit);
  any.updates = {no_limit, no_limit, no_limit, no_limit};
  const part_operations operations = look_(first_, any).operations;
  const std::size_t update = index_of(step_part::update);
  std::array<double, step_parts + 3> numbers{};
  std::ranges::copy(times.parts, numbers.begin());
  numbers[update] /= static_cast<double>(std::max<std::uint64_t>(parameters_, 1));
  numbers[step_parts] = times.to_device_seconds_per_byte;
  numbers[step_parts + 1] = times.to_host_seconds_per_byte;
  numbers[step_parts + 2] = -static_cast<double>(room_.count());
  agree_(numbers);
  std::copy_n(numbers.begin(), update, times.parts.begin());
  for (std::size_t part = 0; part < step_parts; ++part)
    rates_.operations_per_second[part] = rate_of(operations[part], numbers[part]);
  const double updates = rate_of(1, numbers[update]);
  rates_.updates = {updates, updates, no_limit, no_limit};
  rates_.copies.to_device = {.latency_nanoseconds = 0, .bytes_per_second = rate_of(1, numbers[step_parts])};
  rates_.copies.to_host = {.latency_nanoseconds = 0, .bytes_per_second = rate_of(1, numbers[step_parts + 1])};
  rates_.copies.within_device = rates_.copies.within_host = rates_.copies.to_device;
  rates_.copies.launch_nanoseconds = 0;
  room_ = bytes{static_cast<std::uint64_t>(-numbers[step_parts + 2])};
  return times;
}

std::vector<activation_plan> foresight::candidates(const measured_times& times) const
{
  std::vector<activation_plan> plans{first_};
  if (!is_planned(chosen_.activations)) return plans;
  const auto consider = [&](activation_plan plan) {
    const auto is_same = [&](const activation_plan& other) { return other.steps == plan.steps; };
    if (std::ranges::none_of(plans, is_same)) plans.push_back(std::move(plan));
  };
  const extents& size = chosen_.size;
  const double passes = static_cast<double>(size.micro_batches);
  const chain_rates rates{
      .forward_seconds = times.parts[index_of(step_part::forward)] / passes / static_cast<double>(runs_forward(first_)),
      .backward_seconds = times.parts[index_of(step_part::backward)] / passes / static_cast<double>(size.layers),
      .to_host_bytes_per_second = rates_.copies.to_host.bytes_per_second,
      .to_device_bytes_per_second = rates_.copies.to_device.bytes_per_second};
  consider(plan_layer_runs(activation_mode::swap, size));
  constexpr std::uint64_t parts = 4;
  for (std::uint64_t part = parts; part > 0; --part) {
    activation_plan plan = plan_layer_runs(chosen_.activations, size, bytes{room_.count() / parts * part}, rates);
    if (plan.costs.fits) consider(std::move(plan));
  }
  return plans;
}

std::string foresight::told() const
{
  const auto operations = [&](step_part part) {
    return rate_text(rates_.operations_per_second[index_of(part)], 1e9, "GFLOP/s");
  };
  const auto link = [](double rate) { return rate_text(rate, 1e9, "GB/s"); };
  std::string text = "rates   layers " + operations(step_part::forward) + " forward, " +
                     operations(step_part::backward) + " backward; copies " +
                     link(rates_.copies.to_device.bytes_per_second) + " to the device, " +
                     link(rates_.copies.to_host.bytes_per_second) + " back\n";
  if (is_planned(chosen_.activations)) {
    text += "plan    of " + plan_.planner + ", R for a layer that runs forward again: ";
    for (std::uint32_t layer = 0; layer < plan_.inner_leaves.size(); ++layer)
      text += plan_.action_of(layer) == chunkmem::activation::block_action::recompute ? 'R' : '-';
    text += '\n';
  }
  if (!fits_) return text + "expect  the next steps cannot be simulated\n";
  return text + "expect  " + seconds_told(said_.seconds) + " a step, " + bytes_told(said_) + '\n';
}

std::string foresight::compared_with(const step_account& seen, const unforeseen& events) const
{
  if (!fits_) return {};
  std::string text = head_of_table() + row_of_seconds(said_, seen) + rows_of_bytes(said_, seen);
  if (is_worth_a_cause(said_, seen))
    text += "  likely cause, seconds: " + cause_of_seconds(chosen_, said_, seen) + '\n';
  if (!are_equal_bytes(said_, seen)) text += "  likely cause, bytes: " + cause_of_bytes(chosen_, events) + '\n';
  return text;
}

}  // namespace gpt
