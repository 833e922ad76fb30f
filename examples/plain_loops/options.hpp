// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../common_flags.hpp"
#include "shape.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>

namespace plain_loops {

/// A mistake on the command line, in one sentence.
struct bad_option : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct options {
  model_shape model;
  batch_shape batch{4, 64};
  training how;
  int steps = 20;
  int generate = 80;  ///< bytes to write after the training
  std::string prompt = "The license ";
  std::string text;               ///< a file; empty: the bundled texts
  double device_fraction = 0.25;  ///< of all bytes of the model, its optimizer, its activations and scratch
  bool uncapped = false;          ///< a device with room for everything
  bool sizes = false;             ///< print what sizes of chunks and orders need, and stop
  std::uint64_t chunk_bytes = std::uint64_t{64} << 10;
  bool first_use = true;  ///< chunks in the order of the rehearsed step, else in that of the declarations
  std::string eviction = "belady";
  std::string transfer = "lookahead";
  std::string layout = "best_fit_layout";
  command_line::common_flags common;
};

/// @throws bad_option
[[nodiscard]] options read_options(int count, const char* const* words);
[[nodiscard]] const char* help_text();

}  // namespace plain_loops
