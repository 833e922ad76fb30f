// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>

#include <cmath>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace sharding {

/// The data that is divided over ranks, in addition to optimizer states, which always are.
///
///     model_type m{memory, ranks, {}, {.divided = zero{.gradients = false, .parameters = false}}};  // stage 1
///
/// Source: the stages of ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054).
struct zero {
  /// added over ranks in every micro-batch, so that a rank keeps only its share; else they accumulate whole on each
  /// rank, and are added over ranks once, in the last micro-batch
  bool gradients = true;
  /// whole only while they are used; else they stay whole on each rank and are gathered once, after the update
  bool parameters = true;

  [[nodiscard]] constexpr bool operator==(const zero&) const noexcept = default;
};

inline constexpr zero zero_1{.gradients = false, .parameters = false};
inline constexpr zero zero_2{.gradients = true, .parameters = false};
inline constexpr zero zero_3{.gradients = true, .parameters = true};
/// Stage 3 where links to other ranks are slow and memory is not short: one sum for a step.
inline constexpr zero zero_3_reduce_last{.gradients = false, .parameters = true};

/// Settings of a model over ranks, the same on every rank.
///
///     model_type m{memory, ranks, {}, {.sum_scale = 1.0F / static_cast<float>(ranks.ranks())}};
struct sharding_options {
  zero divided = zero_3;
  /// factor of sums of gradients over ranks; 1 / ranks makes means, which 16 bits hold
  float sum_scale = 1;
  /// of a unit, which is the size of a message: a multiple of `chunk_bytes`; 0: as `chunk_bytes`. A rank copies its
  /// shares chunk by chunk. In a unit of ranks x `chunk_bytes` each share has a chunk of its own, and no copy or update
  /// of a share waits for another one
  bytes unit_bytes{};
  /// in stage 3: the number of trained units, spread over the model (is_gathered_ahead), that are gathered for the next
  /// pass as soon as their shares are updated, while gradients of earlier layers are still computed. Good where a
  /// gather takes longer than the forward run of its unit, and the device has room for these units in addition to a
  /// whole pass. Poor without this room, since then a unit is gathered twice, and where sums fill the network in the
  /// backward pass. Sums and gathers need separate groups to overlap: see sums_apart. early_updates gathers none of
  /// these units: ranks then update in different orders, so their records would differ
  std::uint32_t gathers_ahead = 0;
};

/// Whether a unit is one of the `ahead` units that the step before gathered. Units in the order of the forward pass are
/// divided into as many runs of about equal length, and the last unit of each run is gathered ahead.
///
///     const bool is_ahead = sharding::is_gathered_ahead(7, 40, 5);   // 7, 15, 23, 31 and 39 are
///
/// Where a gather takes longer than the forward run of its unit, each unit lets the next one wait a little longer. A
/// unit that is there already saves the wait of its run. The last units alone would leave all earlier waits.
/// @pre   unit < units
[[nodiscard]] constexpr bool is_gathered_ahead(std::uint32_t unit, std::uint32_t units, std::uint32_t ahead) noexcept
{
  const std::uint64_t runs = ahead < units ? ahead : units;
  return (unit + std::uint64_t{1}) * runs / units != unit * runs / units;
}

/// @throws config_error   a sum_scale that is 0, negative, denormal or not finite
inline void check(const sharding_options& options)
{
  if (std::isnormal(options.sum_scale) && options.sum_scale > 0.0F) return;
  throw config_error{error_text{} << "chunkmem: a sum_scale of " << options.sum_scale
                                  << " (give a finite one from 1.2e-38 on: 1 makes sums, and 1 / ranks makes means)"};
}

}  // namespace sharding

}  // namespace chunkmem::inline v0
