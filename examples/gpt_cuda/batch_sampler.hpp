// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "choice.hpp"
#include "extents.hpp"
#include "random.hpp"

#include <chunkmem/chunkmem.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::cuda {

/// Generates text with the model, byte by byte, with a whole forward pass for each byte: nothing of earlier positions
/// is kept. When the context is full, its newer half is read again.
template <class Trainer>
class batch_sampler {
 public:
  explicit batch_sampler(Trainer& model, float temperature = 0.8F) : model_{model}, temperature_{temperature} {}

  /// @param prompt   not empty; only the end of a long prompt is used, half the context
  /// @param count    bytes to write
  [[nodiscard]] std::string write(std::string_view prompt, std::size_t count, std::uint64_t seed)
  {
    const std::size_t context = model_.extent().context;
    const std::size_t half = std::max<std::size_t>(1, context / 2);
    std::vector<unsigned char> tokens(prompt.end() - static_cast<std::ptrdiff_t>(std::min(prompt.size(), half)),
                                      prompt.end());
    std::vector<float> odds(vocabulary);
    const counter_random random{seed, stream::sampling};
    std::string written;
    auto iteration = model_.manager().iteration("sample");
    for (std::size_t i = 0; i < count; ++i) {
      model_.next_logits(tokens, odds);
      tokens.push_back(choose(odds, random.uniform(i), temperature_));
      written.push_back(static_cast<char>(tokens.back()));
      if (tokens.size() >= context) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(half));
    }
    return written;
  }

 private:
  Trainer& model_;
  float temperature_;
};

}  // namespace gpt::cuda
