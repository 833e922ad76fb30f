// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/mixed_model.hpp>
#include <support/plain_optimizer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace support::mixed {

/// The ways of a managed run to take its steps. The reference has one.
enum class updating : std::uint8_t { at_once, late, early };

/// The settings of a training, on which the reference and the managed run must agree; the owner of the bytes is not
/// among them.
struct recipe {
  precision kind = precision::fp32;
  rule optimizer = rule::adam;
  std::uint32_t micro_batches = 1;
  bool wide = false;  ///< gradients of 16-bit parameters are float32
  limits clip{};
  plain_scale scale{};
  std::uint32_t steps = 6;
  std::uint32_t spoilt[2] = {2, 5};  ///< steps whose gradients overflow, in the middle of their micro-batches
  float learning_rate = 0.01F;
  float rates[2] = {0, 0};  ///< learning rates by group instead, where the first is not 0
  bool masters = true;      ///< false, and half_states: stochastic rounding, which the reference does not have
  bool half_states = false;
  std::uint64_t seed = 0;
  bool evaluates = true;  ///< after every second step
  updating updates = updating::at_once;
  std::uint64_t undo_bytes = 24576;  ///< for early updates: half of the states or so

  [[nodiscard]] bool is_spoilt(std::uint32_t step, std::uint32_t micro_batch) const noexcept
  {
    return (step == spoilt[0] || step == spoilt[1]) && micro_batch == micro_batches / 2;
  }
  [[nodiscard]] bool evaluates_after(std::uint32_t step) const noexcept { return evaluates && step % 2 == 1; }
};

inline constexpr std::uint32_t never = UINT32_MAX;

/// Single precision and Adam, without a step that is skipped.
[[nodiscard]] constexpr recipe usual_recipe(std::uint32_t steps, bool evaluates = true)
{
  return {.steps = steps, .spoilt = {never, never}, .evaluates = evaluates};
}

[[nodiscard]] inline plain_settings settings_of_group(std::uint32_t group) noexcept
{
  return group == 0 ? plain_settings{.weight_decay = 0.01F} : plain_settings{.rate_factor = 0.5F, .momentum = 0.5F};
}

/// Parameters with masters, states and gradients on vectors, rounded where 16 bits would be stored, and their updates.
class plain_parameters {
 public:
  plain_parameters(const recipe& how, std::vector<parameter> known)
      : how_{how}, scale_{how.scale}, known_{std::move(known)}, state_(known_.size())
  {
    for (std::size_t index = 0; index < known_.size(); ++index) {
      weight& it = state_[index];
      for (auto* list : {&it.value, &it.gradient, &it.first, &it.second}) list->assign(known_[index].size(), 0.0F);
      rewrite(index, [index](std::uint64_t i) { return initial(index, i); });
    }
  }

  /// New values for a parameter; its states stay.
  template <class Value>
  void rewrite(std::size_t index, Value value)
  {
    weight& it = state_[index];
    for (std::size_t i = 0; i < it.value.size(); ++i) it.value[i] = rounded_to(kind_of(index), value(i));
    it.master = it.value;
  }

  [[nodiscard]] precision kind_of(std::size_t index) const noexcept
  {
    return known_[index].single ? precision::fp32 : how_.kind;
  }
  [[nodiscard]] std::uint64_t size_of(std::size_t index) const noexcept { return known_[index].size(); }
  [[nodiscard]] floats value(std::size_t index) noexcept { return {state_[index].value.data()}; }
  [[nodiscard]] rounded gradient(std::size_t index) noexcept
  {
    return {state_[index].gradient.data(), how_.wide ? precision::fp32 : kind_of(index)};
  }
  /// The first write of a step overwrites.
  [[nodiscard]] float beta(std::size_t index) noexcept
  {
    return std::exchange(state_[index].has_gradient, true) ? 1.0F : 0.0F;
  }
  void forget_gradient(std::size_t index) noexcept { state_[index].has_gradient = false; }
  /// The factor of the slope of a micro-batch's loss.
  [[nodiscard]] float loss_factor() const noexcept { return scale_.scale / static_cast<float>(how_.micro_batches); }
  [[nodiscard]] std::uint64_t updates() const noexcept { return updates_; }
  [[nodiscard]] const std::vector<double>& norms() const noexcept { return norms_; }
  [[nodiscard]] const std::vector<float>& scales() const noexcept { return scales_; }

  /// @return   whether an update was made
  bool update()
  {
    plain_measure sums;
    for (const weight& it : state_)
      if (it.has_gradient) sums.add_tensor(it.gradient);
    const double norm = sums.norm(how_.clip.kind) / static_cast<double>(scale_.scale);
    if (sums.finite) {
      norms_.push_back(norm);
      ++updates_;
    }
    for (std::size_t index = 0; index < state_.size(); ++index) {
      if (state_[index].has_gradient && sums.finite) update(index, factor_for(norm));
      state_[index].has_gradient = false;
    }
    scale_.after(sums.finite);
    scales_.push_back(scale_.scale);
    return sums.finite;
  }

  void add_numbers_to(outcome& result) const
  {
    result.add("norms", norms_);
    result.add("loss scales", scales_);
  }
  void add_weights_to(outcome& result) const
  {
    for (std::size_t index = 0; index < state_.size(); ++index) {
      const std::string which = " of parameter " + std::to_string(index);
      add_stored(result, "value" + which, state_[index].value, kind_of(index));
      if (kind_of(index) != precision::fp32) result.add("master" + which, state_[index].master);
      result.add("first state" + which, state_[index].first);
      if (how_.optimizer == rule::adam) result.add("second state" + which, state_[index].second);
    }
  }
  /// Numbers in the form in which that precision stores them.
  static void add_stored(outcome& result, const std::string& name, const std::vector<float>& values, precision kind)
  {
    if (kind == precision::fp32) return result.add(name, values);
    std::vector<std::uint16_t> bits;
    for (const float value : values) bits.push_back(bits_of(kind, value));
    result.add(name, bits);
  }
  void add_gradient_to(outcome& result, std::size_t index) const
  {
    add_stored(result, "gradient of parameter " + std::to_string(index), state_[index].gradient,
               how_.wide ? precision::fp32 : kind_of(index));
  }

 private:
  struct weight {
    std::vector<float> value, master, gradient, first, second;
    bool has_gradient = false;
    std::uint64_t updates = 0;
  };

  [[nodiscard]] float factor_for(double norm) const noexcept
  {
    const double limit = static_cast<double>(how_.clip.norm);
    const double shrink = limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0;
    return static_cast<float>(shrink) / scale_.scale;
  }

  void update(std::size_t index, float factor)
  {
    weight& it = state_[index];
    std::vector<float> slope = it.gradient;
    for (float& value : slope) {
      value = without_denormals(without_denormals(value) * factor);
      if (how_.clip.value > 0) value = std::clamp(value, -how_.clip.value, how_.clip.value);
    }
    const float rate = how_.rates[0] > 0 ? how_.rates[known_[index].group] : how_.learning_rate;
    plain_update(how_.optimizer, settings_of_group(known_[index].group), rate, ++it.updates, it.master, slope, it.first,
                 it.second);
    for (std::size_t i = 0; i < it.value.size(); ++i) it.value[i] = rounded_to(kind_of(index), it.master[i]);
  }

  recipe how_;
  plain_scale scale_;
  std::vector<parameter> known_;
  std::vector<weight> state_;
  std::uint64_t updates_ = 0;
  std::vector<double> norms_;
  std::vector<float> scales_;
};

}  // namespace support::mixed
