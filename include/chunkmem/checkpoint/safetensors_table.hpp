// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/checkpoint/stored_tensor.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor_names.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace chunkmem::inline v0 {

namespace checkpoint {

namespace detail {

/// The file and the tensor, if known, for a message about a header.
///
///     refuse_header({.file = "model.safetensors", .tensor = "wte"}, "a number is negative");
struct header_place {
  std::string_view file{};    ///< empty: not known
  std::string_view tensor{};  ///< empty: none
  std::string_view type{};    ///< of that tensor, as the file has it; empty: not known
};
inline constexpr std::string_view damaged_file = "the file is damaged, or no safetensors file";
inline constexpr std::string_view beyond_limits = "see loader_limits";

[[noreturn]] inline void refuse_header(const header_place& where, std::string_view why,
                                       std::string_view remedy = damaged_file)
{
  error_text text;
  text << "chunkmem: the header of ";
  where.file.empty() ? text << "a safetensors file" : text << "the safetensors file " << where.file;
  text << " cannot be used: ";
  if (!where.tensor.empty()) text << "tensor " << where.tensor;
  if (!where.type.empty()) text << " of " << where.type;
  if (!where.tensor.empty()) text << ": ";
  throw format_error{text << why << " (" << remedy << ")"};
}

/// Turns the events of the JSON parser into a table. An event that is not of the format ends the reading. Members of a
/// tensor that the format does not know are ignored, as in its reference.
class table_events {
 public:
  /// @param file    for messages
  /// @param keeps   false: tensors are only checked and counted, and `table` holds one of them at a time
  table_events(const loader_limits& limits, std::string_view file, std::vector<stored_tensor>& table, bool keeps)
      : limits_{limits}, file_{file}, table_{table}, keeps_{keeps}
  {
  }

  [[nodiscard]] std::uint64_t tensors() const noexcept { return tensors_; }

  bool start_object(std::size_t)
  {
    if (is_passed_over(1)) return true;
    if (where_ == place::outside) return go(place::top);
    if (where_ == place::top && is_metadata_) return go(place::metadata);
    if (where_ != place::top) refuse("an object is where none belongs");
    if (!keeps_) table_.clear();
    table_.emplace_back().name = key_;  // a copy: the string of the parser may have room for more
    ++tensors_;
    extents_.clear();
    seen_ = 0;
    return go(place::tensor);
  }
  bool end_object()
  {
    if (is_passed_over(-1)) return true;
    if (where_ == place::tensor) end_tensor();
    return go(where_ == place::top ? place::outside : place::top);
  }
  bool key(std::string& name)
  {
    if (depth_ > 0) return true;
    if (where_ == place::tensor) return go_to_field(name);
    if (where_ == place::metadata) return true;
    if (name.size() > limits_.name_length) refuse("a name is too long", beyond_limits);
    is_metadata_ = name == "__metadata__";
    if (is_metadata_ && std::exchange(had_metadata_, true)) refuse("there are two __metadata__");
    if (!is_metadata_ && tensors_ == limits_.tensors) refuse("there are too many tensors", beyond_limits);
    key_ = std::move(name);
    return true;
  }
  bool string(std::string& text)
  {
    if (where_ == place::metadata || is_passed_over()) return true;
    if (where_ != place::tensor || field_ != field::type) refuse("a string is where none belongs");
    const std::optional<dtype> own = stored_type(text);
    table_.back().type = own.value_or(dtype::uint8);
    table_.back().foreign = own ? nullptr : foreign_type_of(text);
    if (!own && table_.back().foreign == nullptr)
      refuse((error_text{} << "safetensors has no element type " << text).view());
    field_ = field::none;
    return true;
  }
  bool start_array(std::size_t)
  {
    if (is_passed_over(1)) return true;
    if (where_ != place::tensor || (field_ != field::extents && field_ != field::offsets))
      refuse("an array is where none belongs");
    return go(field_ == field::extents ? place::extents : place::offsets);
  }
  bool end_array()
  {
    if (is_passed_over(-1)) return true;
    if (where_ == place::offsets && offsets_ != 2) refuse("data_offsets are not two numbers");
    field_ = field::none;
    return go(place::tensor);
  }
  bool number_unsigned(std::uint64_t value)
  {
    if (is_passed_over()) return true;
    if (where_ == place::extents) {
      if (extents_.size() == limits_.rank) refuse("it has too many extents", beyond_limits);
      extents_.push_back(value);
      return true;
    }
    if (where_ != place::offsets || offsets_ == 2) refuse("a number is where none belongs");
    (offsets_++ == 0 ? table_.back().begin : table_.back().end) = value;
    return true;
  }
  bool null()
  {
    if ((where_ == place::top && is_metadata_) || is_passed_over()) return true;
    refuse("there is a null");
  }
  bool boolean(bool)
  {
    if (is_passed_over()) return true;
    refuse("there is a boolean");
  }
  bool number_integer(std::int64_t)
  {
    if (is_passed_over()) return true;
    refuse("a number is negative");
  }
  bool number_float(double, const std::string&)
  {
    if (is_passed_over()) return true;
    refuse("a number is no integer, or needs more than 64 bits");
  }
  template <class Binary>
  bool binary(Binary&)
  {
    refuse("there is a binary value");
  }
  template <class Error>
  bool parse_error(std::size_t, const std::string&, const Error&)
  {
    refuse("it is not JSON");
  }

 private:
  enum class place : std::uint8_t { outside, top, metadata, tensor, extents, offsets };
  enum class field : std::uint8_t { none, type, extents, offsets, unknown };

  [[noreturn]] void refuse(std::string_view why, std::string_view remedy = damaged_file) const
  {
    const bool is_of_tensor = where_ != place::outside && where_ != place::metadata && !is_metadata_;
    refuse_header({file_, is_of_tensor ? std::string_view{key_} : std::string_view{}}, why, remedy);
  }
  bool go(place where)
  {
    where_ = where;
    return true;
  }
  /// Whether an event belongs to a member that the format does not know. @param deeper   1: an object or an array
  /// begins;
  /// -1: it ends
  bool is_passed_over(int deeper = 0)
  {
    constexpr int most = 125;  // in two objects: the reference goes as deep
    if (field_ != field::unknown) return false;
    depth_ += deeper;
    if (depth_ > most) refuse("a member is nested too deeply");
    if (depth_ == 0) field_ = field::none;
    return true;
  }
  bool go_to_field(std::string_view name)
  {
    field_ = name == "dtype"          ? field::type
             : name == "shape"        ? field::extents
             : name == "data_offsets" ? field::offsets
                                      : field::unknown;
    if (field_ == field::unknown) return true;
    const unsigned bit = 1U << static_cast<unsigned>(field_);
    if ((seen_ & bit) != 0) refuse("a member is there twice");
    seen_ |= bit;
    offsets_ = 0;
    return true;
  }
  void end_tensor()
  {
    if (seen_ != 0b1110) refuse("it lacks dtype, shape or data_offsets");
    table_.back().extents = extents_;
  }

  const loader_limits& limits_;
  std::string_view file_;
  std::vector<stored_tensor>& table_;
  std::string key_;
  std::vector<std::uint64_t> extents_;
  std::uint64_t tensors_ = 0;
  unsigned seen_ = 0;
  unsigned offsets_ = 0;
  int depth_ = 0;  // of objects and lists in a member that the format does not know
  place where_ = place::outside;
  field field_ = field::none;
  bool is_metadata_ = false;
  bool had_metadata_ = false;
  bool keeps_;
};

/// Bytes of the character or the escape at the begin of a JSON text; 0: none begins there.
[[nodiscard]] inline std::size_t length_in_text(std::string_view text) noexcept
{
  const auto unit_at = [&](std::size_t begin) -> std::uint32_t {  // of "\uXXXX"; beyond 16 bits where there is none
    std::uint32_t unit = 0;
    if (text.size() < begin + 6 || text[begin] != '\\' || text[begin + 1] != 'u') return UINT32_MAX;
    const char* const end = text.data() + begin + 6;
    const auto [stop, wrong] = std::from_chars(text.data() + begin + 2, end, unit, 16);
    return wrong == std::errc{} && stop == end ? unit : UINT32_MAX;
  };
  if (static_cast<unsigned char>(text[0]) < 0x20U) return 0;
  if (text[0] != '\\') return chunkmem::detail::length_of_character(text);
  if (text.size() > 1 && std::string_view{"\"\\/bfnrt"}.find(text[1]) != text.npos) return 2;
  const std::uint32_t unit = unit_at(0);
  if (unit > 0xffffU || (unit >= 0xdc00U && unit < 0xe000U)) return 0;
  if (unit < 0xd800U || unit >= 0xe000U) return 6;
  const std::uint32_t second = unit_at(6);
  return second >= 0xdc00U && second < 0xe000U ? 12 : 0;
}

/// The header without the ends of long strings, which cannot be names, and with short gaps: the parser would keep each
/// of them, and repeat it in its error up to eight times as long. Omitted ends are checked here.
/// @return   nothing where nothing is omitted
[[nodiscard]] inline std::optional<std::string> without_long_tokens(std::string_view header,
                                                                    const loader_limits& limits, std::string_view file)
{
  constexpr std::size_t longest = 4096;
  constexpr std::string_view blanks = " \t\n\r", ends = "{}[]:,\" \t\n\r";
  const std::size_t longest_text = 6 * (std::size_t{limits.name_length} + 1);  // an escape of a byte has six
  std::optional<std::string> shorter;
  std::size_t copied = 0;
  const auto leave_out = [&](std::size_t begin, std::size_t end) {
    if (!shorter) shorter.emplace();
    shorter->append(header.substr(copied, begin - copied));
    copied = end;
  };
  for (std::size_t at = 0; at < header.size();) {
    if (header[at] == '"') {
      std::size_t end = ++at;
      while (end < header.size() && header[end] != '"') end += header[end] == '\\' ? std::size_t{2} : std::size_t{1};
      end = std::min(end, header.size());
      std::size_t kept = at;
      while (end - at > longest_text && kept < end) {
        const std::size_t length = length_in_text(header.substr(kept, end - kept));
        if (length == 0 || end == header.size()) refuse_header({file}, "it is not JSON");
        const bool is_end = kept - at < longest_text && kept + length - at >= longest_text;
        kept += length;
        if (is_end) leave_out(kept, end);
      }
      at = end + 1;
    } else if (blanks.find(header[at]) != blanks.npos) {
      const std::size_t end = std::min(header.find_first_not_of(blanks, at), header.size());
      if (end - at > longest) leave_out(at + 1, end);
      at = end;
    } else {
      const bool is_structure = ends.find(header[at]) != ends.npos;
      const std::size_t end = is_structure ? at + 1 : std::min(header.find_first_of(ends, at), header.size());
      if (end - at > longest) refuse_header({file}, "a number is too long", beyond_limits);
      at = end;
    }
  }
  if (shorter) shorter->append(header.substr(std::min(copied, header.size())));
  return shorter;
}

/// @param keeps   see table_events   @return   tensors
inline std::uint64_t parse_table(std::string_view header, const loader_limits& limits, std::string_view file,
                                 std::vector<stored_tensor>& table, bool keeps)
{
  table_events events{limits, file, table, keeps};
  if (!nlohmann::json::sax_parse(header, &events)) refuse_header({file}, "it is not JSON");
  return events.tensors();
}

/// Sorts by begin; tensors without bytes may share a begin, and are sorted in one order.
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

/// Whether the size of a tensor matches its type and extents.
[[nodiscard]] inline bool has_size_of_extents(const stored_tensor& it)
{
  try {
    if (it.foreign == nullptr) return size_of_tensor(it.type, it.extents).count() == it.size();
    const std::uint64_t bits = (bytes{elements_of(it.extents)} * it.foreign->bits).count();
    return bits % 8 == 0 && bits / 8 == it.size();
  } catch (const size_overflow&) {
    return false;
  }
}

inline void check_regions(const std::vector<stored_tensor>& by_begin, std::uint64_t payload, std::string_view file)
{
  std::uint64_t end = 0;
  for (const stored_tensor& stored : by_begin) {
    const header_place where{file, stored.name, stored_name_of(stored.type, stored.foreign)};
    if (stored.begin != end) refuse_header(where, "it overlaps another tensor, or leaves a hole");
    if (stored.end < stored.begin || stored.end > payload) refuse_header(where, "it lies outside of the file");
    if (!has_size_of_extents(stored)) refuse_header(where, "it has another size than its shape says");
    end = stored.end;
  }
  if (end != payload) refuse_header({file}, "the file goes on after its last tensor");
}

inline void check_names(const std::vector<stored_tensor>& table, std::string_view file)
{
  std::vector<std::string_view> names;
  names.reserve(table.size());
  for (const stored_tensor& stored : table) names.push_back(stored.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    refuse_header({file, *twice}, "two tensors have this name");
}

}  // namespace detail

/// Reads the header of a safetensors file, without its eight bytes of length: a pure function of bytes and limits.
///
/// Accepts the headers that the reference of the format accepts (safetensors 0.8.0), except: beyond `loader_limits`;
/// two tensors with one name; an entry that is no JSON object, or an element type that is no string. Tensors must lie
/// one after the other, without overlap or hole, and end with the file. `__metadata__` and unknown members of a tensor
/// are ignored. An element type that this library lacks is named by `foreign`.
/// @param payload   bytes of the file after the header
/// @param file      for messages
/// @return          in the order of their bytes
/// @throws format_error   names the file, the tensor and the fault; nothing beyond the limits was allocated
/// @complexity            O(n log n) in the characters of the header, read twice; no recursion. Memory: three times the
///   header, and 16 MiB; four times where strings are longer than six names, or gaps longer than 4 KiB
[[nodiscard]] inline std::vector<stored_tensor> read_table(std::string_view header, std::uint64_t payload,
                                                           const loader_limits& limits = {}, std::string_view file = {})
{
  constexpr std::string_view blanks = " \t\n\r";
  if (header.size() > limits.header.count())
    detail::refuse_header({file}, "it is longer than the limit", detail::beyond_limits);
  header.remove_prefix(std::min(header.find_first_not_of(blanks), header.size()));
  if (header.empty() || header.front() != '{') detail::refuse_header({file}, "it does not begin with {");
  // The parser would take a byte 0 for the end.
  if (header.find('\0') != header.npos) detail::refuse_header({file}, "there is a byte 0");
  header.remove_suffix(header.size() - 1 - header.find_last_not_of(blanks));  // padding
  const std::optional<std::string> shorter = detail::without_long_tokens(header, limits, file);
  if (shorter) header = *shorter;
  std::vector<stored_tensor> table;
  const std::uint64_t tensors = detail::parse_table(header, limits, file, table, false);
  table = {};
  table.reserve(static_cast<std::size_t>(tensors));
  (void)detail::parse_table(header, limits, file, table, true);
  detail::sort_by_begin(table);
  detail::check_names(table, file);
  detail::check_regions(table, payload, file);
  return table;
}

namespace detail {

/// The name as JSON. @throws config_error   no loader would accept the tensor
[[nodiscard]] inline std::string quoted_name(const stored_tensor& stored)
{
  name_rules::expect_written(stored.name);
  return nlohmann::json(stored.name).dump();
}

/// @param header   its size [B]   @throws config_error   no loader would accept the table
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
/// @throws config_error   a tensor has a name that no loader would accept, or there are too many tensors
[[nodiscard]] inline std::string write_table(const std::vector<stored_tensor>& table)
{
  std::string text(8, '\0');
  text += '{';
  for (const stored_tensor& stored : table) {
    text += (text.size() > 9 ? "," : "") + detail::quoted_name(stored) + ":{\"dtype\":\"";
    text.append(stored_name_of(stored.type, stored.foreign)).append("\",\"shape\":[");
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
