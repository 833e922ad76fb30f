// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/expects.hpp>
#include <chunkmem/tensor/registration.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

namespace chunkmem::inline v0 {

namespace optimizer {

/// How a loss scale looks for the largest number that gradients bear. Powers of two cost no bit of a gradient.
///
///     loss_scale scale = loss_scale::dynamic({.initial = 1'024.0F, .window = 500});
struct loss_scale_options {
  float initial = 65536.0F;
  std::uint32_t window = 2000;  ///< updates in a row before it grows
  float growth = 2.0F;          ///< factor, above 1
  float backoff = 0.5F;         ///< factor after a step that was skipped, below 1
  float smallest = 1.0F;        ///< never less; at least 2^-126, whose reciprocal is finite
  float largest = 16777216.0F;  ///< never more
  /// steps that may be skipped in a row at the smallest scale, before the next one is an error; 0: any number
  std::uint32_t most_skips = 100;
  /// in checkpoints; outlives the scale. Scales of one manager have different names
  std::string_view name = "loss scale";
};

/// What the trainer multiplies the loss with, so that small gradients do not vanish in fp16; a step divides it out.
///
/// A fixed one stays. A dynamic one backs off after a step whose gradients were not finite, and grows after many that
/// were: so it stays just below what overflows. Where it cannot back off further and steps are skipped all the same,
/// the step behind `most_skips` of them is an error, as in fairseq and DeepSpeed. bf16 has the range of single
/// precision and needs none. A manager is given it by `m.use(scale)`: checkpoints hold it then, by its name. It stays
/// where it is from there on.
///
/// Batches of a pipeline that overlap have scales of their own, by turns: the first gradients of a batch then come
/// before the update of the batch ahead. With n sets of gradients, batch b takes scale b % n.
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
    expects(options.window > 0, "a loss scale that grows after 0 updates (ask for at least 1)");
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

  /// Whether a step may be taken with it. @throws usage_error   its reciprocal is not finite, or the last `most_skips`
  ///   steps were all skipped at the smallest scale. That is said once. Then they are counted anew, as behind a load of
  ///   other bytes
  void check_usable()
  {
    expect_scale(state_.scale, "a loss scale");
    if (options_.most_skips == 0 || hopeless() < options_.most_skips) return;
    error_text text;
    text << "chunkmem: the last " << std::exchange(hopeless_, 0) << " steps were skipped at the smallest loss scale, "
         << options_.smallest
         << ": gradients are infinite or NaN whatever the scale (look for them in weights, data and the loss, and load "
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

  /// They were not, and the step left the weights alone.
  void skipped() noexcept
  {
    hopeless_ = state_.scale <= options_.smallest ? hopeless() + 1 : 0;
    ++state_.skips;
    counted_ = {state_.updates, state_.skips};
    state_.in_a_row = 0;
    if (is_dynamic_) state_.scale = std::max(state_.scale * options_.backoff, options_.smallest);
  }

  /// All that changes, to be saved and restored as it is; the options are not among it.
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return std::as_writable_bytes(std::span{&state_, 1}); }

  /// Bytes of a scale that a checkpoint had. @throws config_error   no step can be taken with it
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
                                     << " to " << highest << ": gradients are multiplied with its reciprocal)"};
  }
  /// Steps in a row that were skipped at the smallest scale, of the state that is there.
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

}  // namespace optimizer

}  // namespace chunkmem::inline v0
