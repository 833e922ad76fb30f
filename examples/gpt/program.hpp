// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../output_file.hpp"
#include "budget.hpp"
#include "file_trace.hpp"
#include "metrics.hpp"
#include "report.hpp"
#include "run.hpp"
#include "sample_ratios.hpp"
#include "size_text.hpp"

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/activation/ratio_search.hpp>
#include <chunkmem/activation/sampled_input.hpp>
#include <chunkmem/trace/chrome_sink.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace gpt {

/// A file that can be written; else a sentence before the training starts.
using output_file = command_line::output_file<problem>;

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
/// @param ratios   file of measured ratios. It is written before the first step, after the checks of a checkpoint
template <class Training>
training_result train_limited(const training_setup& setup, const memory_budget& budget, const display& show,
                              std::optional<output_file>& ratios)
{
  const options& chosen = setup.chosen;
  checkpoints<files_of_model> saves{chosen};
  std::optional<output_file> report_file;
  if (chosen.report) report_file.emplace("--report", *chosen.report);
  std::optional<output_file> exported;
  if (chosen.exported) exported.emplace("--export", *chosen.exported);  // an option of those that can
  if (chosen.trace) (void)output_file{"--trace", *chosen.trace};
  check_metrics(chosen);
  chunkmem::trace::chrome_trace trace{chosen.trace ? chunkmem::trace::chrome_trace::default_bound : 0};
  auto limited = session_as_chosen<Training>(setup, budget.device, budget.host, either_gradient{chosen.gradient},
                                             file_trace{chosen.trace ? &trace : nullptr});
  (void)limited.rehearse();
  show.header(chosen, setup.text, budget, setup.chunk);
  if constexpr (!Training::foresees)
    if (is_planned(chosen.activations)) show.line(chunkmem::activation::report_of(setup.plan));
  if constexpr (!Training::places_states) {
    show.line(chosen.update == update_choice::gpu ? "updates on the GPU\n" : "updates on threads of the CPU\n");
  }
  limited.fill(&show);
  if (const std::string found = limited.resume(saves); !found.empty()) show.line(found);
  if (ratios) {
    ratios->finish();
    show.line("ratios written to " + chosen.ratio_file.string());
  }
  if constexpr (Training::exports) {
    if (exported) {
      limited.write_export(exported->text());
      exported->finish();
    }
  }
  const training_result result = limited.train(&show, &saves);
  const bool is_whole = result.steps == chosen.steps;
  if (is_whole)
    if (const std::string written = limited.save_weights(); !written.empty()) show.line(written);
  show.closing(chosen, limited.figures());
  const std::string noise = chosen.noise > 0 ? limited.noise_json() : std::string{};
  if (report_file) {
    write_report(report_file->text(), chosen, result, limited.report_json(), noise);
    report_file->finish();
  }
  if (chosen.trace) {
    trace.describe(limited.places());
    chunkmem::trace::save(trace, chosen.trace->string());
  }
  if (chosen.sample > 0 && result.signal == 0)
    show.sample(prompt_of(setup.text), limited.sample(prompt_of(setup.text)));
  if (result.signal != 0) show.line(end_of(chosen, result));
  print_json(chosen, result, limited.report_json(), noise);
  return result;
}

/// The same training with device memory for everything, the default policies, separate gradients, and the order of
/// layers that a trainer has without a plan.
template <class Training>
training_result train_unlimited(const training_setup& setup, const memory_budget& budget)
{
  session<Training> unlimited{setup.without_plan(), budget.unlimited_device, budget.unlimited_host, either_gradient{}};
  (void)unlimited.rehearse();
  unlimited.fill();
  return unlimited.train(nullptr, nullptr);
}

/// One row of each sampled input: its name, and its number of rows.
struct named_input {
  std::string name;
  chunkmem::activation::sampling_options options;
};
template <class Training>
[[nodiscard]] std::vector<named_input> inputs_of(session<Training>& of)
{
  std::vector<named_input> all;
  of.sampled_inputs()->for_each_input([&](const std::string& name, const auto& how) { all.push_back({name, how}); });
  return all;
}

/// Bytes for kept rows, of one row of a batch.
/// @throws problem   too few bytes for the smallest ratio of each input
[[nodiscard]] inline chunkmem::bytes room_for(const options& chosen, const std::vector<named_input>& inputs)
{
  const auto all_with = [&](double ratio) {
    chunkmem::bytes sum;
    for (named_input it : inputs) {
      it.options.ratio = ratio;
      sum += it.options.size(chunkmem::dtype::float32);
    }
    return sum * chosen.size.batch;
  };
  chunkmem::bytes exact;
  for (const named_input& it : inputs) exact += it.options.size_of_all(chunkmem::dtype::float32) * chosen.size.batch;
  chunkmem::bytes room = chosen.room.size.value_or(all_with(0.3));
  if (chosen.room.share)
    room = chunkmem::bytes{static_cast<std::uint64_t>(static_cast<double>(exact.count()) * *chosen.room.share)};
  const chunkmem::bytes least = all_with(1.0 / chunkmem::activation::ratio_search::steps);
  if (room < least)
    throw problem{
        "--sample-room leaves " + std::to_string(room.count()) + " B for the kept rows of all inputs of a batch, and " +
        std::to_string(least.count()) + " B are needed for a 32nd of each (give that much" +
        (least < exact ? ", which is " + std::to_string(least.count() * 100 / exact.count() + 1) + "%)" : ")")};
  return chunkmem::bytes{room.count() / chosen.size.batch};
}

/// Ratios by the rows of the first steps of a training, which keeps all rows and is discarded.
/// @throws problem   see room_for; as budget_for
template <class Training>
[[nodiscard]] std::vector<input_ratio> measured_ratios(const options& asked, const training_text& text,
                                                       chunkmem::optimizer::thread_pool& workers)
{
  options exact = asked;
  exact.device_memory.reset();  // all rows may need more than some rows
  exact.host_memory.reset();
  exact.verify = false;
  exact.noise = 0;
  training_setup setup{exact, text, workers, chunk_for<Training>(exact, text, workers)};
  choose_activations<Training>(setup);
  const memory_budget budget = budget_for<Training>(setup);
  session<Training> measured{setup, budget.device, budget.host, either_gradient{exact.gradient}};
  const std::vector<named_input> inputs = inputs_of(measured);
  const chunkmem::bytes room = room_for(asked, inputs);
  (void)measured.rehearse();
  measured.fill();
  chunkmem::activation::ratio_search search;
  measured.measure(search, measured_steps);
  const chunkmem::activation::sampling_ratios found = search.within(room);
  std::vector<input_ratio> ratios;
  for (std::size_t at = 0; at < found.ratios.size(); ++at) {
    const auto input = std::ranges::find(inputs, found.names[at], &named_input::name);
    ratios.push_back({found.names[at], found.ratios[at], found.sizes[at] * asked.size.batch,
                      input->options.size_of_all(chunkmem::dtype::float32) * asked.size.batch, found.noises[at]});
  }
  return ratios;
}

/// Checks that the file of ratios is no other file of this run. @throws problem   names the option of the other file
inline void check_ratio_file(const options& chosen)
{
  const std::filesystem::path mine = chosen.sample_file.value_or(chosen.ratio_file);
  const std::string begin = chosen.sample_file ? "--activations 'sample=" : "--sample-file '";
  const std::pair<const char*, const std::optional<std::filesystem::path>&> others[] = {
      {"--report", chosen.report},
      {"--trace", chosen.trace},
      {"--metrics", chosen.metrics},
      {"--export", chosen.exported},
      {"--text", chosen.text},
      {"--init", chosen.init},
      {"--export-weights", chosen.export_weights},
      {"--checkpoint", chosen.checkpoint},
      {"--resume", chosen.resume}};
  for (const auto& [option, other] : others)
    if (other && command_line::place_of(*other) == command_line::place_of(mine))
      throw problem{begin + mine.string() + "' is also the file of " + option +
                    " (choose another file for one of them)"};
}

/// The ratios of inputs that have their own: measured, or of a file.
/// @return   the file for measured ratios, not written yet: a refused run replaces no file
/// @throws problem   the file is of another model or broken, or cannot be written; as measured_ratios
template <class Training>
[[nodiscard]] std::optional<output_file> settle_ratios(options& chosen, const training_text& text,
                                                       chunkmem::optimizer::thread_pool& workers, const display& show)
{
  std::optional<output_file> out;
  if (chosen.measures_ratios || chosen.sample_file) check_ratio_file(chosen);
  if (chosen.measures_ratios) {
    out.emplace("--sample-file", chosen.ratio_file);
    chosen.sample_ratios = measured_ratios<Training>(chosen, text, workers);
    write_ratios(out->text(), chosen.size, chosen.sample_ratios);
    chunkmem::bytes kept, exact;
    for (const input_ratio& it : chosen.sample_ratios) kept += it.kept, exact += it.exact;
    show.line("ratios of " + std::to_string(chosen.sample_ratios.size()) + " inputs by " +
              std::to_string(measured_steps) + " measured steps, " + size_text(kept) + " of " + size_text(exact) +
              " kept");
  }
  if (chosen.sample_file) {
    chosen.sample_ratios = read_ratios(*chosen.sample_file, chosen.size);
    const auto chunk = align_up(chunkmem::bytes{Training::largest_tensor_bytes(chosen.size)}, chunkmem::bytes{4096});
    session<Training> none{{chosen, text, workers, chunk}, boundless, boundless, either_gradient{chosen.gradient}};
    std::vector<sized_input> here;
    for (const named_input& it : inputs_of(none))
      here.push_back({it.name, it.options.size_of_all(chunkmem::dtype::float32) * chosen.size.batch,
                      [how = it.options, batch = chosen.size.batch](double ratio) mutable {
                        how.ratio = ratio;
                        return how.size(chunkmem::dtype::float32) * batch;
                      }});
    expect_inputs(*chosen.sample_file, chosen.sample_ratios, here);
  }
  return out;
}

/// A whole run: trains as the command line says and, with --verify, once more without a limit to compare.
/// @return   the exit status of the program
template <class Training>
[[nodiscard]] int run(const options& asked, const training_text& text, const display& show)
{
  options chosen = asked;
  chunkmem::optimizer::thread_pool workers{chosen.threads.value_or(default_threads())};
  std::optional<output_file> ratios;
  if constexpr (session<Training>::samples) ratios = settle_ratios<Training>(chosen, text, workers, show);
  const chunkmem::bytes chunk = chunk_for<Training>(chosen, text, workers);
  if constexpr (requires { Training::settle(chosen, text, workers, chunk); })
    Training::settle(chosen, text, workers, chunk);
  training_setup setup{chosen, text, workers, chunk};
  choose_activations<Training>(setup);
  setup.is_followed = Training::foresees;
  const memory_budget budget = budget_for<Training>(setup);
  const training_result limited = train_limited<Training>(setup, budget, show, ratios);
  if (limited.signal != 0) return command_line::interruption::exit_status(limited.signal);
  if (!setup.chosen.verify) return EXIT_SUCCESS;
  show.line("verify: training again with unlimited device memory" +
            std::string{chosen.gradient == gradient_choice::in_place ? " and separate gradients" : ""} + " (" +
            std::to_string(setup.chosen.steps) + " steps, held-out text before and after) ...");
  const training_result other = train_unlimited<Training>(setup, budget);
  if (other.signal != 0) {
    show.line(end_of_verify(other));
    return command_line::interruption::exit_status(other.signal);
  }
  return show.verdict(limited, other) ? EXIT_SUCCESS : EXIT_FAILURE;
}

/// Reads the text and runs. @throws problem   an error that the user can correct
template <class Training>
[[nodiscard]] int run(const options& chosen)
{
  check_checkpoints(chosen);
  const training_text text = chosen.text ? read_text(*chosen.text) : default_text();
  text.expects_windows_of(chosen.size.context);
  command_line::interruption::listen();
  return run<Training>(chosen, text, display{stream_of_text(chosen)});
}

}  // namespace gpt
