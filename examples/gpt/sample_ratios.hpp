// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "extents.hpp"

#include <chunkmem/core/bytes.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

/// The number of kept rows of one input, in all rows of a batch.
struct input_ratio {
  std::string name;
  double ratio = 1;
  chunkmem::bytes kept, exact;  ///< kept rows, indices and scales; all rows
  /// The score of ratio_search, the mean over measured batches. Norms of gradients are unknown there and count as
  /// equal, so the score compares inputs by |h| alone, and is no bound of a variance.
  double noise = 0;
};

/// How rows of inputs are sampled.
struct sample_settings {
  double ratio = 0;                   ///< of inputs without a ratio of their own
  std::vector<input_ratio> inputs{};  ///< inputs with their own ratio
  bool measures_noise = false;

  [[nodiscard]] double of(std::string_view name) const noexcept
  {
    for (const input_ratio& it : inputs)
      if (it.name == name) return it.ratio;
    return ratio;
  }
};

/// Bytes for the kept rows of all inputs of a batch: a number of bytes, or a part of all rows.
struct sample_room {
  std::optional<chunkmem::bytes> size;
  std::optional<double> share;  ///< neither: the bytes of a ratio of 0.3
};

/// Steps that are measured.
inline constexpr std::size_t measured_steps = 4;

/// `0.28125`: the fewest digits that give the same number again.
[[nodiscard]] std::string ratio_text(double ratio);

/// Writes ratios as lines of words, for people and for read_ratios.
///
///     sampling ratios 2
///     model layers 2 width 32 heads 2 context 32 batch 2
///     input ratio 0.28125 kept 4096 exact 8192 noise 0.015 name layer 0 attended
///     end
void write_ratios(std::ostream& out, const extents& size, const std::vector<input_ratio>& inputs);

/// @throws problem   the file cannot be read, is broken, or is of another model: names the file and the mistake
[[nodiscard]] std::vector<input_ratio> read_ratios(const std::filesystem::path& where, const extents& size);

/// An input of this model, and the bytes of its rows.
struct sized_input {
  std::string name;
  chunkmem::bytes exact;  ///< all rows of a batch
  /// Rows, indices and scales of a batch that are kept.
  std::function<chunkmem::bytes(double ratio)> kept;
};

/// Checks that the file has these inputs and no others, with their bytes. @throws problem   names an input that is
/// missing, that is not here, or that has other bytes
void expect_inputs(const std::filesystem::path& where, const std::vector<input_ratio>& inputs,
                   const std::vector<sized_input>& here);

}  // namespace gpt
