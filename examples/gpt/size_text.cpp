// SPDX-License-Identifier: Apache-2.0
#include "size_text.hpp"

#include "problem.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace gpt {
namespace {

struct unit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr unit units[] = {{"B", 1},
                          {"KiB", std::uint64_t{1} << 10},
                          {"MiB", std::uint64_t{1} << 20},
                          {"GiB", std::uint64_t{1} << 30},
                          {"TiB", std::uint64_t{1} << 40}};
constexpr double largest = 0x1p60;

[[noreturn]] void refuse(std::string_view option, std::string_view text, const char* why)
{
  throw problem{std::string{option} + " '" + std::string{text} + "' " + why +
                " (give a size such as 512KiB, 64MiB or 1.5GiB)"};
}

}  // namespace

chunkmem::bytes parse_size(std::string_view option, std::string_view text)
{
  double number = 0.0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (failure == std::errc::result_out_of_range) refuse(option, text, "is more than 1 EiB");
  if (failure != std::errc{} || !std::isfinite(number)) refuse(option, text, "is not a size");
  if (number < 0.0) refuse(option, text, "is negative");
  if (number == 0.0) refuse(option, text, "is zero");
  const std::string_view name = text.substr(static_cast<std::size_t>(end - text.data()));
  if (name.empty()) refuse(option, text, "has no unit: B, KiB, MiB, GiB or TiB");
  for (const unit& each : units) {
    if (each.name != name) continue;
    const double size = number * static_cast<double>(each.bytes);
    if (size > largest) refuse(option, text, "is more than 1 EiB");
    if (size < 1.0) refuse(option, text, "is less than one byte");
    return chunkmem::bytes{static_cast<std::uint64_t>(size)};
  }
  refuse(option, text, "has an unknown unit: use B, KiB, MiB, GiB or TiB");
}

std::string size_text(chunkmem::bytes size)
{
  const unit* fitting = &units[0];
  for (const unit& each : units) {
    if (size.count() >= each.bytes) fitting = &each;
  }
  char text[48];
  if (fitting->bytes == 1) {
    std::snprintf(text, sizeof text, "%llu B", static_cast<unsigned long long>(size.count()));
  } else {
    const double number = static_cast<double>(size.count()) / static_cast<double>(fitting->bytes);
    std::snprintf(text, sizeof text, "%.*f %s", number < 100.0 ? 2 : 1, number, fitting->name.data());
  }
  return text;
}

}  // namespace gpt
