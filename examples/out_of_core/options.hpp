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

/// The choices of the command line.
struct options {
  std::size_t steps = 100;
  std::size_t batch = 64;
  std::optional<chunkmem::bytes> device{};  ///< else activations have four times their part of the device
  planner_choice planner = planner_choice::planned;
  std::optional<std::filesystem::path> pictures{};  ///< else this program draws some
  std::size_t least_accuracy = 0;                   ///< of pictures held out, after the last step [percent]
  bool verify = false;
  command_line::common_flags common{};
};

/// Reads a command line, without the name of the program.
/// @throws gpt::problem   one sentence: the option, its value and the allowed values
[[nodiscard]] options parse_options(int count, const char* const* arguments);

/// The text of `--help`.
[[nodiscard]] std::string help_text();

}  // namespace out_of_core
