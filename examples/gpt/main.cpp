// Trains a small GPT on real text in a quarter of the device memory it needs, and can prove that nothing changed.

#include "budget.hpp"
#include "file_trace.hpp"
#include "run.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

namespace {

using namespace gpt;

/// A file that can be written, or a sentence before the training starts.
std::ofstream output_file(const char* option, const std::filesystem::path& where)
{
  std::ofstream out{where};
  if (!out) throw problem{std::string{option} + " '" + where.string() + "' cannot be written (choose another file)"};
  return out;
}

void write_report(std::ofstream& out, const training_result& result, const std::string& memory)
{
  out << "{\n\"losses\": [";
  char number[32];
  for (std::size_t i = 0; i < result.losses.size(); ++i) {
    std::snprintf(number, sizeof number, "%.9g", static_cast<double>(result.losses[i]));
    out << (i == 0 ? "" : ", ") << number;
  }
  std::snprintf(number, sizeof number, "%016llx", static_cast<unsigned long long>(result.parameter_hash));
  out << "],\n\"parameter_hash\": \"" << number << "\",\n\"memory\": " << memory << "\n}\n";
}

unsigned default_threads()
{
  return std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
}

/// The first bytes that were never trained on.
std::string_view prompt_of(const training_text& text)
{
  const auto held_out = text.held_out();
  return {reinterpret_cast<const char*>(held_out.data()), std::min<std::size_t>(held_out.size(), 32)};
}

/// Trains once as the command line says: header, steps, table, report, sample.
template <class Manager>
training_result train_limited(const training_setup& setup, const memory_budget& budget, const display& show)
{
  const options& chosen = setup.chosen;
  checkpoints saves{chosen};
  std::ofstream report_file;
  if (chosen.report) report_file = output_file("--report", *chosen.report);
  std::ofstream exported;
  if (chosen.exported) exported = output_file("--export", *chosen.exported);
  if (chosen.trace) (void)output_file("--trace", *chosen.trace);
  chunkmem::trace::chrome_trace trace{chosen.trace ? chunkmem::trace::chrome_trace::default_bound : 0};
  auto limited = session_as_chosen<Manager>(setup, budget.device, budget.host, either_gradient{chosen.gradient},
                                            file_trace{chosen.trace ? &trace : nullptr});
  (void)limited.rehearse();
  show.header(chosen, setup.text, budget, setup.chunk);
  limited.fill();
  if (const std::string found = limited.resume(saves); !found.empty()) show.line(found);
  if (chosen.exported) limited.write_export(exported);
  const training_result result = limited.train(&show, &saves);
  show.closing(chosen, limited.figures());
  if (chosen.report) write_report(report_file, result, limited.report_json());
  if (chosen.trace) chunkmem::trace::save(trace, chosen.trace->string());
  if (chosen.sample > 0) show.sample(prompt_of(setup.text), limited.sample(prompt_of(setup.text)));
  return result;
}

/// The same training with device memory for everything, the default policies, and gradients of their own.
template <class Manager>
training_result train_unlimited(const training_setup& setup, const memory_budget& budget)
{
  session<Manager> unlimited{setup, budget.unlimited_device, budget.unlimited_host, either_gradient{}};
  (void)unlimited.rehearse();
  unlimited.fill();
  return unlimited.train(nullptr, nullptr);
}

template <class Manager>
int run(const options& chosen, const training_text& text, const display& show)
{
  chunkmem::optimizer::thread_pool workers{chosen.threads.value_or(default_threads())};
  const training_setup setup{chosen, text, workers, chunk_for<Manager>(chosen, text, workers)};
  const memory_budget budget = budget_for<Manager>(setup);
  const training_result limited = train_limited<Manager>(setup, budget, show);
  if (!setup.chosen.verify) return EXIT_SUCCESS;
  show.line("verify: training again with unlimited device memory" +
            std::string{chosen.gradient == gradient_choice::in_place ? " and separate gradients" : ""} + " (" +
            std::to_string(setup.chosen.steps) + " steps, held-out text before and after) ...");
  return show.verdict(limited, train_unlimited<Manager>(setup, budget)) ? EXIT_SUCCESS : EXIT_FAILURE;
}

using manager = chunkmem::manager<chunkmem::backend::host_arena, any_eviction, any_layout, any_placement, any_transfer,
                                  file_trace, either_gradient>;

int run(const options& chosen)
{
  check_checkpoints(chosen);
  const training_text text = chosen.text ? read_text(*chosen.text) : default_text();
  text.expects_windows_of(chosen.size.context);
  return run<manager>(chosen, text, display{stdout});
}

}  // namespace

int main(int count, char** arguments)
try {
  const options chosen = parse_options(count - 1, arguments + 1);
  if (chosen.help) {
    std::fputs(help_text().c_str(), stdout);
    return EXIT_SUCCESS;
  }
  return run(chosen);
} catch (const std::exception& failure) {
  std::fflush(stdout);
  std::fprintf(stderr, "gpt: %s\n", failure.what());
  return 2;
}
