// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/tensor/tensor_names.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace chunkmem::inline v0 {

namespace checkpoint {

namespace detail {

/// Turns the events of the JSON parser into a table. An event that is not of the format ends the reading.
class table_events {
 public:
  /// @param keeps   false: tensors are checked and counted, `table` holds one of them at a time
  table_events(const loader_limits& limits, std::vector<stored_tensor>& table, bool keeps)
      : limits_{limits}, table_{table}, keeps_{keeps}
  {
  }

  [[nodiscard]] std::uint64_t tensors() const noexcept { return tensors_; }

  [[noreturn]] static void refuse(std::string_view why)
  {
    throw format_error{error_text{} << "chunkmem: the header of a safetensors file cannot be used: " << why
                                    << " (the file is damaged, or no safetensors file)"};
  }

  bool start_object(std::size_t)
  {
    if (where_ == place::outside) return go(place::top);
    if (where_ == place::top && is_metadata_) return go(place::metadata);
    if (where_ != place::top) refuse("an object lies where none belongs");
    if (!keeps_) table_.clear();
    table_.emplace_back().name = key_;  // a copy: the string of the parser may have room for more
    ++tensors_;
    extents_.clear();
    type_ = {};
    seen_ = 0;
    return go(place::tensor);
  }
  bool end_object()
  {
    if (where_ == place::tensor) end_tensor();
    return go(where_ == place::top ? place::outside : place::top);
  }
  bool key(std::string& name)
  {
    if (where_ == place::tensor) return go_to_field(name);
    if (where_ == place::metadata) return true;
    if (name.size() > limits_.name_length) refuse("a name is too long");
    is_metadata_ = name == "__metadata__";
    if (is_metadata_ && std::exchange(had_metadata_, true)) refuse("there are two __metadata__");
    if (!is_metadata_ && tensors_ == limits_.tensors) refuse("there are too many tensors");
    key_ = std::move(name);
    return true;
  }
  bool string(std::string& text)
  {
    if (where_ == place::metadata) return true;
    if (where_ != place::tensor || field_ != field::type) refuse("a text lies where none belongs");
    type_ = stored_type(text);
    if (!type_) refuse("an element type that this library does not have");
    field_ = field::none;
    return true;
  }
  bool start_array(std::size_t)
  {
    if (where_ != place::tensor || (field_ != field::extents && field_ != field::offsets))
      refuse("a list lies where none belongs");
    return go(field_ == field::extents ? place::extents : place::offsets);
  }
  bool end_array()
  {
    if (where_ == place::offsets && offsets_ != 2) refuse("data_offsets are not two numbers");
    field_ = field::none;
    return go(place::tensor);
  }
  bool number_unsigned(std::uint64_t value)
  {
    if (where_ == place::extents) {
      if (extents_.size() == limits_.rank) refuse("a tensor has too many extents");
      extents_.push_back(value);
      return true;
    }
    if (where_ != place::offsets || offsets_ == 2) refuse("a number lies where none belongs");
    (offsets_++ == 0 ? table_.back().begin : table_.back().end) = value;
    return true;
  }
  bool null() { refuse("there is a null"); }
  bool boolean(bool) { refuse("there is a truth value"); }
  bool number_integer(std::int64_t) { refuse("a number is negative"); }
  bool number_float(double, const std::string&) { refuse("a number is no whole one, or needs more than 64 bits"); }
  template <class Binary>
  bool binary(Binary&)
  {
    refuse("there is something binary");
  }
  template <class Error>
  bool parse_error(std::size_t, const std::string&, const Error&)
  {
    refuse("it is no JSON");
  }

 private:
  enum class place : std::uint8_t { outside, top, metadata, tensor, extents, offsets };
  enum class field : std::uint8_t { none, type, extents, offsets };

  bool go(place where)
  {
    where_ = where;
    return true;
  }
  bool go_to_field(std::string_view name)
  {
    field_ = name == "dtype"          ? field::type
             : name == "shape"        ? field::extents
             : name == "data_offsets" ? field::offsets
                                      : field::none;
    if (field_ == field::none) refuse("a tensor has a member that the format does not know");
    const unsigned bit = 1U << static_cast<unsigned>(field_);
    if ((seen_ & bit) != 0) refuse("a tensor has a member twice");
    seen_ |= bit;
    offsets_ = 0;
    return true;
  }
  void end_tensor()
  {
    if (seen_ != 0b1110) refuse("a tensor lacks dtype, shape or data_offsets");
    table_.back().type = *type_;
    table_.back().extents = extents_;
  }

  const loader_limits& limits_;
  std::vector<stored_tensor>& table_;
  std::string key_;
  std::vector<std::uint64_t> extents_;
  std::uint64_t tensors_ = 0;
  std::optional<dtype> type_;
  unsigned seen_ = 0;
  unsigned offsets_ = 0;
  place where_ = place::outside;
  field field_ = field::none;
  bool is_metadata_ = false;
  bool had_metadata_ = false;
  bool keeps_;
};

/// Refuses long texts and numbers before the parser sees them. The parser keeps each of them, and repeats it in its
/// error, up to eight times as long.
inline void refuse_long_tokens(std::string_view header, const loader_limits& limits)
{
  constexpr std::size_t longest_gap = 4096;
  constexpr std::string_view structure = "{}[]:,";
  bool in_text = false;
  std::size_t length = 0;
  for (std::size_t index = 0; index < header.size(); ++index) {
    if (header[index] == '"') in_text = !in_text;
    if (header[index] == '"' || (!in_text && structure.find(header[index]) != structure.npos)) {
      length = 0;
      continue;
    }
    if (in_text && header[index] == '\\') ++index;
    if (++length > (in_text ? std::max(limits.text_length, limits.name_length) : longest_gap))
      table_events::refuse("a text, a number or a gap is too long");
  }
}

/// @param keeps   see table_events   @return   tensors
inline std::uint64_t parse_table(std::string_view header, const loader_limits& limits,
                                 std::vector<stored_tensor>& table, bool keeps)
{
  table_events events{limits, table, keeps};
  if (!nlohmann::json::sax_parse(header, &events)) table_events::refuse("it is no JSON");
  return events.tensors();
}

/// By their begin; where several have the same, those without bytes, in one order.
inline void sort_by_begin(std::vector<stored_tensor>& table)
{
  const auto is_before = [](const stored_tensor& a, const stored_tensor& b) {
    return std::pair{a.begin, a.end} < std::pair{b.begin, b.end};
  };
  if (std::is_sorted(table.begin(), table.end(), is_before)) return;
  std::sort(table.begin(), table.end(), [&](const stored_tensor& a, const stored_tensor& b) {
    return is_before(a, b) || (!is_before(b, a) && a.name < b.name);
  });
}

inline void check_regions(const std::vector<stored_tensor>& by_begin, std::uint64_t payload)
{
  std::uint64_t end = 0;
  for (const stored_tensor& stored : by_begin) {
    if (stored.begin != end) table_events::refuse("tensors overlap, or leave a hole");
    if (stored.end < stored.begin || stored.end > payload) table_events::refuse("a tensor lies outside of the file");
    bool fits = false;
    try {
      fits = size_of_tensor(stored.type, stored.extents).count() == stored.size();
    } catch (const size_overflow&) {  // its size is no number of bytes
    }
    if (!fits) table_events::refuse("a tensor has another size than its shape says");
    end = stored.end;
  }
  if (end != payload) table_events::refuse("the file goes on after its last tensor");
}

inline void check_names(const std::vector<stored_tensor>& table)
{
  std::vector<std::string_view> names;
  names.reserve(table.size());
  for (const stored_tensor& stored : table) names.push_back(stored.name);
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end()) table_events::refuse("two tensors have one name");
}

}  // namespace detail

/// Reads the header of a safetensors file, without its eight bytes of length: a pure function of bytes and limits.
///
/// Tensors must lie one after the other, without overlap or hole, and end with the file. `__metadata__` is passed over.
/// @param payload   bytes of the file after the header
/// @return          in the order of their bytes
/// @throws format_error   names the fault; nothing beyond the limits was allocated
/// @complexity            O(n log n) in the characters of the header, read twice; no recursion. Memory: three times the
///   header, and 16 MiB
[[nodiscard]] inline std::vector<stored_tensor> read_table(std::string_view header, std::uint64_t payload,
                                                           const loader_limits& limits = {})
{
  if (header.size() > limits.header.count()) detail::table_events::refuse("it is longer than the limit");
  if (header.empty() || header.front() != '{') detail::table_events::refuse("it does not begin with {");
  // the parser would take it for the end
  if (header.find('\0') != header.npos) detail::table_events::refuse("there is a byte 0");
  while (header.back() == ' ') header.remove_suffix(1);  // the format's own padding
  detail::refuse_long_tokens(header, limits);
  std::vector<stored_tensor> table;
  const std::uint64_t tensors = detail::parse_table(header, limits, table, false);
  table = {};
  table.reserve(static_cast<std::size_t>(tensors));
  (void)detail::parse_table(header, limits, table, true);
  detail::sort_by_begin(table);
  detail::check_regions(table, payload);
  detail::check_names(table);
  return table;
}

namespace detail {

/// As JSON. @throws config_error   the tensor could be written, and no loader would take it back
[[nodiscard]] inline std::string quoted_name(const stored_tensor& stored)
{
  name_rules::expect_written(stored.name);
  return nlohmann::json(stored.name).dump();
}

/// @param header   bytes of it   @throws config_error   no loader would take it back
inline void refuse_large_table(const std::vector<stored_tensor>& table, std::uint64_t header)
{
  const loader_limits limits{};
  if (header > limits.header.count() || table.size() > limits.tensors)
    throw config_error{
        error_text{} << "chunkmem: one safetensors file cannot hold so many names: its header would have " << header
                     << " B for " << table.size() << " tensors, a loader takes " << limits.header.count() << " B and "
                     << limits.tensors << " (let files be smaller, or give shorter names)"};
  for (const stored_tensor& stored : table)
    if (stored.extents.size() > limits.rank)
      throw config_error{error_text{} << "chunkmem: a tensor cannot be saved: it has " << stored.extents.size()
                                      << " extents, a loader takes " << limits.rank << " (merge some)"};
}

}  // namespace detail

/// The begin of a safetensors file: eight bytes of length, and a header padded so that the tensors begin at a multiple
/// of 256.
/// @pre   the tensors lie one after the other from 0 on
/// @throws config_error   a tensor has a name that no loader would take, or there are too many
[[nodiscard]] inline std::string write_table(const std::vector<stored_tensor>& table)
{
  std::string text(8, '\0');
  text += '{';
  for (const stored_tensor& stored : table) {
    text += (text.size() > 9 ? "," : "") + detail::quoted_name(stored) + ":{\"dtype\":\"";
    text.append(stored_name_of(stored.type)).append("\",\"shape\":[");
    for (std::size_t axis = 0; axis < stored.extents.size(); ++axis)
      text += (axis == 0 ? "" : ",") + std::to_string(stored.extents[axis]);
    text += "],\"data_offsets\":[" + std::to_string(stored.begin) + "," + std::to_string(stored.end) + "]}";
  }
  text += '}';
  text.resize(align_up(bytes{text.size()}, tensor_alignment).count(), ' ');
  for (unsigned byte = 0; byte < 8; ++byte) text[byte] = static_cast<char>((text.size() - 8) >> (8 * byte) & 0xffU);
  detail::refuse_large_table(table, text.size() - 8);
  return text;
}

}  // namespace checkpoint

}  // namespace chunkmem::inline v0
