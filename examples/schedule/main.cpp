// SPDX-License-Identifier: Apache-2.0
// Prints the schedule of a pipeline as rows of characters and a table, and writes it as a picture, a trace and a text.
#include "options.hpp"
#include "picture.hpp"
#include "rows.hpp"
#include "simulation.hpp"
#include "trace.hpp"

#include "../gpt/problem.hpp"
#include "../output_file.hpp"
#include "../run_program.hpp"

#include <chunkmem/pipeline/schedule_text.hpp>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>

namespace {

using namespace schedule_example;

void write_file(const char* option, const std::filesystem::path& where, const std::string& text)
{
  command_line::write_file<gpt::problem>(option, where, text);
}

void write_files(const options& chosen, const simulation& it)
{
  if (chosen.svg) write_file("--svg", *chosen.svg, picture_of(it));
  if (chosen.trace) write_file("--trace", *chosen.trace, trace_of(it));
  if (!chosen.text) return;
  std::ostringstream text;
  chunkmem::pipeline::schedule_text::write(text, it.plan);
  write_file("--text", *chosen.text, text.str());
}

}  // namespace

int main(int count, char** arguments)
{
  return command_line::run_program("schedule", [&] {
    const options chosen = parse_options(count - 1, arguments + 1);
    if (chosen.common.asks_only()) return command_line::answer("schedule", chosen.common, help_text());
    const simulation it = simulate(chosen);
    if (chosen.common.json) {
      print_json(std::cout, it);
    } else {
      print_rows(std::cout, it);
      print_table(std::cout, it);
      if (chosen.prints_steps) print_steps(std::cout, it);
    }
    std::cout.flush();
    write_files(chosen, it);
    return EXIT_SUCCESS;
  });
}
