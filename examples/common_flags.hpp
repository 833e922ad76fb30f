// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/version.hpp>

#include <string>
#include <string_view>

namespace command_line {

/// The flags that every program has.
struct common_flags {
  bool help = false;
  bool version = false;
  bool json = false;

  /// With one of these flags nothing else is read and nothing is run.
  [[nodiscard]] bool asks_only() const noexcept { return help || version; }
};

/// "0.1.0"
[[nodiscard]] inline std::string version_number()
{
  constexpr int version = CHUNKMEM_VERSION;
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}
/// "gpt 0.1.0 (chunkmem)": the text of --version.
[[nodiscard]] inline std::string version_text(std::string_view program)
{
  return std::string{program} + " " + version_number() + " (chunkmem)\n";
}

}  // namespace command_line
