// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "strategy.hpp"

#include <cstdint>

namespace max_model {

/// The most layers for which `fits(layers)` is true, 0 where one is too many. By doubling, then by bisection.
/// @pre   if `fits(layers)` is true, it is true for fewer layers
template <class Fits>
[[nodiscard]] std::uint64_t most_layers(const Fits& fits, std::uint64_t most = workload::transformer_shape::most_layers)
{
  std::uint64_t good = 0;
  std::uint64_t bad = 1;
  while (bad <= most && fits(bad)) {
    good = bad;
    bad *= 2;
  }
  if (bad > most) {
    if (good == most || fits(most)) return most;
    bad = most;
  }
  while (bad - good > 1) {
    const std::uint64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

[[nodiscard]] inline training_job with_layers(training_job job, std::uint64_t layers)
{
  job.shape.layers = layers;
  return job;
}

/// A job's model at another width: the same heads, its MLP and table in proportion.
/// @throws config_error   a number is not whole there, or heads do not divide the width
[[nodiscard]] inline workload::transformer_shape with_width(workload::transformer_shape shape, std::uint64_t hidden)
{
  const auto scaled = [&](std::uint64_t size) {
    const std::uint64_t product = (chunkmem::checked{size} * hidden).value();
    if (shape.hidden == 0 || product % shape.hidden != 0) {
      throw chunkmem::config_error{chunkmem::error_text{} << "chunkmem: a model of width " << shape.hidden
                                                          << " has no shape of the same kind at width " << hidden
                                                          << " (its MLP of " << size
                                                          << " would not be whole: choose another width)"};
    }
    return product / shape.hidden;
  };
  shape.ffn = scaled(shape.ffn);
  shape.embedding = scaled(shape.embedding);
  shape.hidden = hidden;
  shape.check();
  return shape;
}

/// The largest model of a strategy, over layers at the width of the job's model.
struct largest_model {
  training_job job;  ///< with its layers; 0: not even one
  memory_use use;    ///< of that model, or of one layer where that is too much

  [[nodiscard]] std::uint64_t layers() const noexcept { return job.shape.layers; }
  [[nodiscard]] std::uint64_t parameters() const { return layers() == 0 ? 0 : job.parameters(); }
  /// Part of the machine's bytes that are model data, 14 B for each parameter.
  [[nodiscard]] double part_of_machine() const
  {
    return static_cast<double>(model_bytes * parameters()) / static_cast<double>(job.machine.memory().count());
  }
};

/// @complexity   O(log layers) calls of Strategy::memory
template <strategy Strategy>
[[nodiscard]] largest_model find_largest(const Strategy& which, const training_job& job)
{
  const std::uint64_t layers =
      most_layers([&](std::uint64_t count) { return which.memory(with_layers(job, count)).fits(); });
  return {with_layers(job, layers), which.memory(with_layers(job, layers == 0 ? 1 : layers))};
}

}  // namespace max_model
