// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "choice.hpp"
#include "trainer.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

/// Generates text with the model, byte by byte.
///
/// Keys and values of earlier positions stay in the activations of row 0, so a new byte costs one position. When the
/// context is full, its newer half is computed again from position 0.
template <class Manager>
class sampler {
 public:
  explicit sampler(trainer<Manager>& model, float temperature = 0.8f) : model_{model}, temperature_{temperature} {}

  /// @param prompt   not empty; only the end of a long prompt is used, half the context
  /// @param count    bytes to write
  [[nodiscard]] std::string write(std::string_view prompt, std::size_t count, std::uint64_t seed)
  {
    const auto context = static_cast<std::size_t>(model_.net().context());
    const std::size_t half = std::max<std::size_t>(1, context / 2);
    std::vector<unsigned char> tokens(prompt.end() - static_cast<std::ptrdiff_t>(std::min(prompt.size(), half)),
                                      prompt.end());
    tokens.reserve(context);
    std::vector<float> odds(vocabulary);
    const counter_random random{seed, stream::sampling};
    std::string written;
    auto iteration = model_.net().manager().iteration("sample");
    std::size_t first = 0;
    for (std::size_t i = 0; i < count; ++i) {
      next_logits(tokens, first, odds);
      tokens.push_back(choose(odds, random.uniform(i), temperature_));
      written.push_back(static_cast<char>(tokens.back()));
      first = tokens.size() - 1;
      if (tokens.size() < context) continue;
      tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(half));
      first = 0;
    }
    if (count > 0) model_.drop(0);
    return written;
  }

 private:
  void next_logits(std::span<const unsigned char> tokens, std::size_t first, std::vector<float>& odds)
  {
    const auto end = static_cast<kernels::index>(tokens.size());
    const auto begin = static_cast<kernels::index>(first);
    const window fresh{tokens.data() + first, begin, end - begin};
    model_.forward().embed(0, fresh);
    for (std::size_t layer = 0; layer < model_.net().handles().layers.size(); ++layer) {
      model_.forward().layer(layer, 0, fresh);
    }
    const auto logits = model_.net().scratch(static_cast<kernels::index>(vocabulary));
    model_.end().logits(0, window{nullptr, end - 1, 1}, floats(logits));
    std::copy_n(floats(logits), vocabulary, odds.begin());
  }

  trainer<Manager>& model_;
  float temperature_;
};

}  // namespace gpt
