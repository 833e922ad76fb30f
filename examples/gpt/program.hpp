// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../output_file.hpp"
#include "budget.hpp"
#include "file_trace.hpp"
#include "run.hpp"

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/trace/chrome_sink.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>

namespace gpt {

/// A file that can be written, or a sentence before the training starts.
using output_file = command_line::output_file<problem>;

inline void write_report(std::ostream& out, const training_result& result, const std::string& memory)
{
  out << "{\n\"losses\": [";
  char number[32];
  for (std::size_t i = 0; i < result.losses.size(); ++i) {
    std::snprintf(number, sizeof number, "%.9g", static_cast<double>(result.losses[i]));
    // JSON has no other word for it
    out << (i == 0 ? "" : ", ") << (std::isfinite(result.losses[i]) ? number : "null");
  }
  std::snprintf(number, sizeof number, "%016llx", static_cast<unsigned long long>(result.parameter_hash));
  out << "],\n\"parameter_hash\": \"" << number << "\",\n\"memory\": " << memory << "\n}\n";
}

[[nodiscard]] inline unsigned default_threads()
{
  return std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
}

/// The first bytes that were never trained on.
[[nodiscard]] inline std::string_view prompt_of(const training_text& text)
{
  const auto held_out = text.held_out();
  return {reinterpret_cast<const char*>(held_out.data()), std::min<std::size_t>(held_out.size(), 32)};
}

/// Trains once as the command line says: header, steps, table, report, sample.
template <class Training>
training_result train_limited(const training_setup& setup, const memory_budget& budget, const display& show)
{
  const options& chosen = setup.chosen;
  checkpoints<files_of_one> saves{chosen};
  std::optional<output_file> report_file;
  if (chosen.report) report_file.emplace("--report", *chosen.report);
  std::optional<output_file> exported;
  if (chosen.exported) exported.emplace("--export", *chosen.exported);  // an option of those that can
  if (chosen.trace) (void)output_file{"--trace", *chosen.trace};
  chunkmem::trace::chrome_trace trace{chosen.trace ? chunkmem::trace::chrome_trace::default_bound : 0};
  auto limited = session_as_chosen<Training>(setup, budget.device, budget.host, either_gradient{chosen.gradient},
                                             file_trace{chosen.trace ? &trace : nullptr});
  (void)limited.rehearse();
  show.header(chosen, setup.text, budget, setup.chunk);
  if (is_planned(chosen.activations)) show.line(chunkmem::activation::report_of(setup.plan));
  if constexpr (!Training::places_states) {
    show.line(chosen.update == update_choice::gpu ? "updates on the GPU\n" : "updates on threads of the CPU\n");
  }
  limited.fill(&show);
  if (const std::string found = limited.resume(saves); !found.empty()) show.line(found);
  if constexpr (Training::exports) {
    if (exported) {
      limited.write_export(exported->text());
      exported->finish();
    }
  }
  const training_result result = limited.train(&show, &saves);
  show.closing(chosen, limited.figures());
  if (report_file) {
    write_report(report_file->text(), result, limited.report_json());
    report_file->finish();
  }
  if (chosen.trace) {
    trace.describe(limited.places());
    chunkmem::trace::save(trace, chosen.trace->string());
  }
  if (chosen.sample > 0) show.sample(prompt_of(setup.text), limited.sample(prompt_of(setup.text)));
  return result;
}

/// The same training with device memory for everything, the default policies, gradients of their own, and the order of
/// layers that a trainer has without a plan.
template <class Training>
training_result train_unlimited(const training_setup& setup, const memory_budget& budget)
{
  session<Training> unlimited{setup.without_plan(), budget.unlimited_device, budget.unlimited_host, either_gradient{}};
  (void)unlimited.rehearse();
  unlimited.fill();
  return unlimited.train(nullptr, nullptr);
}

/// A whole run: trains as the command line says and, where it asks for it, once more without a limit to compare.
/// @return   what the program exits with
template <class Training>
[[nodiscard]] int run(const options& asked, const training_text& text, const display& show)
{
  options chosen = asked;
  chunkmem::optimizer::thread_pool workers{chosen.threads.value_or(default_threads())};
  const chunkmem::bytes chunk = chunk_for<Training>(chosen, text, workers);
  if constexpr (requires { Training::settle(chosen, text, workers, chunk); })
    Training::settle(chosen, text, workers, chunk);
  training_setup setup{chosen, text, workers, chunk};
  choose_activations<Training>(setup);
  const memory_budget budget = budget_for<Training>(setup);
  const training_result limited = train_limited<Training>(setup, budget, show);
  if (!setup.chosen.verify) return EXIT_SUCCESS;
  show.line("verify: training again with unlimited device memory" +
            std::string{chosen.gradient == gradient_choice::in_place ? " and separate gradients" : ""} + " (" +
            std::to_string(setup.chosen.steps) + " steps, held-out text before and after) ...");
  return show.verdict(limited, train_unlimited<Training>(setup, budget)) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/// Reads the text and runs. @throws problem   something that the user can change
template <class Training>
[[nodiscard]] int run(const options& chosen)
{
  check_checkpoints(chosen);
  const training_text text = chosen.text ? read_text(*chosen.text) : default_text();
  text.expects_windows_of(chosen.size.context);
  return run<Training>(chosen, text, display{stdout});
}

}  // namespace gpt
