// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "model_tensors.hpp"

namespace max_model {

/// The chunk size that another engine would choose. Sizes in elements, since all of its lists have the same.
struct rival_choice {
  double waste = 1;  ///< part of its chunks that no tensor fills; 1: no size works
  std::uint64_t chunk = 0;
  std::uint64_t evaluations = 0;
  std::uint64_t held = 0;  ///< elements of all its chunks
};

/// Chunks filled in order, tensor by tensor; a tensor larger than a chunk has one of its own, of its exact size.
class appended_chunks {
 public:
  explicit appended_chunks(std::uint64_t chunk) : chunk_{chunk} {}
  void add(std::uint64_t elements)
  {
    payload_ += elements;
    if (elements > chunk_) {
      held_ += elements;
      return;
    }
    if (elements > room_) {
      held_ += chunk_;
      room_ = chunk_;
    }
    room_ -= elements;
  }
  [[nodiscard]] std::uint64_t held() const { return held_; }
  [[nodiscard]] double waste() const { return static_cast<double>(held_ - payload_) / static_cast<double>(held_); }

 private:
  std::uint64_t chunk_;
  std::uint64_t room_ = 0;
  std::uint64_t held_ = 0;
  std::uint64_t payload_ = 0;
};

/// The chunk size from `first` to `last` with the least waste; the first of equal ones.
inline rival_choice least_of(const std::vector<std::uint64_t>& tensors, std::uint64_t first, std::uint64_t last,
                             std::uint64_t step)
{
  rival_choice best;
  for (std::uint64_t chunk = first; chunk <= last; chunk += step) {
    appended_chunks chunks{chunk};
    for (const std::uint64_t elements : tensors) chunks.add(elements);
    ++best.evaluations;
    if (chunks.waste() < best.waste) best = {chunks.waste(), chunk, best.evaluations, chunks.held()};
  }
  return best;
}

inline std::vector<std::uint64_t> elements_of(const std::vector<declared_tensor>& tensors)
{
  std::vector<std::uint64_t> result;
  for (const declared_tensor& it : tensors) result.push_back(it.elements);
  return result;
}

/// PatrickStar: eight sizes from 88 to 312 Mi elements; the tensors of a module go into one chunk, or it fails.
inline rival_choice patrickstar_grid(const std::vector<declared_tensor>& tensors)
{
  std::vector<std::uint64_t> modules(tensors.back().module + 1, 0);
  for (const declared_tensor& it : tensors) modules[it.module] += it.elements;
  rival_choice best;
  const std::uint64_t largest = *std::max_element(modules.begin(), modules.end());
  for (std::uint64_t mebi = 312; mebi >= 64; mebi -= 32) {
    ++best.evaluations;
    if (largest > mebi << 20) continue;
    const rival_choice here = least_of(modules, mebi << 20, mebi << 20, 1);
    if (here.waste < best.waste) best = {here.waste, here.chunk, best.evaluations, here.held};
  }
  return best;
}

/// Gemini: leaves out tensors beyond the mean and three standard deviations; then from the largest left, at least 32 Mi
/// elements, over a range in steps of the hidden size.
inline rival_choice gemini_search(const std::vector<declared_tensor>& tensors, std::uint64_t hidden,
                                  std::uint64_t range)
{
  const std::vector<std::uint64_t> all = elements_of(tensors);
  double sum = 0;
  double squares = 0;
  for (const std::uint64_t elements : all) {
    sum += static_cast<double>(elements);
    squares += static_cast<double>(elements) * static_cast<double>(elements);
  }
  const double mean = sum / static_cast<double>(all.size());
  const double limit = mean + 3 * std::sqrt(std::max(squares / static_cast<double>(all.size()) - mean * mean, 0.0));
  std::uint64_t start = std::uint64_t{32} << 20;
  for (const std::uint64_t elements : all)
    if (static_cast<double>(elements) <= limit) start = std::max(start, elements);
  start = (start + hidden - 1) / hidden * hidden;
  return least_of(all, start, start + range, hidden);
}

/// Sizes of chunks that Elixir searches [elements]: from 32 MiB, doubled until the largest tensor fits, to three times
/// that size.
struct elixir_range {
  std::uint64_t least = 0;
  std::uint64_t most = 0;

  explicit elixir_range(std::uint64_t largest_tensor) : least{std::uint64_t{16} << 20}
  {
    while (least < largest_tensor) least *= 2;
    most = 3 * least;
  }
};

/// Elixir, least waste over its range. A tied vocabulary is private: it has a block of its own.
inline rival_choice elixir_search(const std::vector<declared_tensor>& tensors, std::uint64_t tied)
{
  std::vector<std::uint64_t> others;
  for (const declared_tensor& it : tensors)
    if (it.elements != tied) others.push_back(it.elements);
  const elixir_range range{*std::max_element(others.begin(), others.end())};
  const std::uint64_t steps = (std::uint64_t{16} << 20) / (2 * std::bit_ceil(others.size()));
  rival_choice best =
      least_of(others, range.least, range.most, std::max<std::uint64_t>((range.most - range.least) / steps, 1'024));
  double payload = 0;
  for (const std::uint64_t elements : others) payload += static_cast<double>(elements);
  const double held = payload / (1 - best.waste);
  const double vocabulary = others.size() == tensors.size() ? 0 : static_cast<double>(tied);
  best.waste = (held - payload) / (held + vocabulary);
  return best;
}

}  // namespace max_model
