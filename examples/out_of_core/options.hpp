// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "planners.hpp"

#include "../common_flags.hpp"

#include <chunkmem/core/bytes.hpp>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace out_of_core {

/// What the command line says.
struct options {
  std::size_t steps = 100;
  std::size_t batch = 64;
  std::optional<chunkmem::bytes> device{};  ///< else activations have four times the bytes that the device has for them
  planner_choice planner = planner_choice::planned;
  std::optional<std::filesystem::path> pictures{};  ///< else this program draws some
  std::size_t least_accuracy = 0;                   ///< of pictures held out, after the last step [percent]
  bool verify = false;
  command_line::common_flags common{};
};

/// Reads a command line, the program's name not included.
/// @throws gpt::problem   one sentence: which option, what it says, what it may say
[[nodiscard]] options parse_options(int count, const char* const* arguments);

/// What `--help` prints.
[[nodiscard]] std::string help_text();

}  // namespace out_of_core
