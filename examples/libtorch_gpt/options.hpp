// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../common_flags.hpp"
#include "training.hpp"

#include "windows.hpp"

#include <chunkmem/core/bytes.hpp>

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <optional>

namespace libtorch_gpt {

/// The choices of the command line.
struct options {
  settings how;
  std::size_t steps = 10;
  std::size_t warm_up = 3;                ///< first steps that do not count in the tokens per second
  std::optional<chunkmem::bytes> device;  ///< else a quarter of all bytes in chunks
  std::optional<chunkmem::bytes> host;    ///< else all bytes in chunks and a tenth
  std::optional<std::filesystem::path> text, report;
  unsigned threads = 2;            ///< of the update
  bool keeps_activations = false;  ///< in chunks
  gpt::window_choice windows = gpt::window_choice::random;
  bool cuda = false;
  bool verify = false;
  command_line::common_flags common;
};

/// With --json the text for readers goes to standard error.
[[nodiscard]] inline std::FILE* stream_of_text(const options& chosen) noexcept
{
  return chosen.common.json ? stderr : stdout;
}

/// Bytes of parameters, gradients and states: 16 for each parameter, in 32 bits as in 16.
[[nodiscard]] inline chunkmem::bytes model_data(const extents& size)
{
  const auto w = static_cast<std::uint64_t>(size.width);
  const std::uint64_t block = 12 * w * w + 13 * w;
  const std::uint64_t rest =
      (static_cast<std::uint64_t>(size.vocabulary) + static_cast<std::uint64_t>(size.context) + 2) * w;
  return chunkmem::bytes{16 * (static_cast<std::uint64_t>(size.layers) * block + rest)};
}

}  // namespace libtorch_gpt
