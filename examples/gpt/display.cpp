// SPDX-License-Identifier: Apache-2.0
#include "display.hpp"

#include "../progress_line.hpp"
#include "size_text.hpp"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>

namespace gpt {
namespace {

using chunkmem::bytes;

void size_line(std::FILE* out, const char* name, bytes size)
{
  std::fprintf(out, "  %-20s %12s\n", name, size_text(size).c_str());
}

/// The progress line of a terminal shows the time left from this many seconds on.
constexpr double worth_telling = 2.0;

/// A rate in the unit of `scale`. The rate of copies that no update waited for is unknown.
std::string rate_text(double rate, double scale, const char* unit)
{
  if (rate == std::numeric_limits<double>::max()) return "unmeasured";
  char text[48];
  std::snprintf(text, sizeof text, "%.3g %s", rate / scale, unit);
  return text;
}

void print_measured(std::FILE* out, const measured_updates& it)
{
  const std::string_view stage = name_of(it.split.stage);
  std::fprintf(out, "updates %.1f%% on the device (%.*s)", 100 * it.split.device_share, static_cast<int>(stage.size()),
               stage.data());
  for (const auto& tried : it.split.tried)
    std::fprintf(out, "%s %.3g ms a step with %.1f%%", &tried == it.split.tried.data() ? ";" : ",", 1e3 * tried.seconds,
                 100 * tried.device_share);
  const auto parameters = [](double rate) { return rate_text(rate, 1e6, "million/s"); };
  const auto bytes_of = [](double rate) { return rate_text(rate, 1e9, "GB/s"); };
  std::fprintf(
      out, "\nrates   updates %s on the host, %s on the device; copies %s to the device, %s back\n",
      parameters(it.rates.host_updates_per_second).c_str(), parameters(it.rates.device_updates_per_second).c_str(),
      bytes_of(it.rates.to_device_bytes_per_second).c_str(), bytes_of(it.rates.to_host_bytes_per_second).c_str());
}

/// One kind of bytes that every parameter has.
void parameter_line(std::FILE* out, const char* name, bytes size, std::uint64_t parameters)
{
  const double each = static_cast<double>(size.count()) / static_cast<double>(parameters);
  std::fprintf(out, "  %-20s %12s %8.2f B per parameter\n", name, size_text(size).c_str(), each);
}

const char* short_name_of(chunkmem::dtype precision)
{
  using enum chunkmem::dtype;
  return precision == float32 ? "fp32" : precision == bfloat16 ? "bf16" : "fp16";
}

/// The types of numbers, and the settings of the optimizer.
void precision_line(std::FILE* out, const options& chosen)
{
  std::fprintf(out, "numbers weights and gradients %s, gradient %s, ", short_name_of(chosen.precision),
               chosen.gradient == gradient_choice::in_place ? "in_place" : "separate");
  std::fprintf(out, "%zu %s a step, ", chosen.size.micro_batches, chosen.size.micro_batches == 1 ? "batch" : "batches");
  if (chosen.clip > 0.0f) {
    std::fprintf(out, "norm clipped at %g\n", static_cast<double>(chosen.clip));
  } else {
    std::fprintf(out, "norm not clipped\n");
  }
}

void tier_line(std::FILE* out, const char* name, bytes peak, bytes capacity)
{
  const double share =
      capacity.count() == 0 ? 0.0 : 100.0 * static_cast<double>(peak.count()) / static_cast<double>(capacity.count());
  std::fprintf(out, "  %-8s %12s %12s %6.1f %%\n", name, size_text(peak).c_str(), size_text(capacity).c_str(), share);
}

}  // namespace

display::display(std::FILE* out) : out_{out}, terminal_{command_line::is_terminal(out)} {}

void display::header(const options& chosen, const training_text& text, const memory_budget& budget, bytes chunk) const
{
  const extents& size = chosen.size;
  std::fprintf(out_, "text    %s, %zu bytes, fnv1a %016" PRIx64 "\n", text.name().c_str(), text.size(), text.hash());
  std::fprintf(out_, "model   %" PRIu64 " parameters: %zu layers, width %zu, %zu heads, context %zu, batch %zu\n",
               size.parameters(), size.layers, size.width, size.heads, size.context, size.batch);
  const auto name = [](std::string_view chosen_name) { return std::string{chosen_name}; };
  std::fprintf(out_, "policy  eviction %s, transfer %s, placement %s, %s, chunks of %s\n",
               name(chosen.eviction.chosen()).c_str(), name(chosen.transfer.chosen()).c_str(),
               name(chosen.placement.chosen()).c_str(), name(chosen.layout.chosen()).c_str(), size_text(chunk).c_str());
  precision_line(out_, chosen);
  std::fprintf(out_, "needs\n");
  const std::uint64_t parameters = size.parameters();
  parameter_line(out_, "weights", budget.weights, parameters);
  parameter_line(out_, "gradients", budget.gradients, parameters);
  parameter_line(out_, "optimizer states", budget.optimizer_states, parameters);
  parameter_line(out_, "together", budget.weights + budget.gradients + budget.optimizer_states, parameters);
  size_line(out_, "activations", budget.activations);
  size_line(out_, "workspace", budget.workspace);
  size_line(out_, "everything", budget.everything);
  std::fprintf(out_, "given   device %s (smallest possible %s), host %s\n", size_text(budget.device).c_str(),
               size_text(budget.smallest_device).c_str(), size_text(budget.host).c_str());
  if (const bytes quarter{budget.everything.count() / 4}; !chosen.device_memory && quarter < budget.device)
    std::fprintf(out_, "        a quarter of the need, %s, is too small%s\n", size_text(quarter).c_str(),
                 chosen.activations == activation_mode::keep
                     ? " with --activations keep, which leaves all activations on the device"
                     : "");
  std::fprintf(out_, "        the training needs %.2f times the device\n\n",
               static_cast<double>(budget.everything.count()) / static_cast<double>(budget.device.count()));
}

void display::memory_made(double seconds) const
{
  std::fprintf(out_, "memory made in %.2f s\n", seconds);
  std::fflush(out_);
}

void display::note(const char* what, float loss) const
{
  command_line::erase_line(out_);
  std::fprintf(out_, "%s loss %.9g\n", what, static_cast<double>(loss));
  std::fflush(out_);
}

void display::step(const step_figures& figures) const
{
  command_line::erase_line(out_);
  const double moved = static_cast<double>((figures.loaded + figures.written_back).count()) / (1024.0 * 1024.0);
  char text[256];
  std::snprintf(text, sizeof text, "step %zu/%zu  loss %.9g  lr %.3g  %.0f tokens/s  moved %.1f MiB", figures.number,
                figures.steps, static_cast<double>(figures.loss), static_cast<double>(figures.learning_rate),
                figures.tokens_per_second, moved);
  std::string line = text;
  const double left = figures.seconds * static_cast<double>(figures.steps - figures.number);
  if (terminal_ && left >= worth_telling) {
    std::snprintf(text, sizeof text, "  %.0f s left", left);
    line += text;
  }
  const bool stays = !terminal_ || figures.skipped || figures.number == figures.steps;
  std::fputs(stays ? (line + '\n').c_str() : std::string{command_line::fitting(out_, line)}.c_str(), out_);
  std::fflush(out_);
}

void display::noise(std::size_t step, const chunkmem::activation::sampling_report& of) const
{
  std::uint64_t steps = 0;
  for (const auto& it : of.inputs) steps = std::max(steps, it.steps);
  command_line::erase_line(out_);
  std::fprintf(out_, "noise of sampled gradients, mean of %" PRIu64 " steps before step %zu\n", steps, step + 1);
  std::fprintf(out_, "  %-20s %8s %12s %14s %12s %10s %10s\n", "input", "ratio", "saved", "noise/signal", "deviation",
               "spent", "products");
  const auto text_of = [](const char* how, double number) {
    char digits[32] = "-";  // a number that is unknown
    if (std::isfinite(number)) std::snprintf(digits, sizeof digits, how, number);
    return std::string{digits};
  };
  const auto row = [&](const chunkmem::activation::sampling_costs& it, const std::string& ratio) {
    std::fprintf(out_, "  %-20s %8s %12s %14s %12s %8.4f s %8.4f s\n", it.name.c_str(), ratio.c_str(),
                 size_text(it.saved()).c_str(), text_of("%.4g", it.noise()).c_str(),
                 text_of("%.4g", it.noise_deviation()).c_str(), it.spent_seconds, it.product_seconds);
  };
  for (const auto& it : of.inputs) row(it, text_of("%.5f", it.ratio));
  if (of.inputs.size() > 1) row(of.whole(), "-");  // inputs may have ratios of their own
  std::fflush(out_);
}

void display::closing(const options& chosen, const memory_figures& figures) const
{
  command_line::erase_line(out_);
  std::fprintf(out_, "\nmemory           peak     capacity\n");
  tier_line(out_, "device", figures.device_peak, figures.device_capacity);
  tier_line(out_, "host", figures.host_peak, figures.host_capacity);
  std::fprintf(out_, "moved   %s to the device, %s back; %" PRIu64 " loads, %" PRIu64 " evictions\n",
               size_text(figures.loaded).c_str(), size_text(figures.written_back).c_str(), figures.loads,
               figures.evictions);
  const auto seconds = [](std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; };
  std::fprintf(out_,
               "waited  %.2f s for loads, %.2f s for the optimizer's input, %.2f s for queues, %.2f s for others\n",
               seconds(figures.stalls.demand_miss_nanoseconds), seconds(figures.stalls.optimizer_input_nanoseconds),
               seconds(figures.stalls.throttle_nanoseconds), seconds(figures.stalls.other_nanoseconds));
  std::fprintf(out_, "plan    %" PRIu64 " divergences, %" PRIu64 " replans\n", figures.divergences, figures.replans);
  if (figures.measured) print_measured(out_, *figures.measured);
  if (chosen.when == update_time::late || chosen.when == update_time::early)
    std::fprintf(out_, "updates %" PRIu64 " %s\n", figures.updates_apart,
                 chosen.when == update_time::late ? "waited for the next use of their weights"
                                                  : "came before the norm was known, and stayed");
  if (chosen.precision == chunkmem::dtype::float16) {
    std::fprintf(out_, "scale   loss times %g at the end, %zu steps skipped\n", static_cast<double>(figures.loss_scale),
                 figures.skipped);
  }
  std::fputc('\n', out_);
}

void display::sample(std::string_view prompt, std::string_view written) const
{
  std::string shown;
  for (const std::string_view part : {prompt, std::string_view{"|"}, written}) {
    for (const char each : part) shown.push_back(each == '\n' || (each >= ' ' && each <= '~') ? each : '?');
  }
  std::fprintf(out_, "sampled after the bar:\n%s\n\n", shown.c_str());
}

void display::line(std::string_view text) const
{
  command_line::erase_line(out_);
  std::fprintf(out_, "%.*s\n", static_cast<int>(text.size()), text.data());
  std::fflush(out_);
}

bool display::verdict(const training_result& limited, const training_result& unlimited) const
{
  std::size_t identical = 0;
  const std::size_t count = limited.losses.size();
  for (std::size_t i = 0; i < count && i < unlimited.losses.size(); ++i) {
    const auto left = std::bit_cast<std::uint32_t>(limited.losses[i]);
    identical += left == std::bit_cast<std::uint32_t>(unlimited.losses[i]) ? 1u : 0u;
  }
  const bool same_parameters = limited.parameter_hash == unlimited.parameter_hash;
  std::fprintf(out_, "verify: parameters %s (%016" PRIx64 ", %016" PRIx64 ")\n",
               same_parameters ? "identical" : "DIFFERENT", limited.parameter_hash, unlimited.parameter_hash);
  std::fprintf(out_, "verify: %zu losses, %zu identical\n", count, identical);
  return same_parameters && identical == count && unlimited.losses.size() == count;
}

}  // namespace gpt
