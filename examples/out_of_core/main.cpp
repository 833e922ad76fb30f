// SPDX-License-Identifier: Apache-2.0
// Trains a convolutional network on pictures of digits. The activations of a step have four times the bytes that the
// device has for them, and the program can prove that no bit of the result depends on that.
#include "../interruption.hpp"
#include "../json_text.hpp"
#include "../progress_line.hpp"
#include "../run_program.hpp"
#include "budget.hpp"
#include "options.hpp"
#include "pictures.hpp"
#include "training.hpp"

#include <chunkmem/activation/activation_plan.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

namespace {

using namespace out_of_core;
using gpt::size_text;

void print_pictures(std::FILE* text, const picture_set& pictures)
{
  std::fprintf(text, "pictures     %s: %zu to train on, %zu held out\n", pictures.name.c_str(),
               pictures.training.size(), pictures.held_out.size());
}

void print_memory(std::FILE* text, const memory_budget& budget)
{
  const auto over = [&](chunkmem::bytes part) {
    return static_cast<double>(budget.activations.count()) / static_cast<double>(part.count());
  };
  const memory_limits& given = budget.limited;
  std::fprintf(text, "activations  %s in one step\n", size_text(budget.activations).c_str());
  std::fprintf(
      text, "device       %s, of which activations, slopes and workspaces may have %s; a step needs at least %s\n",
      size_text(given.device).c_str(), size_text(given.for_activations).c_str(), size_text(budget.least).c_str());
  std::fprintf(text,
               "factor       activations are %.2f times their part of the device, and %.2f times the whole device\n",
               over(given.for_activations), over(given.device));
  std::fprintf(text, "%s\n", chunkmem::activation::report_of(given.plan).c_str());
}

void print_held_out(std::FILE* text, std::size_t step, std::size_t steps, float loss, const held_out_result& seen)
{
  std::fprintf(text, "step %zu/%zu   loss %.4f  held out: loss %.4f, accuracy %.1f %%\n", step, steps,
               static_cast<double>(loss), static_cast<double>(seen.loss), static_cast<double>(seen.accuracy));
  std::fflush(text);
}

void print_report(std::FILE* text, const chunkmem::report& report)
{
  using chunkmem::tier;
  for (const tier where : {tier::device, tier::host})
    std::fprintf(text, "%-12s peak %s of %s\n", where == tier::device ? "device" : "host",
                 size_text(report.peak[where]).c_str(), size_text(report.capacity[where]).c_str());
  std::fprintf(text, "moved        %s to the device, %s back; %llu loads, %llu evictions, %llu divergences\n",
               size_text(report.loaded).c_str(), size_text(report.written_back).c_str(),
               static_cast<unsigned long long>(report.loads), static_cast<unsigned long long>(report.evictions),
               static_cast<unsigned long long>(report.divergences));
}

/// Text for people: on standard output, or on standard error with --json.
std::FILE* stream_of_text(const options& chosen)
{
  return chosen.common.json ? stderr : stdout;
}

/// A signal ends the training after the current step.
/// @param shows   a line for each quarter of the steps, and the report
training_result train(const options& chosen, const picture_set& pictures, const memory_limits& limits, bool shows)
{
  std::FILE* const text = stream_of_text(chosen);
  training run{pictures, chosen.batch, limits, chosen.planner};
  (void)run.rehearse();
  run.fill();
  training_result result;
  result.held_out.push_back(run.held_out());
  command_line::progress_line progress{shows ? "step" : "verify"};
  const std::size_t every = std::max<std::size_t>(1, chosen.steps / 4);
  for (std::size_t step = 0; step < chosen.steps && result.signal == 0; ++step) {
    result.losses.push_back(run.step(step));
    result.signal = command_line::interruption::signal();
    progress.tell(step + 1, chosen.steps);
    if ((step + 1) % every != 0 && step + 1 != chosen.steps) continue;
    result.held_out.push_back(run.held_out());
    progress.erase();
    if (shows) print_held_out(text, step + 1, chosen.steps, result.losses.back(), result.held_out.back());
  }
  progress.erase();
  result.weights = run.weights();
  result.report = run.report();
  if (shows) print_report(text, result.report);
  return result;
}

/// @param is_same   the result of --verify
void print_json(const options& chosen, const memory_budget& budget, const training_result& result,
                std::optional<bool> is_same)
{
  using namespace command_line;
  json_object all;
  all.add("program", "out_of_core")
      .add("steps", result.losses.size())
      .add("of", chosen.steps)
      .add_json("ended_by", result.signal == 0 ? "null" : json_quoted(interruption::name(result.signal)))
      .add("activation_bytes", budget.activations.count())
      .add("device_bytes", budget.limited.device.count())
      .add_json("losses", json_list(result.losses, [](float loss) { return json_number(loss); }))
      .add_json("held_out", json_list(result.held_out,
                                      [](const held_out_result& it) {
                                        return json_object{}.add("loss", it.loss).add("accuracy", it.accuracy).text();
                                      }))
      .add_json("memory", result.report.json())
      .add_json("verified", !is_same   ? "null"
                            : *is_same ? "true"
                                       : "false");
  std::puts(all.text().c_str());
}

/// @return   whether the network learned something
bool has_learned(const options& chosen, const training_result& result)
{
  const held_out_result& before = result.held_out.front();
  const held_out_result& after = result.held_out.back();
  if (after.loss < before.loss && after.accuracy >= static_cast<float>(chosen.least_accuracy)) return true;
  std::fprintf(stderr,
               "out_of_core: the loss of pictures held out went from %.4f to %.4f, and %.1f percent of them are right "
               "(train more steps)\n",
               static_cast<double>(before.loss), static_cast<double>(after.loss), static_cast<double>(after.accuracy));
  return false;
}

template <class Number>
bool has_same_bits(const std::vector<Number>& one, const std::vector<Number>& other)
{
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size() * sizeof(Number)) == 0;
}

/// Trains again with room for everything. @return   whether all bits are the same; nothing: a signal ended it
std::optional<bool> verify(const options& chosen, const picture_set& pictures, const memory_budget& budget,
                           const training_result& result)
{
  const training_result other = train(chosen, pictures, budget.unlimited, false);
  if (other.signal != 0) return {};
  std::FILE* const text = stream_of_text(chosen);
  const bool has_losses = has_same_bits(result.losses, other.losses) && has_same_bits(result.held_out, other.held_out);
  const bool has_weights = has_same_bits(result.weights, other.weights);
  std::fprintf(text, "verify       %zu losses %s, %zu weights %s, compared with a device of %s that keeps everything\n",
               result.losses.size() + result.held_out.size(), has_losses ? "identical" : "DIFFERENT",
               result.weights.size(), has_weights ? "identical" : "DIFFERENT",
               size_text(budget.unlimited.device).c_str());
  return has_losses && has_weights;
}

/// Prints that a signal ended a training. @return   the exit status
int tell_end(const options& chosen, int signal, const std::string& what)
{
  std::fprintf(stream_of_text(chosen), "ended by %s %s\n", command_line::interruption::name(signal).c_str(),
               what.c_str());
  return command_line::interruption::exit_status(signal);
}

int run(const options& chosen)
{
  command_line::interruption::listen();
  std::FILE* const text = stream_of_text(chosen);
  const picture_set pictures = chosen.pictures ? read_pictures(*chosen.pictures) : drawn_pictures();
  print_pictures(text, pictures);
  const memory_budget budget = budget_for(chosen, pictures);
  print_memory(text, budget);
  const training_result result = train(chosen, pictures, budget.limited, true);
  std::optional<bool> is_same;
  if (chosen.verify && result.signal == 0) is_same = verify(chosen, pictures, budget, result);
  if (chosen.common.json) print_json(chosen, budget, result, is_same);
  if (result.signal != 0)
    return tell_end(chosen, result.signal,
                    "after step " + std::to_string(result.losses.size()) + " of " + std::to_string(chosen.steps) +
                        ": nothing was saved (start it again)");
  if (chosen.verify && !is_same)
    return tell_end(chosen, command_line::interruption::signal(), "in the second training: nothing was compared");
  return has_learned(chosen, result) && is_same.value_or(true) ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int count, char** arguments)
{
  return command_line::run_program("out_of_core", [&] {
    const options chosen = parse_options(count - 1, arguments + 1);
    if (chosen.common.asks_only()) return command_line::answer("out_of_core", chosen.common, help_text());
    return run(chosen);
  });
}
