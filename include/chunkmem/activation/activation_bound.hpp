// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_budget.hpp>
#include <chunkmem/activation/layer_chain.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// The two halves of a step that no plan can beat.
///
///     const bound_parts bound = activation_bound(chain, budget);
///     std::cout << plan.costs.seconds / bound.seconds() << " of the bound\n";
struct bound_parts {
  double forward_seconds = 0;     ///< until the first backward run
  double backward_seconds = 0;    ///< from then on
  double recomputed_seconds = 0;  ///< within the second
  double swapped_bytes = 0;       ///< each way

  [[nodiscard]] double seconds() const noexcept { return forward_seconds + backward_seconds; }
};

namespace detail {

/// Seconds that it costs to make the cheapest `y` bytes a second time: convex, linear between corners.
class recompute_costs {
 public:
  struct corner {
    double bytes = 0;
    double seconds = 0;
  };

  recompute_costs(const layer_chain& chain, const activation_budget& budget)
  {
    std::vector<corner> blocks;
    for (const chain_block& block : chain.blocks)
      blocks.push_back({static_cast<double>(budget.in_frames(block.inner()) + budget.in_frames(block.boundary)),
                        block.again_seconds()});
    std::erase_if(blocks, [](const corner& block) { return block.bytes == 0; });
    std::ranges::stable_sort(blocks, [](const corner& left, const corner& right) {
      return left.seconds * right.bytes < right.seconds * left.bytes;
    });
    corners_.push_back({});
    for (const corner& block : blocks)
      corners_.push_back({corners_.back().bytes + block.bytes, corners_.back().seconds + block.seconds});
  }
  [[nodiscard]] const std::vector<corner>& corners() const noexcept { return corners_; }
  /// @pre 0 <= bytes <= the last corner's
  [[nodiscard]] double seconds(double bytes) const noexcept
  {
    for (std::size_t index = 1; index < corners_.size(); ++index) {
      const auto& [to, seconds] = corners_[index];
      const auto& [from, before] = corners_[index - 1];
      if (bytes <= to) return before + (seconds - before) * ((bytes - from) / (to - from));
    }
    return corners_.back().seconds;
  }

 private:
  std::vector<corner> corners_;
};

}  // namespace detail

/// The least seconds that any plan of keeping, swapping and recomputing needs, whatever its order.
///
/// All saved bytes of a block are on the device at its backward run. When the forward pass ends, at most `device` bytes
/// are there, and the tensors that the last block carries are among them. Each of the other E bytes is made again
/// afterwards, or was copied to the host before and comes back afterwards. With y bytes made again, at the price of the
/// cheapest blocks and in parts:
///
///     min over y of  max(forward, (E - y) / to host)  +  max(backward + again(y), (E - y) / to device)
///
/// The sum is convex in y and linear between corners, so the least value lies at a corner. Working memory, gradients
/// and fixed costs of copies are left out, which keeps it a bound. Cost: O(blocks^2).
/// @throws config_error   the chain or the budget cannot be
[[nodiscard]] inline bound_parts activation_bound(const layer_chain& chain, const activation_budget& budget)
{
  budget.check(chain);
  const detail::recompute_costs again{chain, budget};
  const double all = again.corners().back().bytes;
  const double carried = static_cast<double>(budget.in_frames(chain.blocks.back().carried));
  const double excess = std::max(0.0, all + carried - static_cast<double>(budget.device.count()));
  const double forward = chain.forward_seconds();
  const double backward = chain.backward_seconds();
  const auto value = [&](double made_again) {
    const double swapped = excess - made_again;
    const double recomputed = again.seconds(made_again);
    return bound_parts{std::max(forward, swapped / budget.to_host_bytes_per_second),
                       std::max(backward + recomputed, swapped / budget.to_device_bytes_per_second), recomputed,
                       swapped};
  };
  bound_parts least = value(0);
  const auto consider = [&](double made_again) {
    if (!(made_again >= 0 && made_again <= std::min(excess, all))) return;
    const bound_parts found = value(made_again);
    if (found.seconds() < least.seconds()) least = found;
  };
  consider(std::min(excess, all));
  consider(excess - forward * budget.to_host_bytes_per_second);
  for (std::size_t index = 1; index < again.corners().size(); ++index) {
    const auto& [to, seconds] = again.corners()[index];
    const auto& [from, before] = again.corners()[index - 1];
    consider(to);
    // Where the backward half changes from loads to runs: backward + before + slope (y - from) = (E - y) / rate.
    const double slope = (seconds - before) / (to - from);
    const double per_byte = 1 / budget.to_device_bytes_per_second;
    consider((excess * per_byte - backward - before + slope * from) / (slope + per_byte));
  }
  return least;
}

}  // namespace activation

}  // namespace chunkmem::inline v0
