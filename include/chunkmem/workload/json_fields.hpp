// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if !__has_include(<nlohmann/json.hpp>)
#error "chunkmem: files of workloads need nlohmann/json.hpp: link chunkmem::json (Debian: nlohmann-json3-dev)"
#endif
#include <nlohmann/json.hpp>

namespace chunkmem::inline v0 {

namespace workload {

/// The limits of a reader of small JSON files.
///
///     json_fields fields = json_fields::of_file("machine.json", {.fields = 64});
struct json_limits {
  bytes file{std::uint64_t{64} << 10};
  std::size_t fields = 256;
  std::size_t key_length = 64;     ///< of one name, in bytes
  std::size_t text_length = 4096;  ///< of a text, in bytes
  std::size_t depth = 4;           ///< objects in objects
  std::size_t elements = 0;        ///< of all lists together; 0: there are no lists
};

namespace detail {

enum class json_kind : std::uint8_t { whole, number, negative, truth, text };

struct json_field {
  std::string path;  ///< names with dots between; of an element: "links.rates[0][1]"
  json_kind kind = json_kind::text;
  std::uint64_t whole = 0;
  double number = 0;
  bool truth = false;
  std::string text;
  bool is_taken = false;
};

/// Text of a file as one line that fits into a message.
[[nodiscard]] inline std::string printable(std::string_view words, std::size_t longest)
{
  std::string line;
  for (const char letter : words.substr(0, longest)) line += letter < ' ' || letter > '~' ? '?' : letter;
  return words.size() > longest ? line + "..." : line;
}

/// The end of a path, which tells more than its begin.
[[nodiscard]] inline std::string short_path(std::string_view file)
{
  constexpr std::size_t longest = 160;
  return file.size() <= longest ? printable(file, longest)
                                : "..." + printable(file.substr(file.size() - longest), longest);
}

/// @throws format_error
[[noreturn]] inline void refuse_file(std::string_view file, std::string_view why, std::string_view advice)
{
  throw format_error{error_text{} << "chunkmem: " << short_path(file) << " cannot be used: " << why << " (" << advice
                                  << ")"};
}
[[noreturn]] inline void refuse_key(std::string_view file, std::string_view key, std::string_view why,
                                    std::string_view advice)
{
  throw format_error{error_text{} << "chunkmem: " << short_path(file) << " cannot be used: key \""
                                  << printable(key, 160) << "\" " << why << " (" << advice << ")"};
}

/// Receives the events of the parser, in the order of the file. An event outside of these files' format ends the
/// reading.
class json_events {
 public:
  json_events(std::string_view file, const json_limits& limits, std::vector<json_field>& fields)
      : file_{file}, limits_{limits}, fields_{fields}
  {
  }

  bool start_object(std::size_t)
  {
    if (!lists_.empty()) refuse_element("is an object in a list", "give it a number or a text");
    if (depth_ == limits_.depth) refuse("is an object in too many others", "write it as the examples are");
    if (depth_ > 0) prefix_ = path_ + '.';
    ++depth_;
    is_empty_ = true;
    return true;
  }
  bool end_object()
  {
    --depth_;
    if (depth_ > 0 && is_empty_) refuse("is an object without a member", "give it its members, or remove it");
    is_empty_ = false;
    if (!prefix_.empty()) prefix_.pop_back();
    path_ = prefix_;
    const std::size_t dot = prefix_.rfind('.');
    prefix_.resize(dot == std::string::npos ? 0 : dot + 1);
    return true;
  }
  bool key(std::string& name)
  {
    is_empty_ = false;
    path_ = prefix_ + printable(name, limits_.key_length);
    if (name.size() > limits_.key_length) refuse("is longer than a key may be", "remove it");
    if (name.empty() || name.find('.') != name.npos) refuse("is no name", "remove it");
    for (const std::string& it : names_)
      if (it == path_) refuse("is there twice", "remove one");
    if (names_.size() == limits_.fields) refuse("is one too many", "remove some");
    names_.push_back(path_);
    return true;
  }
  bool string(std::string& text)
  {
    if (text.size() > limits_.text_length) refuse("has a text that is too long", "shorten it");
    next(json_kind::text).text = std::move(text);
    return true;
  }
  bool number_unsigned(std::uint64_t value)
  {
    json_field& field = next(json_kind::whole);
    field.whole = value;
    field.number = static_cast<double>(value);
    return true;
  }
  bool number_integer(std::int64_t)
  {
    next(json_kind::negative);
    return true;
  }
  bool number_float(double value, const std::string&)
  {
    next(value < 0 ? json_kind::negative : json_kind::number).number = value;
    return true;
  }
  bool boolean(bool value)
  {
    next(json_kind::truth).truth = value;
    return true;
  }
  bool null() { refuse_element("is null", "give it a value"); }
  bool start_array(std::size_t)
  {
    if (depth_ == 0) refuse_file(file_, "it is no object", "write one object in braces");
    if (limits_.elements == 0) refuse("is a list, and there are none in such files", "give it a value");
    if (lists_.size() == deepest_list) refuse_element("is a list in too many others", "write it as the examples are");
    lists_.push_back(0);
    return true;
  }
  bool end_array()
  {
    const bool is_empty = lists_.back() == 0;
    lists_.pop_back();
    if (is_empty) refuse_element("is a list without an element", "give it elements, or remove it");
    if (!lists_.empty()) ++lists_.back();
    return true;
  }
  template <class Binary>
  bool binary(Binary&)
  {
    refuse("is binary", "give it a value");
  }
  template <class Error>
  bool parse_error(std::size_t, const std::string&, const Error& error)
  {
    constexpr int number_overflow = 406;
    if (error.id == number_overflow) refuse("has a number that is too large", "write a smaller one");
    if (path_.empty()) refuse_file(file_, "it is no JSON", "write one object in braces");
    refuse("is the last one before a part that is no JSON, such as NaN, a comment or a missing comma", "correct it");
  }

 private:
  static constexpr std::size_t deepest_list = 2;  // matrices

  [[noreturn]] void refuse(std::string_view why, std::string_view advice) const
  {
    refuse_key(file_, path_, why, advice);
  }
  [[noreturn]] void refuse_element(std::string_view why, std::string_view advice) const
  {
    refuse_key(file_, element_path(), why, advice);
  }
  /// The path of the next element, where lists are open.
  [[nodiscard]] std::string element_path() const
  {
    std::string path = path_;
    for (const std::size_t index : lists_) path += '[' + std::to_string(index) + ']';
    return path;
  }
  json_field& next(json_kind kind)
  {
    if (depth_ == 0) refuse_file(file_, "it is no object", "write one object in braces");
    if (!lists_.empty() && ++elements_ > limits_.elements) refuse_element("is one too many", "remove some");
    json_field& field = fields_.emplace_back();
    field.path = element_path();
    field.kind = kind;
    if (!lists_.empty()) ++lists_.back();
    return field;
  }

  std::string_view file_;
  const json_limits& limits_;
  std::vector<json_field>& fields_;
  std::vector<std::string> names_;
  std::string prefix_;
  std::string path_;
  std::vector<std::size_t> lists_;  ///< by depth: elements so far
  std::size_t elements_ = 0;
  std::size_t depth_ = 0;
  bool is_empty_ = false;  ///< the innermost object, so far
};

}  // namespace detail

/// The fields of a small JSON file that is one object, objects in it included. Read each field once, by its path. An
/// unread field is an error. Paths have dots: "host_bytes.value".
///
/// Every mistake is a format_error of one sentence, with the file and the key. Nothing beyond the limits is allocated.
/// Cost: O(characters), and O(fields) for each field.
///
/// Use:
///
///     auto fields = json_fields::of_file("machine.json");
///     const double flops = fields.number("device_flops_per_second.value");
///     fields.finish();                 // refuses fields that were not read
class json_fields {
 public:
  /// @param file   a name for messages
  /// @throws format_error   no JSON, a key twice, a list, a null, or more than the limits
  json_fields(std::string_view text, std::string_view file, const json_limits& limits = {}) : file_{file}
  {
    if (text.size() > limits.file.count())
      detail::refuse_file(file_, "it is longer than such files may be", "remove the unneeded parts");
    const std::size_t start = text.find_first_not_of(" \t\r\n");
    if (start == text.npos) detail::refuse_file(file_, "it is empty", "write one object in braces");
    if (text[start] != '{')
      detail::refuse_file(file_, "it does not begin with an object", "write one object in braces");
    if (text.find('\0') != text.npos)
      detail::refuse_file(file_, "it has a byte 0", "write it as text");  // the parser would end there
    detail::json_events events{file_, limits, fields_};
    if (!nlohmann::json::sax_parse(text, &events)) detail::refuse_file(file_, "it is no JSON", "correct it");
  }

  /// @throws io_error   it cannot be read   @throws format_error   as above; at most the limit and one byte more were
  /// read
  [[nodiscard]] static json_fields of_file(const std::string& path, const json_limits& limits = {})
  {
    errno = 0;
    std::ifstream in{path, std::ios::binary};
    std::string text(limits.file.count() + 1, '\0');
    if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!in.is_open() || in.bad())
      throw io_error{error_text{} << "chunkmem: " << detail::short_path(path)
                                  << " cannot be read (check that it exists and is a file)",
                     io_fault{errno, 0}};
    text.resize(static_cast<std::size_t>(in.gcount()));
    return json_fields{text, path, limits};
  }

  [[nodiscard]] const std::string& file() const noexcept { return file_; }

  /// A whole number. @throws format_error   it is not there, or is none
  [[nodiscard]] std::uint64_t whole(std::string_view key, std::uint64_t most = UINT64_MAX)
  {
    const detail::json_field& field = take(key, "a whole number");
    if (field.kind == detail::json_kind::number)
      refuse(key, "is no whole number, or needs more than 64 bits", "write a whole number");
    if (field.kind != detail::json_kind::whole) refuse_kind(field, "a whole number");
    if (field.whole > most) refuse(key, "is too large", "write a smaller number");
    return field.whole;
  }
  /// A number that is not negative. @throws format_error   it is not there, or is none
  [[nodiscard]] double number(std::string_view key)
  {
    const detail::json_field& field = take(key, "a number");
    if (field.kind != detail::json_kind::whole && field.kind != detail::json_kind::number)
      refuse_kind(field, "a number");
    return field.number;
  }
  /// @throws format_error   it is not there, or is neither true nor false
  [[nodiscard]] bool truth(std::string_view key)
  {
    const detail::json_field& field = take(key, "true or false");
    if (field.kind != detail::json_kind::truth) refuse_kind(field, "true or false");
    return field.truth;
  }
  /// A text that is not empty. @throws format_error   it is not there, or is none
  [[nodiscard]] std::string text(std::string_view key)
  {
    const detail::json_field& field = take(key, "a text");
    if (field.kind != detail::json_kind::text) refuse_kind(field, "a text");
    if (field.text.empty()) refuse(key, "is empty", "write a text");
    return field.text;
  }
  /// There is such a field, list or object.
  [[nodiscard]] bool has(std::string_view key) const
  {
    return std::ranges::any_of(fields_, [&](const detail::json_field& it) {
      return it.path.starts_with(key) &&
             (it.path.size() == key.size() || it.path[key.size()] == '.' || it.path[key.size()] == '[');
    });
  }
  /// The names of the members of an object, in the order of the file. Empty if there is no such object.
  [[nodiscard]] std::vector<std::string> members(std::string_view key) const
  {
    std::vector<std::string> found;
    const std::string prefix = std::string{key} + '.';
    for (const detail::json_field& it : fields_) {
      if (!it.path.starts_with(prefix)) continue;
      std::string name = it.path.substr(prefix.size(), it.path.find_first_of(".[", prefix.size()) - prefix.size());
      if (std::ranges::find(found, name) == found.end()) found.push_back(std::move(name));
    }
    return found;
  }
  /// A list of texts. @throws format_error   it is not there, or is none
  [[nodiscard]] std::vector<std::string> texts(std::string_view key)
  {
    std::vector<std::string> found;
    for_elements(key, "a list of texts", [&](const detail::json_field& it) {
      if (it.kind != detail::json_kind::text || it.path.find("][") != it.path.npos) refuse_kind(it, "a text");
      found.push_back(it.text);
    });
    return found;
  }
  /// A list of whole numbers. @throws format_error   it is not there, or is none
  [[nodiscard]] std::vector<std::uint64_t> wholes(std::string_view key)
  {
    std::vector<std::uint64_t> found;
    for_elements(key, "a list of whole numbers", [&](const detail::json_field& it) {
      if (it.kind != detail::json_kind::whole || it.path.find("][") != it.path.npos)
        refuse(it.path, "is no whole number", "write a whole number");
      found.push_back(it.whole);
    });
    return found;
  }
  /// A list of numbers that are not negative. @throws format_error   it is not there, or is none
  [[nodiscard]] std::vector<double> numbers(std::string_view key)
  {
    std::vector<double> found;
    for_elements(key, "a list of numbers", [&](const detail::json_field& it) {
      const bool is_number = it.kind == detail::json_kind::whole || it.kind == detail::json_kind::number;
      if (!is_number || it.path.find("][") != it.path.npos) refuse_kind(it, "a number");
      found.push_back(it.number);
    });
    return found;
  }
  /// A list of lists of numbers that are not negative. @throws format_error   it is not there, or is none
  [[nodiscard]] std::vector<std::vector<double>> matrix(std::string_view key)
  {
    std::vector<std::vector<double>> rows;
    for_elements(key, "a list of lists of numbers", [&](const detail::json_field& it) {
      const std::size_t second = it.path.find("][", key.size());
      if (second == it.path.npos) refuse(it.path, "is no list", "write a list for each row");
      if (it.kind != detail::json_kind::whole && it.kind != detail::json_kind::number) refuse_kind(it, "a number");
      if (it.path.compare(second, it.path.npos, "][0]") == 0) rows.emplace_back();
      rows.back().push_back(it.number);
    });
    return rows;
  }
  /// @throws format_error   a field was not read
  void finish() const
  {
    for (const detail::json_field& field : fields_)
      if (!field.is_taken) refuse(field.path, "is not known", "remove it, or check its spelling");
  }
  /// Refuses the meaning of a field. @throws format_error   always
  [[noreturn]] void refuse(std::string_view key, std::string_view why, std::string_view advice) const
  {
    detail::refuse_key(file_, key, why, advice);
  }

 private:
  const detail::json_field& take(std::string_view key, std::string_view wanted)
  {
    for (detail::json_field& field : fields_)
      if (field.path == key) {
        field.is_taken = true;
        return field;
      }
    refuse(key, "is missing", std::string{"give it "}.append(wanted));
  }
  template <class Visit>
  void for_elements(std::string_view key, std::string_view wanted, Visit visit)
  {
    const std::string prefix = std::string{key} + '[';
    bool has_any = false;
    for (detail::json_field& it : fields_) {
      if (!it.path.starts_with(prefix)) continue;
      has_any = it.is_taken = true;
      visit(it);
    }
    if (has_any) return;
    for (const detail::json_field& it : fields_)
      if (it.path == key) refuse_kind(it, wanted);
    refuse(key, "is missing", std::string{"give it "}.append(wanted));
  }
  [[noreturn]] void refuse_kind(const detail::json_field& field, std::string_view wanted) const
  {
    constexpr std::string_view kinds[] = {"is a number", "is a number", "is negative", "is true or false", "is a text"};
    refuse(field.path, kinds[static_cast<std::size_t>(field.kind)], std::string{"write "}.append(wanted));
  }

  std::string file_;
  std::vector<detail::json_field> fields_;
};

}  // namespace workload

}  // namespace chunkmem::inline v0
