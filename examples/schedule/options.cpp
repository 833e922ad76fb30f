// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "../command_line.hpp"
#include "../gpt/problem.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <system_error>

namespace schedule_example {
namespace {

/// The words of the command line before they are parsed. Parsing gives one sentence for each mistake.
struct raw_options {
  std::string stages{}, micro_batches{}, batches{}, parts{}, versions{}, gradient_sets{};
  std::string schedule{}, times{}, update{};
};

void declare(CLI::App& app, raw_options& raw, options& out)
{
  app.add_option("--stages", raw.stages, "stages of the pipeline (4)");
  app.add_option("--microbatches", raw.micro_batches, "micro-batches of a batch (8)");
  app.add_option("--batches", raw.batches, "batches (1, and 3 for 2bw)");
  app.add_option("--schedule", raw.schedule,
                 command_line::listed(generator_names) + ", or a file that --text wrote (1f1b)");
  app.add_option("--parts", raw.parts, "parts of the model on each stage, for interleaved (2)");
  app.add_option("--versions", raw.versions, "versions of the weights, for 2bw (2)");
  app.add_option(
      "--gradient-sets", raw.gradient_sets,
      "sets of gradients of each stage: with two, a concurrent update stops no backward run of the next batch "
      "(default: the number in the schedule)");
  app.add_option("--times", raw.times,
                 "F,B,W,C: seconds of a forward run, of the gradient of the input, of the gradients of the weights and "
                 "of a transfer (1,1,1,0)");
  app.add_option("--update", raw.update, "seconds of an update of a stage's weights (0)");
  app.add_flag("--updates-aside", out.updates_aside,
               "updates run concurrently with the other runs of a stage, as on a CPU");
  app.add_flag("--recompute", out.recomputes,
               "run forward again before each backward run, which saves activation memory");
  app.add_flag("--steps", out.prints_steps, "print the list of steps of each stage");
  app.add_option("--svg", out.svg, "write a picture to this file");
  app.add_option("--trace", out.trace, "write a trace for ui.perfetto.dev to this file");
  app.add_option("--text", out.text, "write the schedule as text to this file");
  command_line::add_common_flags(app, out.common, "print one JSON object in place of rows and table");
  command_line::arrange(
      app,
      {{"Schedule", "WORD", {"--schedule"}},
       {"Schedule", "NUMBER", {"--stages", "--microbatches", "--batches", "--parts", "--versions", "--gradient-sets"}},
       {"Schedule", "", {"--recompute"}},
       {"Times", "NUMBER", {"--times", "--update"}},
       {"Times", "", {"--updates-aside"}},
       {"Output", "FILE", {"--svg", "--trace", "--text"}},
       {"Output", "", {"--steps", "--json", "--version", "--help"}}});
}

/// Whether a text is a time that a picture can show.
bool read_seconds(std::string_view text, double& out)
{
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), out);
  return failure == std::errc{} && end == text.data() + text.size() && (out == 0 || (out >= 1e-9 && out <= 1e6));
}

void read_times(const std::string& text, chunkmem::pipeline::pass_seconds& out)
{
  const std::array<double*, 4> times{&out.forward, &out.backward_input, &out.backward_weight, &out.transfer};
  std::string_view rest = text;
  bool is_good = std::ranges::count(text, ',') == 3;
  for (std::size_t index = 0; is_good && index < times.size(); ++index) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    is_good = read_seconds(rest.substr(0, end), *times[index]);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (!is_good)
    throw gpt::problem{"--times '" + text + "' is not four numbers F,B,W,C of seconds, each 0 or from 1e-9 to 1e6"};
  if (out.all() == 0) throw gpt::problem{"--times '" + text + "' gives no run any time (make F, B or W longer than 0)"};
}

/// Refuses options that would change nothing, since they are mistakes of the user.
void refuse_idle(const CLI::App& app, const options& out)
{
  const auto refuse = [&](std::initializer_list<const char*> names, const std::string& why) {
    command_line::refuse<gpt::problem>(app, names, " has no meaning here: " + why);
  };
  if (out.file)
    refuse({"--stages", "--batches", "--microbatches"}, "the file '" + out.file->string() + "' has this number");
  if (out.file || out.schedule != "interleaved") refuse({"--parts"}, "it belongs to --schedule interleaved");
  if (out.file || out.schedule != "2bw") refuse({"--versions"}, "it belongs to --schedule 2bw");
}

void read_schedule(const raw_options& raw, options& out)
{
  if (raw.schedule.empty()) return;
  if (std::ranges::find(generator_names, raw.schedule) != generator_names.end()) {
    out.schedule = raw.schedule;
  } else if (std::error_code failure; std::filesystem::is_regular_file(raw.schedule, failure)) {
    out.file = raw.schedule;
  } else {
    throw gpt::problem{"--schedule '" + raw.schedule + "' is no file, nor " + command_line::listed(generator_names)};
  }
}

/// The lists have a few steps for each forward run.
void check_size(const options& out)
{
  constexpr std::uint64_t most = 1'000'000;
  const std::uint64_t parts = out.schedule == "interleaved" ? out.numbers.parts : 1;
  const std::uint64_t forward_runs = parts * out.shape.stages * out.shape.micro_batches * out.shape.batches;
  if (forward_runs > most)
    throw gpt::problem{"a schedule of " + std::to_string(forward_runs) + " forward runs is more than the " +
                       std::to_string(most) + " that this program shows (give fewer stages, micro-batches or batches)"};
}

}  // namespace

options parse_options(int count, const char* const* arguments)
{
  raw_options raw;
  options out;
  CLI::App app;
  declare(app, raw, out);
  command_line::read<gpt::problem>(app, count, arguments);
  if (out.common.asks_only()) return out;
  read_schedule(raw, out);
  refuse_idle(app, out);
  if (out.schedule == "2bw") out.shape.batches = 3;  // two of them read the first version
  command_line::read_whole<gpt::problem>("--stages", raw.stages, 1, 4096, out.shape.stages);
  command_line::read_whole<gpt::problem>("--microbatches", raw.micro_batches, 1, 65536, out.shape.micro_batches);
  command_line::read_whole<gpt::problem>("--batches", raw.batches, 1, 4096, out.shape.batches);
  command_line::read_whole<gpt::problem>("--parts", raw.parts, 1, 65536, out.numbers.parts);
  command_line::read_whole<gpt::problem>("--versions", raw.versions, 1, 4096, out.numbers.versions);
  check_size(out);
  command_line::read_whole<gpt::problem>("--gradient-sets", raw.gradient_sets, 1, 64, out.gradient_sets);
  if (!raw.times.empty()) read_times(raw.times, out.shape.seconds);
  if (!raw.update.empty() && !read_seconds(raw.update, out.update))
    throw gpt::problem{"--update '" + raw.update + "' is not a number of seconds, 0 or from 1e-9 to 1e6"};
  return out;
}

std::string help_text()
{
  raw_options raw;
  options out;
  CLI::App app{"Prints the schedule of a pipeline: as rows, as a picture, as a trace.", "schedule"};
  declare(app, raw, out);
  app.footer("Example:\n  schedule --schedule zb-h1 --stages 4 --microbatches 8 --times 1,1,1,0.1 --svg picture.svg");
  return app.help();
}

}  // namespace schedule_example
