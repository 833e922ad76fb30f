// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/call.hpp>
#include <chunkmem/optimizer/step_options.hpp>

#include <bit>
#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Settings of a step, as a word that ranks compare.
[[nodiscard]] inline std::uint64_t settings_word(const step_options& options)
{
  collective::fingerprint all;
  for (const float it : {options.learning_rate, options.clip.norm, options.clip.value,
                         options.loss_scale != nullptr ? options.loss_scale->scale() : 0.0F})
    all.add(std::bit_cast<std::uint32_t>(it));
  for (const float it : options.group_rates) all.add(std::bit_cast<std::uint32_t>(it));
  all.add(static_cast<std::uint64_t>(options.clip.order) * 2 + (options.skip_nonfinite ? 1 : 0));
  all.add(options.seed);
  return all.value();
}

}  // namespace optimizer

}  // namespace chunkmem::inline v0
