// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chunk_searches.hpp"
#include "model_tensors.hpp"
#include "strategy.hpp"

#include <algorithm>
#include <cstdint>

namespace max_model {

/// Gemini's chunks: their size, and the part of them on a rank.
///
/// Its search: from the largest tensor within the mean and three standard deviations, at least 32 Mi elements, over a
/// range of 32 Mi in steps of the width, the size of least waste. A larger tensor has a chunk of its own. Each chunk is
/// divided over all ranks.
/// Source: ColossalAI (Li et al. 2021, arXiv 2110.14883), its Gemini of 2024 and the defaults of its plugin.
class gemini_chunks {
 public:
  explicit gemini_chunks(const training_job& job) : ranks_{job.rank().ranks}
  {
    const model_tensors all{job.shape, true};
    const rival_choice found = gemini_search(all.all(), job.shape.hidden, std::uint64_t{32} << 20);
    chunk_ = found.chunk;
    held_ = found.held;
    for (const declared_tensor& it : all.all()) largest_ = std::max(largest_, it.elements);
  }

  /// Elements.
  [[nodiscard]] std::uint64_t chunk() const noexcept { return chunk_; }
  [[nodiscard]] bytes values() const { return share_of(bytes{value_bytes} * held_, ranks_); }
  [[nodiscard]] bytes states() const { return share_of(bytes{state_bytes} * held_, ranks_); }
  /// Whole chunks on the device: the two chunks of a module, or the one of its largest tensor; and the shard of a chunk
  /// whose gradients were just summed over all ranks. With one rank a chunk is its own shard.
  [[nodiscard]] bytes gathered() const
  {
    if (ranks_ == 1) return {};
    return bytes{value_bytes} * std::max(2 * chunk_, largest_) + share_of(bytes{value_bytes} * chunk_, ranks_);
  }

 private:
  std::uint64_t ranks_;
  std::uint64_t chunk_ = 0;
  std::uint64_t held_ = 0;
  std::uint64_t largest_ = 0;
};

}  // namespace max_model
