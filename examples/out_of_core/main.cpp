// SPDX-License-Identifier: Apache-2.0
// Trains a convolutional network on pictures of digits. The activations of a step have four times the bytes that the
// device has for them, and the program can prove that no bit of the result depends on that.
#include "budget.hpp"
#include "options.hpp"
#include "pictures.hpp"
#include "training.hpp"

#include <chunkmem/activation/activation_plan.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

namespace {

using namespace out_of_core;
using gpt::size_text;

void print_pictures(const picture_set& pictures)
{
  std::printf("pictures     %s: %zu to learn from, %zu held out\n", pictures.name.c_str(), pictures.training.size(),
              pictures.held_out.size());
}

void print_memory(const memory_budget& budget)
{
  const auto over = [&](chunkmem::bytes part) {
    return static_cast<double>(budget.activations.count()) / static_cast<double>(part.count());
  };
  const memory_limits& given = budget.limited;
  std::printf("activations  %s in one step\n", size_text(budget.activations).c_str());
  std::printf("device       %s, of which activations, slopes and workspaces may have %s; a step needs at least %s\n",
              size_text(given.device).c_str(), size_text(given.for_activations).c_str(),
              size_text(budget.least).c_str());
  std::printf("factor       activations are %.2f times their part of the device, and %.2f times the whole device\n",
              over(given.for_activations), over(given.device));
  std::printf("%s\n", chunkmem::activation::report_of(given.plan).c_str());
}

void print_held_out(std::size_t step, std::size_t steps, float loss, const held_out_result& seen)
{
  std::printf("step %zu/%zu   loss %.4f  held out: loss %.4f, accuracy %.1f %%\n", step, steps,
              static_cast<double>(loss), static_cast<double>(seen.loss), static_cast<double>(seen.accuracy));
  std::fflush(stdout);
}

void print_report(const chunkmem::report& report)
{
  using chunkmem::tier;
  for (const tier where : {tier::device, tier::host})
    std::printf("%-12s peak %s of %s\n", where == tier::device ? "device" : "host",
                size_text(report.peak[where]).c_str(), size_text(report.capacity[where]).c_str());
  std::printf("moved        %s to the device, %s back; %llu loads, %llu evictions, %llu divergences\n",
              size_text(report.loaded).c_str(), size_text(report.written_back).c_str(),
              static_cast<unsigned long long>(report.loads), static_cast<unsigned long long>(report.evictions),
              static_cast<unsigned long long>(report.divergences));
}

/// @param shows   a line for each quarter of the steps, and the report
training_result train(const options& chosen, const picture_set& pictures, const memory_limits& limits, bool shows)
{
  training run{pictures, chosen.batch, limits, chosen.planner};
  (void)run.rehearse();
  run.fill();
  training_result result;
  result.held_out.push_back(run.held_out());
  const std::size_t every = std::max<std::size_t>(1, chosen.steps / 4);
  for (std::size_t step = 0; step < chosen.steps; ++step) {
    result.losses.push_back(run.step(step));
    if ((step + 1) % every != 0 && step + 1 != chosen.steps) continue;
    result.held_out.push_back(run.held_out());
    if (shows) print_held_out(step + 1, chosen.steps, result.losses.back(), result.held_out.back());
  }
  result.weights = run.weights();
  if (shows) print_report(run.report());
  return result;
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

/// Trains again with room for everything. @return   whether all bits are the same
bool verify(const options& chosen, const picture_set& pictures, const memory_budget& budget,
            const training_result& result)
{
  const training_result other = train(chosen, pictures, budget.unlimited, false);
  const bool has_losses = has_same_bits(result.losses, other.losses) && has_same_bits(result.held_out, other.held_out);
  const bool has_weights = has_same_bits(result.weights, other.weights);
  std::printf("verify       %zu losses %s, %zu weights %s, compared with a device of %s that keeps everything\n",
              result.losses.size() + result.held_out.size(), has_losses ? "identical" : "DIFFERENT",
              result.weights.size(), has_weights ? "identical" : "DIFFERENT",
              size_text(budget.unlimited.device).c_str());
  return has_losses && has_weights;
}

}  // namespace

int main(int count, char** arguments)
try {
  const options chosen = parse_options(count - 1, arguments + 1);
  if (chosen.help) {
    std::fputs(help_text().c_str(), stdout);
    return EXIT_SUCCESS;
  }
  const picture_set pictures = chosen.pictures ? read_pictures(*chosen.pictures) : drawn_pictures();
  print_pictures(pictures);
  const memory_budget budget = budget_for(chosen, pictures);
  print_memory(budget);
  const training_result result = train(chosen, pictures, budget.limited, true);
  const bool is_same = !chosen.verify || verify(chosen, pictures, budget, result);
  return has_learned(chosen, result) && is_same ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& failure) {
  std::fflush(stdout);
  std::fprintf(stderr, "out_of_core: %s\n", failure.what());
  return 2;
}
