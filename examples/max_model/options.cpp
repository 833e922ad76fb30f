// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "../command_line.hpp"
#include "problem.hpp"
#include "strategies.hpp"

#include <algorithm>
#include <string_view>

namespace max_model {
namespace {

/// The words of the command line before they are parsed: this program's own sentences report errors.
struct raw_options {
  std::string micro_batch, layers, widths, strategies;
  bool no_logits = false;
  bool no_recompute = false;
};

void declare(CLI::App& app, raw_options& raw, options& out)
{
  app.add_option("--machine", out.machine, "JSON file of a machine (examples/max_model/machines)");
  app.add_option("--model", out.model, "JSON file of a transformer, or the name of one (--models lists them)");
  app.add_option("--micro-batch", raw.micro_batch, "rows that go through the model together (4)");
  app.add_option("--layers", raw.layers, "layers of the model whose step is simulated (default: the model's)");
  app.add_option("--widths", raw.widths,
                 "widths at which the largest model is searched, with commas (default: the model's)");
  app.add_option("--strategies", raw.strategies,
                 "strategies to compare, with commas: " + command_line::listed(strategy_names()) + " (all)");
  app.add_option("--csv", out.csv, "write every number to this file");
  app.add_option("--timeline", out.timeline, "write one iteration of planned to this file, for tools/plot.py");
  app.add_flag("--only-bytes", out.only_bytes, "simulate nothing: no strategy planned, no step times");
  app.add_flag("--no-logits", raw.no_logits, "a classifier: no products with the vocabulary");
  app.add_flag("--no-recompute", raw.no_recompute, "layers keep all activations");
  app.add_flag("--fused-attention", out.fuses_attention, "attention that stores no scores");
  app.add_flag("--models", out.lists_models, "print the names of models");
  command_line::add_common_flags(app, out.common, "print one JSON object in place of the tables");
  command_line::arrange(app, {{"Problem", "FILE", {"--machine"}},
                              {"Problem", "WORD", {"--model", "--strategies"}},
                              {"Problem", "NUMBER", {"--micro-batch", "--layers", "--widths"}},
                              {"Problem", "", {"--no-logits", "--no-recompute", "--fused-attention", "--models"}},
                              {"Output", "FILE", {"--csv", "--timeline"}},
                              {"Output", "", {"--only-bytes", "--json", "--version", "--help"}}});
}

std::vector<std::string> words_of(const char* option, const std::string& text)
{
  std::vector<std::string> words;
  for (std::size_t index = 0; index <= text.size();) {
    const std::size_t end = std::min(text.find(',', index), text.size());
    words.push_back(text.substr(index, end - index));
    if (words.back().empty()) throw problem{std::string{option} + " '" + text + "' has an empty entry"};
    index = end + 1;
  }
  return words;
}

void read_lists(const raw_options& raw, options& out)
{
  if (!raw.widths.empty())
    for (const std::string& word : words_of("--widths", raw.widths))
      out.widths.push_back(command_line::whole<problem, std::uint64_t>("--widths", word, 1, 1 << 20));
  if (raw.strategies.empty()) return;
  out.strategies = words_of("--strategies", raw.strategies);
  const std::vector<std::string_view> known = strategy_names();
  for (const std::string& word : out.strategies)
    if (std::find(known.begin(), known.end(), word) == known.end())
      throw problem{"--strategies '" + word + "' is unknown: choose " + command_line::listed(known)};
}

}  // namespace

options parse_options(int count, const char* const* arguments)
{
  raw_options raw;
  options out;
  CLI::App app;
  declare(app, raw, out);
  command_line::read<problem>(app, count, arguments);
  if (out.common.asks_only() || out.lists_models) return out;
  if (out.machine.empty()) throw problem{"--machine is missing: name a JSON file of a machine (see --help)"};
  if (out.model.empty()) throw problem{"--model is missing: name a model or its JSON file (see --help)"};
  command_line::read_whole<problem>("--micro-batch", raw.micro_batch, 1, 65'536, out.micro_batch);
  command_line::read_whole<problem>("--layers", raw.layers, 1, chunkmem::workload::transformer_shape::most_layers,
                                    out.layers);
  read_lists(raw, out);
  if (out.only_bytes && out.timeline) throw problem{"--timeline needs a simulation: leave out --only-bytes"};
  if (out.timeline && !out.strategies.empty() &&
      std::find(out.strategies.begin(), out.strategies.end(), planned::name) == out.strategies.end())
    throw problem{"--timeline shows the strategy planned, and --strategies does not name it"};
  out.has_logits = !raw.no_logits;
  out.recomputes = !raw.no_recompute;
  return out;
}

std::string help_text()
{
  raw_options raw;
  options out;
  CLI::App app{"The largest model that each strategy of chunked memory trains on a machine.", "max_model"};
  declare(app, raw, out);
  app.footer("Example:\n  max_model --machine examples/max_model/machines/v100_32_node.json --model GPT3_18B");
  return app.help();
}

}  // namespace max_model
