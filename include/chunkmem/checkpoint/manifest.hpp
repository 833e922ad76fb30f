// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/text_reader.hpp>
#include <chunkmem/io/checksum.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace checkpoint {

/// A file of a generation: whole if it is this long and its blocks have these checksums.
///
///     std::uint64_t size = 0;
///     for (const stored_file& it : content.files) size += it.size;
struct stored_file {
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t header = 0;  ///< bytes before the tensors
  /// checksums of the header, then of each `sum_block` after it: so any part is verified without the others
  std::vector<std::uint64_t> sums{};

  [[nodiscard]] bool operator==(const stored_file&) const = default;
};

/// A list of an optimizer, and the version of the meaning of its bytes.
///
///     for (const stored_list& it : content.lists) std::cout << it.name << ", version " << it.version << '\n';
struct stored_list {
  std::string name;
  std::uint32_t version = 0;

  [[nodiscard]] bool operator==(const stored_list&) const = default;
};

/// A tensor that is stored in parts with names `name[first:end]`, by elements in row-major order.
///
///     for (const divided_tensor& it : content.divided) std::cout << it.name << '\n';
struct divided_tensor {
  std::string name;
  std::vector<std::uint64_t> extents{};  ///< of the whole

  [[nodiscard]] bool operator==(const divided_tensor&) const = default;
};

/// The place of a folder among those of the stages of a pipeline, and the save that filled all of them.
///
///     if (content.stage) std::cout << "stage " << content.stage->number << " of " << content.stage->count << '\n';
struct stored_stage {
  std::uint32_t number = 0;  ///< from 0
  std::uint32_t count = 0;
  std::uint64_t save = 0;  ///< a checksum over the files of all stages: equal only in the folders of one save

  [[nodiscard]] bool operator==(const stored_stage&) const = default;
};

/// The content of a generation. A generation is whole when its manifest is whole, and every file that the manifest
/// names.
///
///     for (const stored_file& it : generation.content().files) std::cout << it.name << ' ' << it.size << '\n';
struct manifest {
  std::uint64_t generation = 0;
  std::vector<stored_file> files{};  ///< safetensors, in the order in which they were written; files of rank 0 first
  std::vector<stored_list> lists{};
  std::vector<std::string> empty{};  ///< names of tensors that held no bytes when they were saved
  std::vector<divided_tensor> divided{};
  std::uint64_t run = 0;                ///< the training: a random number that its first save drew
  std::optional<stored_stage> stage{};  ///< none: no pipeline, or a version that did not store it

  [[nodiscard]] bool operator==(const manifest&) const = default;
};

namespace detail {

/// A name as one word: characters that a line cannot hold are written as %XX.
[[nodiscard]] inline std::string as_word(std::string_view name)
{
  constexpr char digits[] = "0123456789abcdef";
  std::string word;
  for (const char it : name) {
    const auto code = static_cast<unsigned char>(it);
    if (code > 0x20 && code != 0x7f && it != '%')
      word += it;
    else
      word.append({'%', digits[code >> 4], digits[code & 15]});
  }
  return word;
}

[[nodiscard]] inline std::string from_word(const text_reader& text, std::string_view word)
{
  std::string name;
  for (std::size_t index = 0; index < word.size(); ++index) {
    if (word[index] != '%') {
      name += word[index];
      continue;
    }
    if (word.size() - index < 3) text.refuse("a name ends in the middle of a character");
    name += static_cast<char>(text.number<unsigned char>(word.substr(index + 1, 2), 16));
    index += 2;
  }
  if (as_word(name) != word) text.refuse("a name is not written as this library writes it");
  return name;
}

[[nodiscard]] inline std::string as_digits(std::uint64_t sum)
{
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += digits[sum >> shift & 15U];
  return text;
}

inline constexpr std::string_view first_words = "chunkmem checkpoint ";
inline constexpr std::string_view first_line = "chunkmem checkpoint 2";
inline constexpr std::string_view first_line_of_stage = "chunkmem checkpoint 3";
inline constexpr std::size_t sum_line = 9 + 16 + 1;  ///< "checksum ", digits, end of line

}  // namespace detail

/// The text of a manifest, with its own checksum in the last line.
[[nodiscard]] inline std::string write_manifest(const manifest& it)
{
  std::string text{it.stage ? detail::first_line_of_stage : detail::first_line};
  text += "\ngeneration " + std::to_string(it.generation) + "\nrun " + detail::as_digits(it.run) + '\n';
  if (it.stage)
    text += "stage " + std::to_string(it.stage->number) + ' ' + std::to_string(it.stage->count) + ' ' +
            detail::as_digits(it.stage->save) + '\n';
  for (const stored_file& file : it.files) {
    text += "file " + detail::as_word(file.name) + ' ' + std::to_string(file.size) + ' ' + std::to_string(file.header) +
            '\n';
    for (const std::uint64_t sum : file.sums) text += "sum " + detail::as_digits(sum) + '\n';
  }
  for (const stored_list& list : it.lists)
    text += "list " + detail::as_word(list.name) + ' ' + std::to_string(list.version) + '\n';
  for (const std::string& name : it.empty) text += "empty " + detail::as_word(name) + '\n';
  for (const divided_tensor& whole : it.divided) {
    text += "divided " + detail::as_word(whole.name);
    for (const std::uint64_t extent : whole.extents) text += ' ' + std::to_string(extent);
    text += '\n';
  }
  return text + "checksum " + detail::as_digits(io::checksum_of(std::as_bytes(std::span{text}))) + '\n';
}

namespace detail {

/// Reads the rest of a line that begins with `kind`.
inline void read_line(text_reader& text, std::string_view kind, manifest& found)
{
  if (kind == "sum") {
    if (found.files.empty()) text.refuse("a checksum of no file");
    found.files.back().sums.push_back(text.number<std::uint64_t>(text.word(), 16));
    return text.expect_end();
  }
  if (kind == "stage") {
    const auto number = text.number<std::uint32_t>(text.word());
    const auto count = text.number<std::uint32_t>(text.word());
    found.stage = {number, count, text.number<std::uint64_t>(text.word(), 16)};
    if (number >= count) text.refuse("a stage that is not one of them");
    return text.expect_end();
  }
  const std::string name = from_word(text, text.word());
  if (kind == "file") {
    const auto size = text.number<std::uint64_t>(text.word());
    found.files.push_back({name, size, text.number<std::uint64_t>(text.word()), {}});
  } else if (kind == "list") {
    found.lists.push_back({name, text.number<std::uint32_t>(text.word())});
  } else if (kind == "empty") {
    found.empty.push_back(name);
  } else if (kind == "divided") {
    found.divided.push_back({name, {}});
    while (text.has_word()) found.divided.back().extents.push_back(text.number<std::uint64_t>(text.word()));
  } else {
    text.refuse("it has an entry that this version does not know");
  }
  text.expect_end();
}

}  // namespace detail

/// Whether a manifest is whole and of another version of the format. @return   the number of that version, else nothing
[[nodiscard]] inline std::string_view other_version(std::string_view content)
{
  if (content.size() < detail::sum_line || !content.starts_with(detail::first_words)) return {};
  const std::string_view body = content.substr(0, content.size() - detail::sum_line);
  if (content.substr(body.size()) !=
      "checksum " + detail::as_digits(io::checksum_of(std::as_bytes(std::span{body}))) + '\n')
    return {};
  const std::string_view line = body.substr(0, body.find('\n'));
  return line == detail::first_line || line == detail::first_line_of_stage
             ? std::string_view{}
             : line.substr(detail::first_words.size(), 20);
}

/// Parses the text of a manifest: a pure function of text and limits.
/// @throws corrupt_data   the text differs from the text that was written; format_error   this version writes no such
///   text
[[nodiscard]] inline manifest read_manifest(std::string_view content, const loader_limits& limits = {})
{
  if (content.size() > limits.manifest.count() || content.size() < detail::sum_line)
    throw format_error{"a manifest of a checkpoint is longer than the limit, or no manifest"};
  const std::string_view body = content.substr(0, content.size() - detail::sum_line);
  const std::string expected = "checksum " + detail::as_digits(io::checksum_of(std::as_bytes(std::span{body}))) + '\n';
  if (content.substr(body.size()) != expected)
    throw corrupt_data{
        "the manifest of a checkpoint is damaged (its checksum is another one): take an older generation"};
  std::istringstream in{std::string{content}};
  text_reader text{in, "a manifest", 3 * std::size_t{limits.name_length} + 512};
  manifest found;
  if (const std::string_view line = text.next_line(); line != detail::first_line && line != detail::first_line_of_stage)
    text.refuse("it does not begin like a checkpoint of version 2 or 3");
  text.next_line();
  text.expect("generation");
  found.generation = text.number<std::uint64_t>(text.word());
  text.next_line();
  text.expect("run");
  found.run = text.number<std::uint64_t>(text.word(), 16);
  for (;;) {
    text.next_line();
    const std::string kind{text.word()};
    if (kind == "checksum") break;
    detail::read_line(text, kind, found);
  }
  if (write_manifest(found) != content) text.refuse("the text up to it is not written as this library writes it");
  return found;
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
