// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/float_environment.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>
#include <chunkmem/tensor/registration.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

// Options of a step: clipping, learning_rates, loss_scale, step_options. Then its results, step_result and
// step_outcome, the rules for them, and for_each_setting(), by which ranks compare settings.

namespace chunkmem::inline v0 {

namespace optimizer {

/// The norm of all gradients together: the sum of magnitudes, the root of the sum of squares, the largest magnitude.
enum class norm_order : std::uint8_t { l1, l2, linf };

/// Limits of gradients. First all are multiplied by one factor, then each value is clamped.
///
///     step(m, adam, {.clip = {.norm = 1.0F}});
struct clipping {
  float norm = 0.0F;  ///< the largest norm; 0: no limit
  norm_order order = norm_order::l2;
  float value = 0.0F;  ///< the largest magnitude; 0: no limit

  [[nodiscard]] constexpr bool operator==(const clipping&) const noexcept = default;
};

/// @throws usage_error   a limit is negative or no number
constexpr void check(const clipping& clip)
{
  expects(clip.norm >= 0.0F, "clip.norm is negative or no number (0 switches clipping off)");
  expects(clip.value >= 0.0F, "clip.value is negative or no number (0 switches clipping off)");
}

/// The norm by a measure; infinite where a value is infinite, NaN where one is no number.
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline double norm_of(const gradient_measure& all, norm_order order) noexcept
{
  if (bits_as<std::uint32_t>(all.largest) > chunkmem::detail::infinity_bits)
    return bits_as<double>(std::uint64_t{0x7ff8000000000000U});
  if (order == norm_order::l1) return all.magnitudes;
  if (order == norm_order::linf) return strict_fp::to_double(all.largest);
  return strict_fp::root(all.squares);
}

/// The factor of gradients that makes their norm at most `limit`: min(1, limit / (norm + 10^-6)).
///
/// The small number avoids a division by zero, and keeps the clipped norm a little below the limit. An infinite norm
/// gives 0, and NaN gives NaN. Source: the formula of `clip_grad_norm_` of PyTorch, for all norms.
/// @pre   the limit is positive
[[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr float clip_factor(double norm, float limit) noexcept
{
  const double factor = strict_fp::constant_quotient(strict_fp::to_double(limit), strict_fp::constant_sum(norm, 1e-6));
  if (factor >= 1.0) return 1.0F;
  return factor < 1.0 ? strict_fp::constant_single(factor) : bits_as<float>(std::uint32_t{chunkmem::detail::nan_bits});
}

namespace detail {

/// The results from the measure of all gradients.
struct judged_gradients {
  double norm = 0.0;      ///< unscaled, before clipping
  float factor = 1.0F;    ///< multiplies each gradient: the clipping by norm, divided by the loss scale
  bool is_finite = true;  ///< all gradients are, before and after
};

/// @param scale   of the loss
[[nodiscard]] CHUNKMEM_HOST_DEVICE inline judged_gradients judge(const gradient_measure& all, const clipping& clip,
                                                                 float scale) noexcept
{
  const double divisor = strict_fp::to_double(scale);
  judged_gradients it;
  it.norm = norm_of(all, clip.order);
  if (it.norm == it.norm)
    it.norm = strict_fp::quotient(it.norm, divisor);  // a NaN has the same bits on every processor
  const float clipped = strict_fp::is_less(0.0F, clip.norm) ? clip_factor(it.norm, clip.norm) : 1.0F;
  it.factor = clipped;
  if (!(bits_as<std::uint32_t>(clipped) > chunkmem::detail::infinity_bits))
    it.factor = strict_fp::to_single(strict_fp::quotient(strict_fp::to_double(clipped), divisor));
  const float most = strict_fp::product(all.largest, it.factor);
  it.is_finite = all.finite && bits_as<std::uint32_t>(most) < chunkmem::detail::infinity_bits;
  return it;
}

}  // namespace detail

/// A larger learning rate may become infinite where an optimizer divides it, such as Adam by 1 - beta1.
inline constexpr float largest_learning_rate = 0x1p100F;

/// The rate is valid: from 0 to `largest_learning_rate`.
[[nodiscard]] constexpr bool is_learning_rate(float rate) noexcept
{
  return rate >= 0.0F && rate <= largest_learning_rate;
}

/// @throws usage_error   the rate is invalid
inline void check_learning_rate(float rate)
{
  if (is_learning_rate(rate)) [[likely]]
    return;
  error_text text;
  text << "chunkmem: a learning rate of " << rate;
  if (rate > largest_learning_rate && rate <= std::numeric_limits<float>::max())
    throw usage_error{text << " (give one of at most " << largest_learning_rate << ")"};
  throw usage_error{text << " (give a finite one, 0 or above)"};
}

/// Learning rates by group that checkpoints save: `m.use(rates)` once, `{.group_rates = rates}` in each step.
///
/// Good where rates depend on results, such as a reduction on a plateau; not needed where each rate follows from the
/// number of the step, such as a warm-up. Checkpoints hold the rates as "learning rates".
class learning_rates {
 public:
  /// @throws usage_error   no rates, or a rate is no number, infinite or negative
  explicit learning_rates(std::span<const float> by_group) : rates_(by_group.begin(), by_group.end())
  {
    expects(!rates_.empty(), "learning rates of no group: a step would take one rate for all (give each group one)");
    for (const float rate : rates_) check_learning_rate(rate);
  }
  learning_rates(std::initializer_list<float> by_group) : learning_rates{std::span{by_group.begin(), by_group.size()}}
  {
  }
  learning_rates(const learning_rates&) = delete;  // its manager knows where the rates are
  learning_rates& operator=(const learning_rates&) = delete;

  /// @throws usage_error   as above, or there is no such group; nothing was changed
  void set(group_id group, float rate)
  {
    expects(index_of(group) < rates_.size(),
            "a learning rate was set for a group that was not declared with the rates");
    check_learning_rate(rate);
    rates_[index_of(group)] = rate;
  }
  /// @throws usage_error   there is no such group
  [[nodiscard]] float of(group_id group) const
  {
    expects(index_of(group) < rates_.size(),
            "a learning rate was requested for a group that was not declared with the rates");
    return rates_[index_of(group)];
  }
  operator std::span<const float>() const noexcept { return rates_; }

  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(restart_state{"learning rates", std::as_writable_bytes(std::span{rates_}), &check});
  }

  registration registered;

 private:
  /// @throws config_error   a loaded rate is invalid
  static void check(std::span<const std::byte> loaded)
  {
    for (std::size_t index = 0; index + sizeof(float) <= loaded.size(); index += sizeof(float)) {
      float rate = 0.0F;
      std::memcpy(&rate, loaded.data() + index, sizeof rate);
      if (!is_learning_rate(rate))
        throw config_error{error_text{} << "chunkmem: a checkpoint with a learning rate of " << rate
                                        << " (the file was not made by a training: load another generation)"};
    }
  }

  std::vector<float> rates_;
};

static_assert(registrable<learning_rates>);

/// The search of a loss scale for the largest factor without overflow. Powers of two lose no bit of a gradient.
///
///     loss_scale scale = loss_scale::dynamic({.initial = 1'024.0F, .window = 500});
struct loss_scale_options {
  float initial = 65536.0F;
  std::uint32_t window = 2000;  ///< updates in a row before it grows
  float growth = 2.0F;          ///< factor, above 1
  float backoff = 0.5F;         ///< factor after a skipped step, below 1
  float smallest = 1.0F;        ///< never less; at least 2^-126, whose reciprocal is finite
  float largest = 16777216.0F;  ///< never more
  /// steps that may be skipped in a row at the smallest scale, before the next one is an error; 0: any number
  std::uint32_t most_skips = 100;
  /// in checkpoints; outlives the scale. Scales of one manager have different names
  std::string_view name = "loss scale";
};

/// The factor of the loss, so that small gradients do not underflow in fp16; a step divides gradients by it.
///
/// A fixed scale stays. A dynamic scale backs off after a step with non-finite gradients, and grows after many finite
/// ones: so it stays just below overflow. Where it cannot back off further and steps are still skipped, the step after
/// `most_skips` skips is an error, as in fairseq and DeepSpeed. bf16 has the range of single precision and needs no
/// scale. `m.use(scale)` registers it: checkpoints then hold it by its name, and it must not move.
///
/// Overlapping batches of a pipeline have separate scales, in turn: the first gradients of a batch then come before the
/// update of the batch ahead. With n sets of gradients, batch b takes scale b % n.
///
/// Source: Micikevicius et al. 2018 (arXiv 1710.03740), with the defaults of PyTorch's GradScaler.
class loss_scale {
 public:
  /// @throws usage_error   `value` is not positive and finite, or its reciprocal is not finite
  [[nodiscard]] static loss_scale fixed(float value, std::string_view name = "loss scale")
  {
    expect_scale(value, "a loss scale");
    return loss_scale{{.initial = value, .smallest = value, .largest = value, .name = name}, false};
  }

  /// @throws usage_error   a setting that cannot work
  [[nodiscard]] static loss_scale dynamic(const loss_scale_options& options = {})
  {
    expect_scale(options.smallest, "a smallest loss scale");
    expect_scale(options.largest, "a largest loss scale");
    expects(options.smallest <= options.initial && options.initial <= options.largest,
            "an initial loss scale that does not lie between the smallest and the largest one");
    expects(options.window > 0, "a loss scale that grows after 0 updates (give a window of at least 1)");
    expects(options.growth > 1.0F && options.growth <= highest,
            "a growth of the loss scale that is not above 1 and finite");
    expects(options.backoff > 0.0F && options.backoff < 1.0F,
            "a backoff of the loss scale that is not between 0 and 1");
    return loss_scale{options, true};
  }

  [[nodiscard]] float scale() const noexcept { return state_.scale; }
  [[nodiscard]] bool is_dynamic() const noexcept { return is_dynamic_; }
  [[nodiscard]] const loss_scale_options& options() const noexcept { return options_; }

  [[nodiscard]] std::uint64_t updates() const noexcept { return state_.updates; }
  [[nodiscard]] std::uint64_t skips() const noexcept { return state_.skips; }
  /// Updates since the scale changed or a step was skipped.
  [[nodiscard]] std::uint32_t updates_in_a_row() const noexcept { return state_.in_a_row; }

  /// Checks that a step may use the scale. @throws usage_error   its reciprocal is not finite, or the last `most_skips`
  /// steps were all skipped at the smallest scale. This is thrown once; then skips are counted from 0, as after a load
  void check_usable()
  {
    expect_scale(state_.scale, "a loss scale");
    if (options_.most_skips == 0 || hopeless() < options_.most_skips) return;
    error_text text;
    text << "chunkmem: the last " << std::exchange(hopeless_, 0) << " steps were skipped at the smallest loss scale, "
         << options_.smallest
         << ": gradients are infinite or NaN at every scale (look for them in weights, data and the loss, and load "
            "a checkpoint from before";
    if (is_dynamic_) text << "; a lower smallest, or most_skips = 0, lets more steps be skipped";
    throw usage_error{text << ")"};
  }

  /// The step's gradients were finite.
  void updated() noexcept
  {
    ++state_.updates;
    if (!is_dynamic_ || ++state_.in_a_row < options_.window) return;
    state_.in_a_row = 0;
    state_.scale = std::min(state_.scale * options_.growth, options_.largest);
  }

  /// The gradients were not finite, and the step was skipped.
  void skipped() noexcept
  {
    hopeless_ = state_.scale <= options_.smallest ? hopeless() + 1 : 0;
    ++state_.skips;
    counted_ = {state_.updates, state_.skips};
    state_.in_a_row = 0;
    if (is_dynamic_) state_.scale = std::max(state_.scale * options_.backoff, options_.smallest);
  }

  /// The changing state, to be saved and restored as bytes; without the options.
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return std::as_writable_bytes(std::span{&state_, 1}); }

  /// Checks the bytes of a scale in a checkpoint. @throws config_error   the scale is invalid
  static void check(std::span<const std::byte> loaded)
  {
    state all{};
    std::memcpy(&all, loaded.data(), sizeof all);
    if (!is_scale(all.scale))
      throw config_error{error_text{} << "chunkmem: a checkpoint with a loss scale of " << all.scale
                                      << " (the file was not made by a training: load another generation)"};
  }

  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(restart_state{options_.name, bytes(), &check});
  }

  registration registered;

 private:
  static constexpr float highest = std::numeric_limits<float>::max();
  static constexpr float lowest = std::numeric_limits<float>::min();  // its reciprocal is finite

  [[nodiscard]] static constexpr bool is_scale(float value) noexcept { return value >= lowest && value <= highest; }
  static void expect_scale(float value, std::string_view what)
  {
    if (!is_scale(value))
      throw usage_error{error_text{} << "chunkmem: " << what << " of " << value << " (give one from " << lowest
                                     << " to " << highest << ": gradients are multiplied by its reciprocal)"};
  }
  /// Skipped steps in a row at the smallest scale, for the present state.
  [[nodiscard]] std::uint32_t hopeless() const noexcept
  {
    return counted_ == std::pair{state_.updates, state_.skips} ? hopeless_ : 0;
  }

  struct state {
    std::uint64_t updates;
    std::uint64_t skips;
    float scale;
    std::uint32_t in_a_row;
  };
  static_assert(sizeof(state) == 24, "no byte of padding is saved");

  loss_scale(const loss_scale_options& options, bool is_dynamic) noexcept
      : options_{options}, state_{0, 0, options.initial, 0}, is_dynamic_{is_dynamic}
  {
  }

  loss_scale_options options_;
  state state_;
  bool is_dynamic_;
  std::uint32_t hopeless_ = 0;                             // skips in a row at the smallest scale; not saved
  std::pair<std::uint64_t, std::uint64_t> counted_{0, 0};  // updates and skips when they were counted
};

/// Settings of one call of `step`.
///
///     step(m, adam, {.learning_rate = 1e-4F, .clip = {.norm = 1.0F}, .loss_scale = &scale});
struct step_options {
  float learning_rate = 1e-3F;           ///< finite, 0 or above
  std::span<const float> group_rates{};  ///< learning rates by group instead; empty: one for all
  /// of the unscaled gradients: by the norm of all of them first, then value by value
  clipping clip{};
  /// factor of the loss, given to use(); the step counts its update or skip there
  optimizer::loss_scale* loss_scale = nullptr;
  /// an infinity or NaN in any gradient skips the update; always on with a loss scale
  bool skip_nonfinite = true;
  std::uint64_t seed = 0;  ///< of stochastic rounding: 16-bit weights without a master, and 16-bit lists
};

/// @throws usage_error   a learning rate that the step would use is no number, infinite or negative
inline void check_rates(const step_options& options)
{
  if (options.group_rates.empty()) check_learning_rate(options.learning_rate);
  for (const float rate : options.group_rates) check_learning_rate(rate);
}

/// The result of a step.
enum class step_result : std::uint8_t { updated, skipped_nonfinite };

/// The result of a step, and the norm of its gradients.
///
///     const step_outcome done = step(m, adam);
///     if (done == step_result::skipped_nonfinite) std::cerr << "a gradient was not finite\n";
struct step_outcome {
  step_result result = step_result::updated;
  double norm = 0.0;  ///< unscaled, before clipping, of the order of the clipping; 0 where no norm was needed
  constexpr operator step_result() const noexcept { return result; }
};

namespace detail {

/// The decision about one step.
struct step_verdict {
  double norm = 0.0;    ///< of all gradients, unscaled, before clipping; 0 where no norm was needed
  float factor = 1.0F;  ///< multiplies each gradient
  step_decision decision = step_decision::update;
};

/// The rules that decide a step: unscale, clip, skip. Pure: the answers depend on the options and the measures alone.
///
///     const step_rules rules{options};
///     if (rules.needs_measures()) all = <the measures of all gradients, added in the order of declaration>;
///     const step_verdict decided = rules.judge(all);
class step_rules {
 public:
  /// @param options   outlive this object; the loss scale is read at each call
  explicit step_rules(const step_options& options) noexcept : options_{options} {}

  /// The decision depends on all gradients.
  [[nodiscard]] bool needs_measures() const noexcept { return may_skip() || clips(); }

  /// @param all   the measure of all gradients together, or an empty one where `needs_measures()` is false
  [[nodiscard]] step_verdict judge(const gradient_measure& all) const
  {
    const float_environment standard;
    const judged_gradients found = detail::judge(all, options_.clip, scale());
    return {found.norm, found.factor, may_skip() && !found.is_finite ? step_decision::skip : step_decision::update};
  }

  /// By these gradients, the step is neither clipped nor skipped.
  [[nodiscard]] bool is_usual(const gradient_measure& seen) const
  {
    const float_environment standard;
    const clipping none{.order = options_.clip.order};
    const judged_gradients found = detail::judge(seen, none, scale());
    return found.is_finite && !(clips() && found.norm > static_cast<double>(options_.clip.norm));
  }
  /// The factor of gradients in a step that is neither clipped nor skipped: 1 / loss scale.
  [[nodiscard]] float usual_factor() const
  {
    const float_environment standard;
    return static_cast<float>(1.0 / static_cast<double>(scale()));
  }

 private:
  [[nodiscard]] float scale() const { return options_.loss_scale != nullptr ? options_.loss_scale->scale() : 1.0F; }
  [[nodiscard]] bool may_skip() const noexcept { return options_.skip_nonfinite || options_.loss_scale != nullptr; }
  [[nodiscard]] bool clips() const noexcept { return options_.clip.norm > 0.0F; }

  const step_options& options_;
};

/// The settings of a loss scale: its value, and those that decide its next values.
template <class Visit>
void for_each_setting_of_scale(const loss_scale* scale, Visit& visit)
{
  visit(setting{"loss scale", scale == nullptr ? "none" : scale->is_dynamic() ? "dynamic" : "fixed"});
  if (scale == nullptr) return;
  visit(setting{"value of the loss scale", scale->scale()});
  if (!scale->is_dynamic()) return;
  const loss_scale_options& options = scale->options();
  visit(setting{"window of the loss scale", options.window});
  visit(setting{"growth of the loss scale", options.growth});
  visit(setting{"backoff of the loss scale", options.backoff});
  visit(setting{"smallest loss scale", options.smallest});
  visit(setting{"largest loss scale", options.largest});
  visit(setting{"updates in a row of the loss scale", scale->updates_in_a_row()});
}

}  // namespace detail

/// Calls `visit(setting)` for all settings of a step: its options, its loss scale, and the kernel with its lists. Ranks
/// that train together have equal settings in the same order.
template <optimizer_kernel Kernel, class Visit>
void for_each_setting(const step_options& options, Kernel& kernel, Visit visit)
{
  if (options.group_rates.empty()) visit(setting{"learning rate", options.learning_rate});
  for (std::size_t group = 0; group < options.group_rates.size(); ++group)
    visit(setting{"learning rate", options.group_rates[group]}.in(group_id{static_cast<std::uint32_t>(group)}));
  constexpr std::string_view orders[] = {"l1", "l2", "linf"};
  visit(setting{"clip.norm", options.clip.norm});
  visit(setting{"clip.order", orders[static_cast<std::size_t>(options.clip.order)]});
  visit(setting{"clip.value", options.clip.value});
  visit(setting{"skip_nonfinite", options.skip_nonfinite});
  visit(setting{"seed", options.seed});
  detail::for_each_setting_of_scale(options.loss_scale, visit);
  visit(setting{"optimizer kernel", std::string_view{Kernel::name}});
  for (const list_spec& list : kernel.lists()) visit(setting{list.name, name_of(list.type)});
  if constexpr (names_settings<Kernel>) static_cast<const Kernel&>(kernel).for_each_setting(visit);
}

/// All settings as one word. O(settings), allocates nothing.
template <optimizer_kernel Kernel>
[[nodiscard]] std::uint64_t settings_word(const step_options& options, Kernel& kernel)
{
  collective::fingerprint all;
  for_each_setting(options, kernel, [&](const setting& it) { all.add(it.word()); });
  return all.value();
}

}  // namespace optimizer

}  // namespace chunkmem::inline v0
