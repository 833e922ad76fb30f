// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/row_choice.hpp>
#include <chunkmem/activation/sampled_input.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/tensor/dtype.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// A ratio for each sampled input.
///
///     for (std::size_t input = 0; input < found.ratios.size(); ++input) std::cout << found.ratios[input] << '\n';
struct sampling_ratios {
  std::vector<double> ratios;  ///< by input, in the order of `ratio_search::add`
  std::vector<std::string> names;
  std::vector<bytes> sizes;    ///< of kept rows, indices and scales, by input
  std::vector<double> noises;  ///< by input: the score that the search compares, the mean over its measured batches
  bytes size;                  ///< of all kept rows, indices and scales
  double noise = 0;            ///< the sum of `noises`
};

/// Finds the ratios of sampled inputs with the least noise within a number of bytes, from measured norms.
///
///     ratio_search search;
///     kept[i].keep(batch, x);  // for each input, in some batches
///     search.add(kept[i].name(), kept[i].options(), dtype::float32, kept[i].weights());
///     const sampling_ratios found = search.within(40_MiB);  // before the training: ratios are settings
///
/// Ratios are multiples of 1/32. The noise of an input is a score: the mean of (1 - P)^2 / (k - c), see row_choice,
/// over its measured batches. Where weights are |h| |d| with the norms of the same step, the score is an upper bound of
/// the gradient's variance over S^2, S the sum of |h| |d|: the part that depends on directions is left out. With old
/// norms the score is an estimate. A cache with `samples = 0` knows no norm of a gradient: |d| is then taken as equal
/// in all rows, the score compares inputs by |h| alone, and is no bound. All inputs count alike, as they do for an
/// optimizer that divides gradients by their size. Norms may be measured at a ratio of 1.
///
/// **A batch without weights**, where all are 0 or one is negative or not finite, is ignored. An input without another
/// batch counts as if all its rows had the same weight: 1 / k.
///
/// Source: a knapsack with one choice for each input, by a table over bytes. Bytes are rounded up, by at most 1/64 of
/// the goal in total. Cost: O(inputs * 32 * slots), slots at most 16,384.
class ratio_search {
 public:
  static constexpr std::uint32_t steps = 32;

  /// Adds a measured batch of an input. The noise of an input is the mean over its batches.
  /// @param weights   of its rows, see sampled_input::weights
  /// @throws config_error   the input had other sizes before
  void add(std::string_view input, const sampling_options& sizes, dtype of, std::span<const double> weights)
  {
    one_input& mine = input_of(input, sizes, of);
    choice_.make_room(weights.size());
    if (std::ranges::none_of(weights, [](double weight) { return weight != 0; })) return;  // nothing to learn
    if (!(choice_.noise_of(weights, weights.size()) < std::numeric_limits<double>::infinity())) return;
    ++mine.batches;
    for (std::uint32_t step = 1; step <= steps; ++step) {
      const std::uint64_t kept = with_ratio(sizes, step).kept_of(weights.size());
      mine.noise[step - 1] += choice_.noise_of(weights, static_cast<std::size_t>(kept));
    }
  }

  /// The least noise within so many bytes.
  /// @throws config_error   too few bytes for a ratio of 1/32 of each input: says how many are needed; or no input was
  ///   added
  [[nodiscard]] sampling_ratios within(bytes goal) const
  {
    if (inputs_.empty())
      throw config_error{"ratios were searched for no input (call ratio_search::add for each, with a measured batch)"};
    bytes least;
    for (const one_input& each : inputs_) least += size_of(each, 1);
    // A slot is rounded up, so the bytes of the smallest ratios are taken off first, and slots count the bytes above.
    if (least > goal)
      throw config_error{error_text{} << "chunkmem: sampled inputs need " << least.count()
                                      << " B at a ratio of 1/32 each, and the goal is " << goal.count()
                                      << " B (give a larger goal, or compute some blocks again)"};
    const std::uint64_t slots = std::clamp<std::uint64_t>(64 * inputs_.size(), 1'024, 16'384);
    const std::uint64_t room = (goal - least).count(), slot = std::max<std::uint64_t>(1, room / slots);
    const auto places = static_cast<std::size_t>(room / slot + 1);
    std::vector<double> noise(places, 0.0), next(places);
    std::vector<std::uint8_t> taken(places * inputs_.size());
    for (std::size_t input = 0; input < inputs_.size(); ++input) {
      const one_input& each = inputs_[input];
      std::ranges::fill(next, std::numeric_limits<double>::infinity());
      for (std::uint32_t step = 1; step <= steps; ++step) {
        const std::uint64_t more = (size_of(each, step) - size_of(each, 1)).count();
        const std::uint64_t used = more / slot + (more % slot != 0 ? 1 : 0);
        for (std::size_t at = static_cast<std::size_t>(std::min<std::uint64_t>(used, places)); at < places; ++at) {
          const double total = noise[at - static_cast<std::size_t>(used)] + noise_of(each, step);
          if (!(total < next[at])) continue;
          next[at] = total;
          taken[input * places + at] = static_cast<std::uint8_t>(step);
        }
      }
      noise.swap(next);
    }
    sampling_ratios found;
    found.ratios.resize(inputs_.size());
    found.names.resize(inputs_.size());
    found.sizes.resize(inputs_.size());
    found.noises.resize(inputs_.size());
    found.noise = noise.back();
    std::size_t at = places - 1;
    for (std::size_t input = inputs_.size(); input-- > 0;) {
      const std::uint32_t step = taken[input * places + at];
      const std::uint64_t more = (size_of(inputs_[input], step) - size_of(inputs_[input], 1)).count();
      at -= static_cast<std::size_t>(more / slot + (more % slot != 0 ? 1 : 0));
      found.ratios[input] = static_cast<double>(step) / steps;
      found.sizes[input] = size_of(inputs_[input], step);
      found.size += found.sizes[input];
      found.names[input] = inputs_[input].name;
      found.noises[input] = noise_of(inputs_[input], step);
    }
    return found;
  }

 private:
  struct one_input {
    std::string name;
    sampling_options sizes;
    dtype of;
    std::array<double, steps> noise{};  // sums over batches
    std::uint64_t batches = 0;
  };

  [[nodiscard]] static sampling_options with_ratio(sampling_options sizes, std::uint32_t step) noexcept
  {
    sizes.ratio = static_cast<double>(step) / steps;
    return sizes;
  }
  [[nodiscard]] static bytes size_of(const one_input& each, std::uint32_t step)
  {
    return with_ratio(each.sizes, step).size(each.of);
  }
  /// The mean over batches; without a batch, the noise of rows with equal weights.
  [[nodiscard]] static double noise_of(const one_input& each, std::uint32_t step)
  {
    if (each.batches > 0) return each.noise[step - 1] / static_cast<double>(each.batches);
    const std::uint64_t kept = with_ratio(each.sizes, step).kept_of(each.sizes.rows);
    return kept < each.sizes.rows ? 1 / static_cast<double>(kept) : 0;
  }
  [[nodiscard]] one_input& input_of(std::string_view name, const sampling_options& sizes, dtype of)
  {
    for (one_input& each : inputs_) {
      if (each.name != name) continue;
      if (each.sizes.rows != sizes.rows || each.sizes.width != sizes.width || each.of != of)
        throw config_error{error_text{} << "chunkmem: the sampled input \"" << name << "\" was measured with "
                                        << sizes.rows << " rows of " << sizes.width << " elements, and with "
                                        << each.sizes.rows << " of " << each.sizes.width
                                        << " before (measure batches of one size)"};
      return each;
    }
    return inputs_.emplace_back(one_input{std::string{name}, sizes, of, {}, 0});
  }

  std::vector<one_input> inputs_;
  row_choice choice_;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
