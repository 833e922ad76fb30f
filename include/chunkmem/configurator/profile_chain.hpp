// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/layer_chain.hpp>
#include <chunkmem/configurator/model_profile.hpp>
#include <chunkmem/core/bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chunkmem::inline v0 {

namespace configurator {

/// The chain of a profile's parts, for planners of activations: a micro-batch of `rows` rows on a kind of device.
///
/// A part's backward run reads its input, and takes the gradient of its output.
///
///     const activation::layer_chain chain = chain_of(profile, "node-0", 4);
///     const activation::activation_budget budget{2_GiB, 12e9, 12e9};  // bytes of the device, rates of its link [B/s]
///     const activation::activation_plan plan = activation::planned{}.plan(chain, budget);
///
/// @param tensor   ranks that share each part
/// @throws config_error   the profile has no such kind or degree   Cost: O(parts x measured micro-batches)
[[nodiscard]] inline activation::layer_chain chain_of(const model_profile& profile, std::string_view kind,
                                                      std::uint64_t rows, std::uint32_t tensor = 1)
{
  activation::layer_chain chain{.blocks = {}, .input = profile.input_of_row * rows};
  for (std::size_t part = 0; part < profile.parts.size(); ++part) {
    const auto size = [&](auto which) { return profile.size(which, part, tensor, rows); };
    const run_seconds seconds = profile.seconds(kind, part, tensor, rows);
    const bytes inner = size(&profiled_sizes::saved), transient = size(&profiled_sizes::transient);
    const bytes boundary = size(&profiled_sizes::boundary);
    chain.blocks.push_back({.name = profile.parts[part].name,
                            .forward_seconds = seconds.forward,
                            .backward_seconds = seconds.backward_input + seconds.backward_weight,
                            .saved = inner + boundary,
                            .boundary = boundary,
                            .gradient = boundary,
                            .forward_working = transient,
                            .passing_working = transient + inner,
                            .backward_working = transient,
                            .reads_input = true});
  }
  return chain;
}

}  // namespace configurator

}  // namespace chunkmem::inline v0
