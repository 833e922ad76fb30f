// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/optimizer/device_kernel.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/optimizer/update_kernel.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace chunkmem::inline v0 {

namespace optimizer {

/// The range of one tensor's block sums among the sums of all tensors in this step; a tensor without blocks adds
/// nothing. Also the number of updates that the tensor has missed so far.
///
///     const block_range first = memory.ranges()[0];
///     const gradient_measure* const sums = memory.sums() + first.first;
///
/// In older checkpoints the count has 64 bits, and the upper 32 are zero: no tensor has missed an update there.
struct block_range {
  std::uint64_t first = 0;
  std::uint32_t count = 0;
  std::uint32_t missed = 0;  ///< saturates at 2^32 - 1
};

static_assert(sizeof(block_range) == 16);

[[nodiscard]] constexpr std::uint64_t blocks_of(std::uint64_t elements) noexcept
{
  return (elements + measure_block - 1) / measure_block;
}

/// The measures of the blocks of one gradient, with the bits of `measure_one_block`.
///
///     loop_launcher::run(measure_kernel{gradient, dtype::float32, elements, sums, range, 0});
///
/// Cost: one pass over the gradient, a lane reads every 32nd element; three operations in double for each.
class measure_kernel {
 public:
  struct sums_type {
    double squares = 0;
    double magnitudes = 0;
    std::int32_t largest = 0;
  };

  /// @param range   written: the range of the sums from `sums` on
  /// @pre   the type is float32, bfloat16 or float16
  measure_kernel(const std::byte* gradient, dtype type, std::uint64_t elements, gradient_measure* sums,
                 block_range* range, std::uint64_t first) noexcept
      : gradient_{gradient}, elements_{elements}, sums_{sums}, range_{range}, first_{first}, type_{type}
  {
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept
  {
    return (elements_ + measure_block - 1) / measure_block;
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE sums_type lane(std::uint64_t block, std::uint32_t index) const noexcept
  {
    if (type_ == dtype::bfloat16) return lane_of(reinterpret_cast<const bf16*>(gradient_), block, index);
    if (type_ == dtype::float16) return lane_of(reinterpret_cast<const fp16*>(gradient_), block, index);
    return lane_of(reinterpret_cast<const float*>(gradient_), block, index);
  }

  CHUNKMEM_HOST_DEVICE static void combine(sums_type& into, sums_type other) noexcept { view(into).add(view(other)); }

  CHUNKMEM_HOST_DEVICE void store(std::uint64_t block, sums_type sums) const noexcept
  {
    sums_[first_ + block] = view(sums).measure();
    if (block != 0) return;
    range_->first = first_;
    range_->count = static_cast<std::uint32_t>(count());
  }

 private:
  [[nodiscard]] CHUNKMEM_HOST_DEVICE static chunkmem::detail::measure_lane view(sums_type& sums) noexcept
  {
    return {sums.squares, sums.magnitudes, sums.largest};
  }

  template <class Element>
  [[nodiscard]] CHUNKMEM_HOST_DEVICE sums_type lane_of(const Element* all, std::uint64_t block,
                                                       std::uint32_t index) const noexcept
  {
    constexpr std::uint32_t rows = 8;  // loads that do not wait for each other
    sums_type sums;
    const std::uint64_t begin = block * measure_block;
    const std::uint64_t end = begin + measure_block < elements_ ? begin + measure_block : elements_;
    std::uint64_t next = begin + index;
    for (; next + (rows - 1) * warp_lanes < end; next += rows * warp_lanes) {
      Element loaded[rows];
      for (std::uint32_t row = 0; row < rows; ++row) loaded[row] = all[next + row * warp_lanes];
      for (std::uint32_t row = 0; row < rows; ++row) view(sums).add(loaded[row]);
    }
    for (; next < end; next += warp_lanes) view(sums).add(all[next]);
    return sums;
  }

  const std::byte* gradient_;
  std::uint64_t elements_;
  gradient_measure* sums_;
  block_range* range_;
  std::uint64_t first_;
  dtype type_;
};

static_assert(lane_kernel<measure_kernel>);

/// Clears the blocks of every tensor: a tensor that is not measured afterwards adds nothing. Missed updates stay.
///
///     loop_launcher::run(clear_ranges_kernel{memory.ranges(), memory.sizes().parameters});
class clear_ranges_kernel {
 public:
  clear_ranges_kernel(block_range* ranges, std::uint64_t tensors) noexcept : ranges_{ranges}, tensors_{tensors} {}

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return tensors_; }

  /// Valid while this kernel lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const clear_ranges_kernel& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t tensor) const noexcept
  {
    ranges_[tensor].first = 0;
    ranges_[tensor].count = 0;
  }

 private:
  block_range* ranges_;
  std::uint64_t tensors_;
};

static_assert(element_kernel<clear_ranges_kernel>);

/// The measure of each tensor: the sums of its blocks, added in their order.
///
///     const std::uint64_t tensors = memory.sizes().parameters;
///     loop_launcher::run(sum_blocks_kernel{memory.sums(), memory.ranges(), memory.measures(), tensors});
class sum_blocks_kernel {
 public:
  using total_type = gradient_measure;

  /// @param ranges, measures   one for each tensor
  sum_blocks_kernel(const gradient_measure* sums, const block_range* ranges, gradient_measure* measures,
                    std::uint64_t tensors) noexcept
      : sums_{sums}, ranges_{ranges}, measures_{measures}, tensors_{tensors}
  {
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return tensors_; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t length(std::uint64_t tensor) const noexcept
  {
    return ranges_[tensor].count;
  }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE gradient_measure load(std::uint64_t tensor, std::uint64_t index) const noexcept
  {
    return sums_[ranges_[tensor].first + index];
  }
  CHUNKMEM_HOST_DEVICE void store(std::uint64_t tensor, const gradient_measure& total) const noexcept
  {
    measures_[tensor] = total;
  }

 private:
  const gradient_measure* sums_;
  const block_range* ranges_;
  gradient_measure* measures_;
  std::uint64_t tensors_;
};

static_assert(ordered_kernel<sum_blocks_kernel>);

/// Adds up the measures of all tensors in their order and decides: update or skip, and the factor of the gradients.
///
///     loop_launcher::run(decide_kernel{measures, tensors, clipping{.norm = 1.0F}, true, state});
///
/// The rule of `step`, with the loss scale in the state. Idempotent.
class decide_kernel {
 public:
  using total_type = gradient_measure;

  /// @param tensors    0: no norm is needed
  /// @param may_skip   non-finite gradients skip the update
  decide_kernel(const gradient_measure* measures, std::uint64_t tensors, const clipping& clip, bool may_skip,
                device_step_state* state) noexcept
      : measures_{measures}, tensors_{tensors}, state_{state}, clip_{clip}, may_skip_{may_skip}
  {
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return 1; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t length(std::uint64_t) const noexcept { return tensors_; }
  [[nodiscard]] CHUNKMEM_HOST_DEVICE gradient_measure load(std::uint64_t, std::uint64_t index) const noexcept
  {
    return measures_[index];
  }

  CHUNKMEM_HOST_DEVICE void store(std::uint64_t, const gradient_measure& total) const noexcept
  {
    const detail::judged_gradients found = detail::judge(total, clip_, state_->loss.scale);
    state_->total = total;
    state_->norm = found.norm;
    state_->factor = found.factor;
    state_->decision = may_skip_ && !found.is_finite ? step_decision::skip : step_decision::update;
  }

 private:
  const gradient_measure* measures_;
  std::uint64_t tensors_;
  device_step_state* state_;
  clipping clip_;
  bool may_skip_;
};

static_assert(ordered_kernel<decide_kernel>);

/// Computes on the device the factors that all elements of one group, or of one tensor, share in the next update. The
/// number of updates and the learning rate are in device memory, so that a captured step can be repeated.
///
///     loop_launcher::run(factors_kernel{options, state, rate, factors});
template <class Options, class Factors>
class factors_kernel {
 public:
  /// @param of   the tensor, whose missed updates do not count; null: a group in which no tensor has missed an update
  factors_kernel(const Options& options, const device_step_state* state, const float* rate, Factors* factors,
                 const block_range* of = nullptr) noexcept
      : options_{options}, state_{state}, rate_{rate}, factors_{factors}, of_{of}
  {
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return 1; }

  /// Valid while this kernel lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const factors_kernel& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t) const noexcept
  {
    const std::uint64_t missed = of_ != nullptr ? of_->missed : 0;
    *factors_ = Factors{options_, step_settings{*rate_, state_->number + 1, group_id{0}, missed}};
  }

 private:
  Options options_;
  const device_step_state* state_;
  const float* rate_;
  Factors* factors_;
  const block_range* of_;
};

/// Counts this step as one that tensors have missed, if the device decided to update. Comes before `finish_kernel`.
///
///     const std::uint32_t without_gradient[] = {3, 4};
///     loop_launcher::run(missed_kernel{state, memory.ranges(), without_gradient});
class missed_kernel {
 public:
  static constexpr std::size_t most = 24;

  /// @param tensors   their numbers among the ranges   @pre   at most `most` of them
  missed_kernel(const device_step_state* state, block_range* ranges, std::span<const std::uint32_t> tensors) noexcept
      : state_{state}, ranges_{ranges}, count_{static_cast<std::uint32_t>(tensors.size())}
  {
    std::copy(tensors.begin(), tensors.end(), tensors_);
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return count_; }

  /// Valid while this kernel lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const missed_kernel& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept
  {
    std::uint32_t& missed = ranges_[tensors_[index]].missed;
    if (state_->decision == step_decision::update && missed != UINT32_MAX) ++missed;
  }

 private:
  const device_step_state* state_;
  block_range* ranges_;
  std::uint32_t count_;
  std::uint32_t tensors_[most] = {};
};

static_assert(element_kernel<missed_kernel>);

/// Writes a few learning rates to the memory from which a device step reads them. They are arguments of the kernel, so
/// no host memory has to stay until the kernel has run.
///
///     const float rates[] = {1e-3F, 1e-4F};
///     loop_launcher::run(rates_kernel{rates_of_groups, rates});
class rates_kernel {
 public:
  static constexpr std::size_t most = 24;

  /// @pre   at most `most` rates
  rates_kernel(float* to, std::span<const float> rates) noexcept
      : to_{to}, count_{static_cast<std::uint32_t>(rates.size())}
  {
    std::copy(rates.begin(), rates.end(), rates_);
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return count_; }

  /// Valid while this kernel lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const rates_kernel& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t index) const noexcept { to_[index] = rates_[index]; }

 private:
  float* to_;
  std::uint32_t count_;
  float rates_[most] = {};
};

static_assert(element_kernel<rates_kernel>);

/// The rule by which a device changes a loss scale: `loss_scale_options`, or fixed.
///
///     const loss_scale_rule rule{.options = scale.options(), .is_dynamic = scale.is_dynamic()};
struct loss_scale_rule {
  loss_scale_options options{};
  bool is_dynamic = false;
};

/// The rule of a loss scale; its state goes to the device as bytes.
[[nodiscard]] inline loss_scale_rule rule_of(const loss_scale& it) noexcept
{
  return {it.options(), it.is_dynamic()};
}

/// The end of a step: counts it, and changes the loss scale as `loss_scale` does after an update or a skip.
///
///     loop_launcher::run(finish_kernel{state, rule});
class finish_kernel {
 public:
  finish_kernel(device_step_state* state, const loss_scale_rule& rule) noexcept : state_{state}, rule_{rule} {}

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return 1; }

  /// Valid while this kernel lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const finish_kernel& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t) const noexcept
  {
    if (state_->decision == step_decision::skip)
      skipped(state_->loss);
    else if (state_->decision == step_decision::update)
      updated(*state_);
    state_->decision = step_decision::open;
  }

 private:
  CHUNKMEM_HOST_DEVICE void updated(device_step_state& state) const noexcept
  {
    loss_scale_state& loss = state.loss;
    ++state.number;
    ++loss.updates;
    if (!rule_.is_dynamic || ++loss.in_a_row < rule_.options.window) return;
    const float grown = strict_fp::product(loss.scale, rule_.options.growth);
    loss.in_a_row = 0;
    loss.scale = strict_fp::is_less(rule_.options.largest, grown) ? rule_.options.largest : grown;
  }

  CHUNKMEM_HOST_DEVICE void skipped(loss_scale_state& loss) const noexcept
  {
    ++loss.skips;
    loss.in_a_row = 0;
    if (!rule_.is_dynamic) return;
    const float shrunk = strict_fp::product(loss.scale, rule_.options.backoff);
    loss.scale = strict_fp::is_less(shrunk, rule_.options.smallest) ? rule_.options.smallest : shrunk;
  }

  device_step_state* state_;
  loss_scale_rule rule_;
};

static_assert(element_kernel<finish_kernel>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
