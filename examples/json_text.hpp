// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <concepts>
#include <cstdio>
#include <string>
#include <string_view>

namespace command_line {

/// A text as a JSON string, in quotation marks.
[[nodiscard]] inline std::string json_quoted(std::string_view text)
{
  std::string out = "\"";
  for (const char each : text) {
    if (each == '"' || each == '\\') {
      out += '\\';
      out += each;
    } else if (static_cast<unsigned char>(each) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(each));
      out += escaped;
    } else {
      out += each;
    }
  }
  return out += '"';
}

/// All digits of a number. JSON has no infinities and no NaN: these are null.
[[nodiscard]] inline std::string json_number(double number)
{
  if (!std::isfinite(number)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", number);
  return text;
}
/// The digits of single precision.
[[nodiscard]] inline std::string json_number(float number)
{
  if (!std::isfinite(number)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(number));
  return text;
}

/// An object, member by member.
///
///     json_object it;
///     it.add("step", step).add("loss", loss).add_json("memory", report.json());
///     std::puts(it.text().c_str());
class json_object {
 public:
  /// @param value   valid JSON
  json_object& add_json(std::string_view name, std::string_view value)
  {
    members_ += (members_.empty() ? "" : ", ") + json_quoted(name) + ": ";
    members_ += value;
    return *this;
  }
  json_object& add(std::string_view name, std::string_view text) { return add_json(name, json_quoted(text)); }
  json_object& add(std::string_view name, const char* text) { return add(name, std::string_view{text}); }
  template <std::floating_point Number>
  json_object& add(std::string_view name, Number number)
  {
    return add_json(name, json_number(number));
  }
  template <std::integral Number>
  json_object& add(std::string_view name, Number number)
  {
    if constexpr (std::same_as<Number, bool>)
      return add_json(name, number ? "true" : "false");
    else
      return add_json(name, std::to_string(number));
  }

  [[nodiscard]] std::string text() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

/// A list. @param of   JSON of one item
template <class Items, class Of>
[[nodiscard]] std::string json_list(const Items& items, Of of)
{
  std::string out = "[";
  for (const auto& item : items) {
    if (out.size() > 1) out += ", ";
    out += of(item);
  }
  return out += "]";
}

}  // namespace command_line
