// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <charconv>
#include <limits>
#include <string_view>
#include <system_error>

namespace plain_loops {
namespace {

template <class Number>
Number number_of(std::string_view option, std::string_view word, Number lowest, Number highest)
{
  Number number{};
  const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (failure != std::errc{} || end != word.data() + word.size() || !(number >= lowest) || !(number <= highest))
    throw bad_option{std::string{option} + " '" + std::string{word} + "' is no number from " + std::to_string(lowest) +
                     " to " + std::to_string(highest)};
  return number;
}

/// The options that are a whole number, with the least and the most that each may be.
struct whole_number {
  std::string_view name;
  int& value;
  int lowest;
  int highest;
};

bool read_whole(options& all, std::string_view name, std::string_view word)
{
  const whole_number known[] = {{"--steps", all.steps, 1, 1000000},        {"--layers", all.model.layers, 1, 1000},
                                {"--width", all.model.width, 8, 65536},    {"--heads", all.model.heads, 1, 1000},
                                {"--context", all.batch.context, 2, 8192}, {"--batch", all.batch.batch, 1, 1000},
                                {"--generate", all.generate, 0, 1000000}};
  for (const whole_number& each : known) {
    if (each.name != name) continue;
    each.value = number_of(name, word, each.lowest, each.highest);
    return true;
  }
  return false;
}

bool read_word(options& all, std::string_view name, std::string_view word)
{
  if (name == "--text")
    all.text = word;
  else if (name == "--prompt")
    all.prompt = word;
  else if (name == "--eviction")
    all.eviction = word;
  else if (name == "--transfer")
    all.transfer = word;
  else if (name == "--layout")
    all.layout = word;
  else if (name == "--seed")
    all.how.seed = number_of<std::uint64_t>(name, word, 0, std::numeric_limits<std::uint64_t>::max());
  else if (name == "--chunk-bytes")
    all.chunk_bytes = number_of<std::uint64_t>(name, word, 256, std::uint64_t{1} << 40);
  else if (name == "--device-fraction")
    all.device_fraction = number_of(name, word, 0.0, 1000.0);
  else if (name == "--learning-rate")
    all.how.learning_rate = number_of(name, word, 0.0F, 10.0F);
  else
    return false;
  return true;
}

bool read_flag(options& all, std::string_view name)
{
  if (name == "--uncapped")
    all.uncapped = true;
  else if (name == "--sizes")
    all.sizes = true;
  else if (name == "-h" || name == "--help")
    all.common.help = true;
  else if (name == "--version")
    all.common.version = true;
  else if (name == "--json")
    all.common.json = true;
  else
    return false;
  return true;
}

void check(options& all)
{
  if (all.model.width % 8 != 0) throw bad_option{"--width " + std::to_string(all.model.width) + " is no multiple of 8"};
  if (all.model.width % all.model.heads != 0)
    throw bad_option{"--width " + std::to_string(all.model.width) + " is no multiple of --heads " +
                     std::to_string(all.model.heads)};
  if (all.prompt.empty()) throw bad_option{"--prompt is empty: the text needs a first byte"};
  if (all.sizes && all.common.json) throw bad_option{"--sizes prints a table: leave out --json"};
  all.model.positions = all.batch.context;
}

}  // namespace

options read_options(int count, const char* const* words)
{
  options all;
  for (int index = 1; index < count; ++index) {
    const std::string_view name = words[index];
    if (name == "--order") {
      const std::string_view word = index + 1 < count ? words[++index] : "";
      if (word != "first_use" && word != "declaration") throw bad_option{"--order is first_use or declaration"};
      all.first_use = word == "first_use";
      continue;
    }
    if (read_flag(all, name)) continue;
    const std::string_view word = index + 1 < count ? words[index + 1] : "";
    if (word.empty() || !(read_whole(all, name, word) || read_word(all, name, word)))
      throw bad_option{"'" + std::string{name} + "' is no option with a value (see --help)"};
    ++index;
  }
  check(all);
  return all;
}

const char* help_text()
{
  return R"(Trains a GPT-2 in plain loops twice, with malloc and over chunks, and compares every bit.

  --steps N            steps of each training (20)
  --generate N         bytes that both write afterwards (80), after --prompt TEXT
  --layers N           (4)  --width N (128)  --heads N (4)
  --context N          positions of a sequence (64)  --batch N  sequences of a step (4)
  --text FILE          what is learned from (/usr/share/common-licenses, else the pages of this repository)
  --seed N             (1)  --learning-rate X (0.001)
  --device-fraction X  the device's share of all bytes (0.25)
  --uncapped           a device with room for everything
  --chunk-bytes N      (65536), a multiple of 256
  --order WORD         of tensors in chunks: first_use or declaration (first_use)
  --layout WORD        best_fit_layout or append_layout (best_fit_layout)
  --eviction WORD      belady, lru or cost_aware (belady)
  --transfer WORD      lookahead, no_prefetch or planned (lookahead)
  --sizes              what sizes of chunks, orders and layouts need; trains nothing
  --json               print one JSON object, and the text to standard error
  --version            print the version
  -h, --help           print this text

Example:
  plain_loops --layers 2 --width 64 --steps 20 --device-fraction 0.3
)";
}

}  // namespace plain_loops
