// The largest model that each strategy trains on a machine, and what takes which bytes of it.

#include "comparison.hpp"
#include "model_choice.hpp"
#include "options.hpp"
#include "problem.hpp"
#include "table.hpp"

#include <chunkmem/workload/machine_file.hpp>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace max_model;

/// A file that can be written, or a sentence before the work starts.
std::ofstream output_file(const char* option, const std::filesystem::path& where)
{
  std::ofstream out{where};
  if (!out) throw problem{std::string{option} + " '" + where.string() + "' cannot be written (choose another file)"};
  return out;
}

void close(std::ofstream& out, const char* option, const std::filesystem::path& where)
{
  out.close();
  if (!out) throw problem{std::string{option} + " '" + where.string() + "' could not be written to its end"};
}

void print_names()
{
  for (const workload::named_transformer& it : workload::named_transformers)
    std::printf("%s/%s\n", std::string{it.family}.c_str(), std::string{it.name}.c_str());
}

void say(std::string_view strategy, std::uint64_t width, std::size_t number, std::size_t of)
{
  std::fprintf(stderr, "max_model: %zu of %zu: %.*s, width %" PRIu64 "\n", number, of,
               static_cast<int>(strategy.size()), strategy.data(), width);
}

int run(const options& chosen)
{
  const workload::transformer_file model = choose_model(chosen.model);
  training_job job{model.shape, {}, workload::read_machine(chosen.machine.string()), {}};
  job.setup = {.micro_batch = chosen.micro_batch,
               .recomputes_layers = chosen.recomputes,
               .fuses_attention = chosen.fuses_attention,
               .has_logits = chosen.has_logits};
  std::ofstream csv;
  if (chosen.csv) csv = output_file("--csv", *chosen.csv);
  const std::vector<comparison_row> rows = compare(job, chosen, say);
  print_question(stdout, job, model.name);
  print_models(stdout, rows);
  print_bytes(stdout, rows);
  if (!chosen.csv) return EXIT_SUCCESS;
  write_csv(csv, rows);
  close(csv, "--csv", *chosen.csv);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int count, char** arguments)
try {
  const options chosen = parse_options(count - 1, arguments + 1);
  if (chosen.help)
    std::fputs(help_text().c_str(), stdout);
  else if (chosen.lists_models)
    print_names();
  else
    return run(chosen);
  return EXIT_SUCCESS;
} catch (const std::exception& failure) {
  std::fflush(stdout);
  std::fprintf(stderr, "max_model: %s\n", failure.what());
  return 2;
}
