// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/transfer/update_split.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// A split that was simulated.
///
///     for (const split_trial& it : choice.trials) std::cout << it.streamed << ": " << it.seconds << " s\n";
struct split_trial {
  std::uint32_t streamed = 0;  ///< chunks updated on the device, their states streamed
  double seconds = 0;          ///< as the simulation said; infinity where it does not fit
};

/// The result of a search for a split.
///
///     std::cout << choice.best.streamed << " chunks, " << choice.best.seconds << " s\n";
struct split_choice {
  split_trial best;  ///< the fewest seconds; of equal ones the fewest streamed
  /// all that were simulated, by chunks streamed: the first streams none, the last as many as it may
  std::vector<split_trial> trials;

  /// The better of streaming nothing and streaming all that may be.
  [[nodiscard]] double pure_seconds() const { return std::min(trials.front().seconds, trials.back().seconds); }
};

/// Settles the split of an update. The bound says where to look, and a simulation has the last word.
///
/// Tries to stream nothing, everything, the best split of the bound, and the middles between these. Then it tries twice
/// the middles between the best split and its neighbours. So the choice is never slower than the better pure split.
/// Where shared memory binds, schedules of mixed splits stay farther above the bound. The best split then streams less
/// than the bound says, or nothing. Cost: at most nine simulations.
///
/// @param bound      the five lines; resident chunks are not streamed
/// @param chunks     of the rank, resident ones among them
/// @param simulate   seconds of a step with so many chunks streamed; the same for the same number
/// @throws usage_error   no chunks; and the errors of `simulate`
template <class Simulate>
  requires std::is_invocable_r_v<double, Simulate&, std::uint32_t>
[[nodiscard]] split_choice search_update_split(const transfer::update_bound& bound, std::uint32_t chunks,
                                               Simulate simulate)
{
  expects(chunks > 0, "a search for the split of no chunks");
  split_choice found{{0, std::numeric_limits<double>::infinity()}, {}};
  const auto before = [](const split_trial& it, std::uint32_t streamed) { return it.streamed < streamed; };
  const auto attempt = [&](std::uint32_t streamed) {
    const auto at = std::lower_bound(found.trials.begin(), found.trials.end(), streamed, before);
    if (at != found.trials.end() && at->streamed == streamed) return;
    const split_trial now{streamed, simulate(streamed)};
    found.trials.insert(at, now);
    if (now.seconds < found.best.seconds || (now.seconds == found.best.seconds && streamed < found.best.streamed))
      found.best = now;
  };
  const auto most = static_cast<std::uint32_t>(std::floor(bound.most() * chunks + 1e-9));
  const auto ideal = std::min(most, static_cast<std::uint32_t>(std::lround(bound.best().device_share * chunks)));
  for (const std::uint32_t streamed : {std::uint32_t{0}, most, ideal, ideal / 2, ideal + (most - ideal) / 2})
    attempt(streamed);
  for (int round = 0; round < 2; ++round) {
    const auto at = static_cast<std::size_t>(
        std::lower_bound(found.trials.begin(), found.trials.end(), found.best.streamed, before) - found.trials.begin());
    const std::uint32_t here = found.trials[at].streamed;
    const std::uint32_t below = at > 0 ? found.trials[at - 1].streamed : here;
    const std::uint32_t above = at + 1 < found.trials.size() ? found.trials[at + 1].streamed : here;
    attempt(below + (here - below) / 2);
    attempt(here + (above - here) / 2);
  }
  return found;
}

}  // namespace planner

}  // namespace chunkmem::inline v0
