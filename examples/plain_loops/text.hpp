// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shape.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace plain_loops {

/// One batch: tokens, and for each of them the next token.
struct token_batch {
  batch_shape shape;
  std::vector<unsigned char> tokens;
  std::vector<unsigned char> targets;
};

/// The bytes of a file, or without a name those of English texts: /usr/share/common-licenses, else this repository's
/// pages.
/// @throws std::runtime_error   no such file, or the text is shorter than a window needs
[[nodiscard]] std::string read_text(const std::string& file, std::size_t least);

/// Windows of the text at places that depend on the seed and the step.
[[nodiscard]] token_batch batch_of(const std::string& text, const batch_shape& shape, std::uint64_t seed,
                                   std::uint64_t step);

/// Fills a window with the end of the text. @return   the position of its last byte; bytes after it have no meaning
[[nodiscard]] int place_window(std::vector<unsigned char>& window, const std::string& text);

}  // namespace plain_loops
