// SPDX-License-Identifier: Apache-2.0
#include "sample_ratios.hpp"

#include "problem.hpp"

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/text_reader.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <ostream>
#include <system_error>

namespace gpt {
namespace {

constexpr std::size_t longest_line = 1'000;
constexpr std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max() / 2;

std::string about(const std::filesystem::path& where)
{
  return "--activations sample=" + where.string() + ' ';
}

double real(const chunkmem::text_reader& text, std::string_view digits)
{
  double value = 0;
  const auto [end, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (wrong != std::errc{} || end != digits.data() + digits.size()) text.refuse("a number is wanted");
  return value;
}

void read_model(chunkmem::text_reader& text, const std::filesystem::path& where, const extents& size)
{
  (void)text.next_line();
  text.key("model");
  constexpr std::uint64_t most = UINT32_MAX;
  for (const auto& [name, here] : {std::pair<const char*, std::size_t>{"layers", size.layers},
                                   {"width", size.width},
                                   {"heads", size.heads},
                                   {"context", size.context},
                                   {"batch", size.batch}}) {
    const std::uint64_t there = text.value(name, most);
    if (there != here)
      throw problem{about(where) + "has ratios of another model or batch: " + name + ' ' + std::to_string(there) +
                    ", and here " + name + ' ' + std::to_string(here) +
                    " (measure this one: --activations sample=auto)"};
  }
  text.expect_end();
}

input_ratio read_input(chunkmem::text_reader& text)
{
  input_ratio it;
  text.key("ratio");
  it.ratio = real(text, text.word());
  if (!(it.ratio > 0) || !(it.ratio <= 1)) text.refuse("a ratio is above 0 and at most 1");
  it.kept = chunkmem::bytes{text.value("kept", most_bytes)};
  it.exact = chunkmem::bytes{text.value("exact", most_bytes)};
  text.key("noise");
  it.noise = real(text, text.word());
  if (!(it.noise >= 0) || !std::isfinite(it.noise)) text.refuse("a noise is at least 0 and finite");
  text.key("name");
  do it.name += (it.name.empty() ? "" : " ") + std::string{text.word()};
  while (text.has_word());
  return it;
}

}  // namespace

std::string ratio_text(double ratio)
{
  char digits[32];
  const auto [end, failed] = std::to_chars(digits, digits + sizeof digits, ratio);
  return failed == std::errc{} ? std::string(digits, end) : "?";
}

void write_ratios(std::ostream& out, const extents& size, const std::vector<input_ratio>& inputs)
{
  out << "sampling ratios 2\n";
  out << "model layers " << size.layers << " width " << size.width << " heads " << size.heads << " context "
      << size.context << " batch " << size.batch << '\n';
  for (const input_ratio& it : inputs)
    out << "input ratio " << ratio_text(it.ratio) << " kept " << it.kept.count() << " exact " << it.exact.count()
        << " noise " << ratio_text(it.noise) << " name " << it.name << '\n';
  out << "end\n";
}

std::vector<input_ratio> read_ratios(const std::filesystem::path& where, const extents& size)
{
  std::ifstream in{where, std::ios::binary};
  if (!in) throw problem{about(where) + "cannot be read (name a file that sample=auto wrote, or give a ratio)"};
  try {
    chunkmem::text_reader text{in, "ratios", longest_line};
    const std::string_view head = text.next_line();
    if (head.ends_with('\r')) text.refuse("lines end in CR LF, and only LF is accepted");
    if (head != "sampling ratios 2") text.refuse("it is not 'sampling ratios 2'");
    read_model(text, where, size);
    std::vector<input_ratio> found;
    for (;;) {
      (void)text.next_line();
      const std::string_view first = text.word();
      if (first == "end") break;
      if (first != "input") text.refuse("it begins neither with input nor with end");
      if (found.size() == most_rows_of_layers) text.refuse("there are more inputs than a model can have");
      input_ratio next = read_input(text);
      if (std::ranges::find(found, next.name, &input_ratio::name) != found.end())
        text.refuse("an input of this name is repeated");
      found.push_back(std::move(next));
    }
    text.expect_end();
    if (in.peek() != std::ifstream::traits_type::eof()) text.refuse("more lines follow, and end must be the last line");
    return found;
  } catch (const chunkmem::format_error& broken) {
    throw problem{about(where) + "is broken: " + broken.what()};
  }
}

void expect_inputs(const std::filesystem::path& where, const std::vector<input_ratio>& inputs,
                   const std::vector<sized_input>& here)
{
  for (const sized_input& it : here)
    if (std::ranges::find(inputs, it.name, &input_ratio::name) == inputs.end())
      throw problem{about(where) + "has no ratio of \"" + it.name +
                    "\": the file is for another model (measure this one: --activations sample=auto)"};
  for (const input_ratio& it : inputs) {
    const auto same = std::ranges::find(here, it.name, &sized_input::name);
    if (same == here.end())
      throw problem{about(where) + "has a ratio of \"" + it.name +
                    "\", which is no input that is sampled here: the file is for another model (measure this one: " +
                    "--activations sample=auto)"};
    const auto expect = [&](const char* what, chunkmem::bytes there, chunkmem::bytes wanted) {
      if (there != wanted)
        throw problem{about(where) + "says that \"" + it.name + "\" takes " + std::to_string(there.count()) + " B " +
                      what + ", and here it takes " + std::to_string(wanted.count()) +
                      " B (measure this model: --activations sample=auto)"};
    };
    expect("of all rows", it.exact, same->exact);
    expect("of kept rows", it.kept, same->kept(it.ratio));
  }
}

}  // namespace gpt
