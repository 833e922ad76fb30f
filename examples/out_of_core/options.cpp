// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "../command_line.hpp"
#include "../gpt/problem.hpp"
#include "../gpt/size_text.hpp"

#include <algorithm>

namespace out_of_core {
namespace {

/// The words of the command line before they are parsed: this program's own sentences report errors.
struct raw_options {
  std::string steps{}, batch{}, device{}, planner{}, least_accuracy{};
};

void declare(CLI::App& app, raw_options& raw, options& out)
{
  app.add_option("--steps", raw.steps, "steps of training (100)");
  app.add_option("--batch", raw.batch, "pictures of a step, at least 8 (64)");
  app.add_option("--device", raw.device, "memory of the device, such as 4MiB (default: a quarter of all activations)");
  app.add_option("--planner", raw.planner,
                 "planner of activations: " + command_line::listed(planner_names) + " (planned)");
  app.add_option("--pictures", out.pictures,
                 "a file of pictures, see digits.py (default: pictures that this program draws)");
  app.add_option("--least-accuracy", raw.least_accuracy,
                 "percent of held-out pictures that must be right at the end, else the exit status is 1 (0)");
  app.add_flag("--verify", out.verify, "train again on a device that holds everything, and compare every bit");
  command_line::add_common_flags(
      app, out.common,
      "print losses and the memory report as one JSON object on standard output, and all text on standard error");
  command_line::arrange(app, {{"Training", "NUMBER", {"--steps", "--batch", "--least-accuracy"}},
                              {"Training", "FILE", {"--pictures"}},
                              {"Memory", "SIZE", {"--device"}},
                              {"Memory", "WORD", {"--planner"}},
                              {"Output", "", {"--verify", "--json", "--version", "--help"}}});
}

planner_choice planner_of(const std::string& text)
{
  const auto found = std::ranges::find(planner_names, text);
  if (found == planner_names.end())
    throw gpt::problem{"--planner '" + text + "' is not " + command_line::listed(planner_names)};
  return static_cast<planner_choice>(found - planner_names.begin());
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
  command_line::read_whole<gpt::problem>("--steps", raw.steps, 1, 1000000, out.steps);
  command_line::read_whole<gpt::problem>("--batch", raw.batch, 8, 4096, out.batch);
  command_line::read_whole<gpt::problem>("--least-accuracy", raw.least_accuracy, 0, 100, out.least_accuracy);
  if (!raw.device.empty()) out.device = gpt::parse_size("--device", raw.device);
  if (!raw.planner.empty()) out.planner = planner_of(raw.planner);
  return out;
}

std::string help_text()
{
  raw_options raw;
  options out;
  CLI::App app{"Trains a convolutional network on pictures of digits, on a device of a quarter of its activations.",
               "out_of_core"};
  declare(app, raw, out);
  app.footer("Example:\n  out_of_core --batch 16 --steps 32 --verify");
  return app.help();
}

}  // namespace out_of_core
