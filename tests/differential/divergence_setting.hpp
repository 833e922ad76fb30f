// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "walk.hpp"

#include <support/plain_parameters.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace divergence {

/// One run: each axis has a value, and the seed says what its iterations do.
struct setting {
  enum axis : std::size_t {
    placement,
    updates,
    device,
    host,
    eviction,
    gradient,
    kind,
    optimizer,
    clipping,
    place,
    rehearsal,
    axes
  };
  static constexpr std::array<std::uint8_t, axes> extents{12, 3, 4, 2, 5, 2, 2, 2, 3, 4, 2};
  std::array<std::uint8_t, axes> at{};
  std::uint64_t seed = 1;

  [[nodiscard]] bool adversarial() const noexcept { return at[place] >= 2; }
  [[nodiscard]] bool launched() const noexcept { return at[place] % 2 == 1; }
  [[nodiscard]] bool is_short() const noexcept { return at[kind] == 1; }
  /// Gradients in place want 16-bit weights with masters.
  [[nodiscard]] bool in_place() const noexcept { return at[gradient] == 1 && is_short(); }
  [[nodiscard]] bool rehearses() const noexcept { return at[rehearsal] == 1; }
  [[nodiscard]] bool host_is_tight() const noexcept { return at[host] == 1; }

  /// Norms of this model lie around the limits: both sides are met in most runs.
  [[nodiscard]] mixed::recipe recipe() const
  {
    const bool is_adam = at[optimizer] == 0;
    return {.kind = is_short() ? mixed::precision::bf16 : mixed::precision::fp32,
            .optimizer = is_adam ? mixed::rule::adam : mixed::rule::sgd,
            .clip = {.norm = limit(), .kind = is_adam ? mixed::norm_kind::l2 : mixed::norm_kind::l1},
            .scale = {.scale = 256.0F, .window = 2},
            .updates = static_cast<mixed::updating>(at[updates])};
  }
  [[nodiscard]] std::string name() const
  {
    std::string all = "seed " + std::to_string(seed);
    static constexpr const char* names[axes] = {"placement", "updates",   "device",   "host",  "eviction", "gradient",
                                                "kind",      "optimizer", "clipping", "place", "rehearsal"};
    for (std::size_t it = 0; it < axes; ++it) all += std::string{", "} + names[it] + " " + std::to_string(at[it]);
    return all;
  }

 private:
  [[nodiscard]] float limit() const noexcept
  {
    if (at[clipping] == 0) return 0.0F;
    const bool is_adam = at[optimizer] == 0;
    return at[clipping] == 1 ? (is_adam ? 10.0F : 300.0F) : (is_adam ? 1.0F : 20.0F);
  }
};

/// The setting of this number: random, but placements and ways to update take turns.
[[nodiscard]] inline setting random_setting(std::uint64_t number)
{
  dice random{number * 0x2545F4914F6CDD1DU + 1};
  setting it;
  it.seed = number;
  for (std::size_t axis = 0; axis < setting::axes; ++axis)
    it.at[axis] = static_cast<std::uint8_t>(random.below(setting::extents[axis]));
  it.at[setting::placement] = static_cast<std::uint8_t>(number % setting::extents[setting::placement]);
  it.at[setting::updates] =
      static_cast<std::uint8_t>(number / setting::extents[setting::placement] % setting::extents[setting::updates]);
  return it;
}

/// What happened in runs that were compared.
struct tally {
  std::uint64_t runs = 0;
  std::uint64_t identical = 0;
  std::uint64_t iterations = 0;
  std::uint64_t divergences = 0;
  std::uint64_t replans = 0;
  std::uint64_t clipped = 0;   ///< steps
  std::uint64_t skipped = 0;   ///< steps
  std::uint64_t retried = 0;   ///< iterations that read what a gradient in place had overwritten
  std::uint64_t enlarged = 0;  ///< runs that needed more room than a regular iteration's rehearsal said
  std::uint64_t loads = 0;

  [[nodiscard]] std::string text() const
  {
    return std::to_string(identical) + " of " + std::to_string(runs) +
           " runs identical to plain vectors: " + std::to_string(iterations) + " iterations, " +
           std::to_string(divergences) + " left their record, " + std::to_string(replans) + " plans made again, " +
           std::to_string(clipped) + " steps clipped, " + std::to_string(skipped) + " skipped, " +
           std::to_string(retried) + " iterations begun again, " + std::to_string(loads) + " loads; " +
           std::to_string(enlarged) + " runs with more room than rehearsed\n";
  }
};

}  // namespace divergence
