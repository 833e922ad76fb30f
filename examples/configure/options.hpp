// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../common_flags.hpp"

#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/plan_space.hpp>
#include <chunkmem/configurator/trained_model.hpp>
#include <chunkmem/core/bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace configure_example {

/// The choices of the command line.
struct options {
  command_line::common_flags common{};
  bool lists_models = false;
  std::filesystem::path cluster{};
  std::string model{};
  std::optional<std::filesystem::path> profile{};  ///< measured times and bytes of the model
  std::uint64_t sequence = 0;                      ///< 0: the model's
  chunkmem::configurator::trainer_traits trainer{};
  chunkmem::configurator::plan_space space{};
  unsigned threads = 1;
  std::size_t best = 10;
  double seconds = 0;  ///< limit of the search; it ends with the best plans so far; 0: no limit
  chunkmem::bytes device_allowance{};
  chunkmem::bytes host_allowance{};
  bool is_quiet = false;
  std::optional<std::filesystem::path> plan{}, trace{}, svg{};
  std::optional<std::filesystem::path> plans{};  ///< a folder
};

/// @throws max_model::problem   one sentence
[[nodiscard]] options parse_options(int count, const char* const* arguments);
[[nodiscard]] std::string help_text();

}  // namespace configure_example
