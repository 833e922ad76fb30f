// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generators.hpp"

#include "../common_flags.hpp"

#include <chunkmem/pipeline/schedule_generator.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace schedule_example {

/// The choices of the command line.
struct options {
  std::string schedule = "1f1b";                ///< a name of generator_names
  std::optional<std::filesystem::path> file{};  ///< of schedule_text, instead of a generator
  chunkmem::pipeline::pipeline_shape shape{.stages = 4, .micro_batches = 8};  ///< with a file only the seconds count
  generator_numbers numbers{};
  std::optional<std::uint32_t> gradient_sets{};  ///< of a stage; else the number of the schedule
  double update = 0;                             ///< of the weights of a stage [s]
  bool updates_aside = false;                    ///< concurrently with the stage's runs
  bool recomputes = false;
  bool prints_steps = false;
  std::optional<std::filesystem::path> svg{};
  std::optional<std::filesystem::path> trace{};
  std::optional<std::filesystem::path> text{};
  command_line::common_flags common{};
};

/// Reads a command line, without the name of the program.
/// @throws gpt::problem   one sentence: the option, its value and the allowed values
[[nodiscard]] options parse_options(int count, const char* const* arguments);

/// The text of `--help`.
[[nodiscard]] std::string help_text();

}  // namespace schedule_example
