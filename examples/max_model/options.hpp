// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../common_flags.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace max_model {

/// The choices of the command line.
struct options {
  std::filesystem::path machine;
  std::string model;  ///< a file, a name, or family/name
  std::uint64_t micro_batch = 4;
  std::optional<std::uint64_t> layers;  ///< of the model whose step is simulated; else its own
  std::vector<std::uint64_t> widths;    ///< else that of the model
  std::vector<std::string> strategies;  ///< else all
  std::optional<std::filesystem::path> csv;
  std::optional<std::filesystem::path> timeline;
  bool only_bytes = false;  ///< nothing is simulated
  bool has_logits = true;
  bool recomputes = true;
  bool fuses_attention = false;
  bool lists_models = false;
  command_line::common_flags common;
};

/// Reads a command line, without the name of the program.
/// @throws problem   one sentence: the option, its value and the allowed values
[[nodiscard]] options parse_options(int count, const char* const* arguments);

/// The text of `--help`.
[[nodiscard]] std::string help_text();

}  // namespace max_model
