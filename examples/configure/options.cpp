// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "../command_line.hpp"
#include "../max_model/problem.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace configure_example {
namespace {

namespace configurator = chunkmem::configurator;
using max_model::problem;

struct raw_options {
  std::string sequence{}, rows{}, schedules{}, threads{}, best{}, seconds{}, device{}, host{};
  std::string activation_bytes{}, sums{}, optimizer{};
};

void declare(CLI::App& app, raw_options& raw, options& out)
{
  app.add_option("--cluster", out.cluster, "JSON file of a cluster, as probe_links writes it");
  app.add_option("--model", out.model, "JSON file of a transformer, or the name of one (--models lists them)");
  app.add_option("--profile", out.profile,
                 "JSON file of measured times and bytes of that model: plans are cut between its parts");
  app.add_flag("--models", out.lists_models, "print the names of models");
  app.add_option("--rows", raw.rows, "rows of a batch, over all replicas");
  app.add_option("--sequence", raw.sequence, "tokens of a row (default: the model's)");
  app.add_option("--schedules", raw.schedules,
                 "schedules to try, with commas: gpipe, 1f1b, eager, interleaved, 2bw, zb-h1, zb-h2, zb-v (all but "
                 "2bw, which trains with older weights)");
  app.add_flag("!--without-tensor-parallelism", out.space.with_tensor, "leave out plans whose ranks share layers");
  app.add_flag("!--without-cuts", out.space.with_cuts,
               "with --profile: leave out plans whose stages have unequal numbers of layers");
  app.add_flag("--with-zero-0", out.space.with_zero_0, "add plans whose replicas divide nothing");
  app.add_option("--activation-bytes", raw.activation_bytes, "bytes of an activation value (2; 4 for gpt)");
  app.add_option(
      "--sums", raw.sums,
      "ring: ranks add up in a ring, as NCCL does; direct: each sends to every other one, as over MPI (ring)");
  app.add_option("--optimizer", raw.optimizer,
                 "adam, momentum or sgd; or its lists besides masters: 3x4 means three lists of 4 bytes (adam)");
  app.add_option("--device-allowance", raw.device,
                 "bytes that a process takes on its device in addition to the plan (0)");
  app.add_option("--host-allowance", raw.host, "bytes that a process takes on its host in addition to the plan (0)");
  app.add_option("--threads", raw.threads, "threads of the search (1)");
  app.add_option("--best", raw.best, "plans that are printed (10)");
  app.add_option("--seconds", raw.seconds, "end the search after this many seconds, with the best plans so far");
  app.add_flag("--quiet", out.is_quiet, "do not show the progress of the search");
  app.add_option("--plan", out.plan, "write the best plan that can be run to this file");
  app.add_option("--plans", out.plans, "write all printed plans that can be run to this folder: 1.plan, 2.plan, ...");
  app.add_option("--trace", out.trace, "write a trace of its first pipeline, for ui.perfetto.dev, to this file");
  app.add_option("--svg", out.svg, "write a picture of its first pipeline to this file");
  command_line::add_common_flags(app, out.common, "print one JSON object in place of the tables");
  command_line::arrange(app,
                        {{"Problem", "FILE", {"--cluster", "--profile"}},
                         {"Problem", "WORD", {"--model", "--sums", "--optimizer"}},
                         {"Problem", "NUMBER", {"--rows", "--sequence", "--activation-bytes"}},
                         {"Problem", "BYTES", {"--device-allowance", "--host-allowance"}},
                         {"Problem", "", {"--models"}},
                         {"Search", "WORD", {"--schedules"}},
                         {"Search", "NUMBER", {"--threads", "--best", "--seconds"}},
                         {"Search", "", {"--without-tensor-parallelism", "--without-cuts", "--with-zero-0", "--quiet"}},
                         {"Output", "FILE", {"--plan", "--trace", "--svg"}},
                         {"Output", "FOLDER", {"--plans"}},
                         {"Output", "", {"--json", "--version", "--help"}}});
}

[[nodiscard]] std::vector<configurator::schedule_kind> schedules_of(const std::string& text)
{
  std::vector<std::string> known;
  for (std::size_t kind = 0; kind < configurator::schedule_kinds; ++kind)
    known.emplace_back(name_of(static_cast<configurator::schedule_kind>(kind)));
  std::vector<configurator::schedule_kind> all;
  std::istringstream words{text.empty() ? "gpipe,1f1b,eager,interleaved,zb-h1,zb-h2,zb-v" : text};
  for (std::string word; std::getline(words, word, ',');) {
    const auto found = std::ranges::find(known, word);
    if (found == known.end())
      throw problem{"--schedules '" + word + "' is no schedule: choose " + command_line::listed(known)};
    all.push_back(static_cast<configurator::schedule_kind>(found - known.begin()));
  }
  return all;
}

/// @param text   adam, momentum, sgd, or as 3x4
void take_optimizer(const std::string& text, configurator::trainer_traits& trainer)
{
  if (text == "adam") return;
  if (text == "momentum" || text == "sgd") {
    trainer.states.lists = text == "sgd" ? 0 : 1;
    return;
  }
  if (text.size() != 3 || text[1] != 'x' || text[0] < '0' || text[0] > '3' || (text[2] != '2' && text[2] != '4'))
    throw problem{"--optimizer '" + text +
                  "' is unknown: choose adam, momentum or sgd, or give up to 3 lists of 2 or 4 bytes, as 3x4"};
  trainer.states.lists = static_cast<std::uint32_t>(text[0] - '0');
  trainer.states.bytes_each = static_cast<std::uint32_t>(text[2] - '0');
}

}  // namespace

options parse_options(int count, const char* const* arguments)
{
  options out;
  raw_options raw;
  CLI::App app{"", "configure"};
  declare(app, raw, out);
  command_line::read<problem>(app, count, arguments);
  if (out.common.asks_only() || out.lists_models) return out;
  for (const char* const option : {"--cluster", "--model", "--rows"})
    if (!command_line::is_given(app, option)) throw problem{std::string{option} + " is missing (see --help)"};
  const auto whole = [](const char* option, const std::string& text, std::uint64_t least, std::uint64_t most,
                        std::uint64_t without) {
    command_line::read_whole<problem>(option, text, least, most, without);
    return without;
  };
  constexpr std::uint64_t one = 1, most_bytes = std::uint64_t{1} << 50;
  out.space.rows = whole("--rows", raw.rows, one, std::uint64_t{1} << 24, one);
  out.sequence = whole("--sequence", raw.sequence, one, std::uint64_t{1} << 24, 0);
  out.space.schedules = schedules_of(raw.schedules);
  out.threads = static_cast<unsigned>(whole("--threads", raw.threads, one, 1'024, one));
  out.best = whole("--best", raw.best, one, 1'000, 10);
  out.seconds = static_cast<double>(whole("--seconds", raw.seconds, one, 1'000'000, 0));
  out.device_allowance = chunkmem::bytes{whole("--device-allowance", raw.device, 0, most_bytes, 0)};
  out.host_allowance = chunkmem::bytes{whole("--host-allowance", raw.host, 0, most_bytes, 0)};
  out.trainer.activation_bytes =
      static_cast<std::uint32_t>(whole("--activation-bytes", raw.activation_bytes, one, 8, 2));
  if (!std::has_single_bit(out.trainer.activation_bytes))
    throw problem{"--activation-bytes '" + raw.activation_bytes + "' is the size of no number: choose 1, 2, 4 or 8"};
  if (!raw.sums.empty() && raw.sums != "ring" && raw.sums != "direct")
    throw problem{"--sums '" + raw.sums + "' is unknown: choose ring or direct"};
  if (raw.sums == "direct") out.trainer.sums = configurator::sum_route::direct;
  if (!raw.optimizer.empty()) take_optimizer(raw.optimizer, out.trainer);
  if (out.profile && !(raw.sequence.empty() && raw.activation_bytes.empty()))
    throw problem{"--profile has times and bytes of its own: leave --sequence and --activation-bytes out"};
  return out;
}

std::string help_text()
{
  options out;
  raw_options raw;
  CLI::App app{"Finds the fastest plans for a model on a cluster, and proves that they fit.", "configure"};
  declare(app, raw, out);
  app.footer(
      "Example:\n  configure --cluster cluster.json --model PatrickStar/GPT2_4B --rows 256 --plan best.plan\n"
      "Ctrl-C and SIGTERM end the search with the best plans so far.");
  return app.help();
}

}  // namespace configure_example
