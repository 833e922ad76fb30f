// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <support/oracles/plain_updates.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

/// Trainings in which weights miss updates, and Adam as PyTorch counts it: each weight counts its own updates. Written
/// from the formulas, in scalar code that is independent of the library.
namespace plain_counts {

/// Fewer elements than a block of a norm has; more than its lanes.
inline constexpr std::array<std::size_t, 6> sizes{40, 3, 17, 1, 33, 8};
inline constexpr std::size_t tensors = sizes.size();
inline constexpr std::size_t first_of_second_stage = 3;
inline constexpr float learning_rate = 0.01F;
inline constexpr float weight_decay = 0.01F;

class dice {
 public:
  explicit dice(std::uint64_t seed) noexcept : state_{seed * 0x9e3779b97f4a7c15U + 1} {}
  [[nodiscard]] std::uint64_t below(std::uint64_t count) noexcept
  {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return (state_ >> 11U) % count;
  }

 private:
  std::uint64_t state_;
};

/// The time of the updates of a step. `dropped`: its gradients are dropped, and there is no step.
enum class timing : std::uint8_t { at_once, late, on_device, early, dropped };
/// The trainer: a manager, or ranks.
enum class place : std::uint8_t { alone, ranks, stages, device };

struct step {
  timing when = timing::at_once;
  std::array<bool, tensors> has_gradient{};
  float clip = 0;          ///< 0: none
  bool is_spoilt = false;  ///< one of the gradients is infinite
  std::uint64_t number = 0;
};

/// Steps of one process or one group of them. The next phase begins with what this one has saved.
struct phase {
  place where = place::alone;
  std::uint32_t ranks = 1;
  std::uint32_t zero = 3;
  std::vector<step> steps;
};

/// A weight may be frozen for a while, be the weight of an expert that gets no token in some steps, or stay without a
/// gradient for ever. The first one always has one.
[[nodiscard]] inline std::vector<phase> draw_history(std::uint64_t seed)
{
  dice random{seed};
  std::array<std::uint64_t, tensors> from{}, until{}, every{};
  for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
    const std::uint64_t kind = tensor == 0 ? 0 : random.below(5);
    from[tensor] = kind == 1 ? random.below(8) : 0;
    until[tensor] = kind == 2 ? random.below(10) : kind == 4 ? 0 : UINT64_MAX;
    every[tensor] = kind == 3 ? 2 + random.below(4) : 1;
  }
  const bool is_on_device = seed % 5 == 4;
  std::vector<phase> all;
  std::uint64_t number = 0;
  for (std::uint64_t count = 1 + random.below(3); count > 0; --count) {
    phase& now = all.emplace_back();
    now.where = is_on_device ? place::device : static_cast<place>(random.below(3));
    now.ranks = now.where == place::ranks ? 1 + static_cast<std::uint32_t>(random.below(3)) : 1;
    now.zero = 1 + static_cast<std::uint32_t>(random.below(3));
    for (std::uint64_t steps = 1 + random.below(5); steps > 0; --steps, ++number) {
      step& it = now.steps.emplace_back();
      it.number = number;
      constexpr std::array<std::uint32_t, 4> ways{5, 4, 3, 1};  // alone, ranks, stages, device: the first so many
      it.when = static_cast<timing>(random.below(ways[static_cast<std::size_t>(now.where)]));
      constexpr std::array<float, 3> clips{0.0F, 0.5F, 1000.0F};
      it.clip = clips[random.below(clips.size())];
      it.is_spoilt = random.below(6) == 0;
      for (std::size_t tensor = 0; tensor < tensors; ++tensor)
        it.has_gradient[tensor] =
            tensor == 0 || (number >= from[tensor] && number < until[tensor] && (number + tensor) % every[tensor] == 0);
    }
  }
  return all;
}

[[nodiscard]] inline float first_value(std::size_t tensor, std::size_t element) noexcept
{
  return static_cast<float>((tensor * 31 + element * 7) % 17) / 16.0F - 0.5F;
}
/// An infinite one lies in the last tensor that has a gradient.
[[nodiscard]] inline float gradient(const step& now, std::size_t tensor, std::size_t element) noexcept
{
  if (now.is_spoilt && element == 0) {
    std::size_t last = tensors - 1;
    while (!now.has_gradient[last]) --last;
    if (tensor == last) return INFINITY;
  }
  return static_cast<float>((now.number * 13 + tensor * 5 + element * 3) % 23) / 8.0F - 1.25F;
}

/// The training of a history, step by step.
class training {
 public:
  struct weight {
    std::vector<float> value, momentum, variance;
    std::uint64_t updates = 0;
  };

  training()
  {
    for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
      weight& it = weights_[tensor];
      for (std::size_t element = 0; element < sizes[tensor]; ++element)
        it.value.push_back(first_value(tensor, element));
      it.momentum.resize(sizes[tensor]);
      it.variance.resize(sizes[tensor]);
    }
  }

  [[nodiscard]] const weight& operator[](std::size_t tensor) const noexcept { return weights_[tensor]; }
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  void take(const step& now)
  {
    if (now.when == timing::dropped || now.is_spoilt) return;
    ++steps_;
    const float factor = factor_of(now);
    for (std::size_t tensor = 0; tensor < tensors; ++tensor)
      if (now.has_gradient[tensor]) update(now, tensor, factor);
  }

 private:
  /// The norm of all, tensor by tensor, each in 32 lanes that are folded by halves; what it is clipped by.
  [[nodiscard]] static float factor_of(const step& now)
  {
    if (now.clip == 0) return 1.0F;
    double squares = 0;
    for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
      if (!now.has_gradient[tensor]) continue;
      double lanes[32] = {};
      for (std::size_t element = 0; element < sizes[tensor]; ++element) {
        const double it = static_cast<double>(gradient(now, tensor, element));
        lanes[element % 32] += it * it;  // exact: nothing to contract
      }
      for (std::size_t half = 16; half > 0; half /= 2)
        for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
      squares += lanes[0];
    }
    return static_cast<float>(std::min(1.0, static_cast<double>(now.clip) / (std::sqrt(squares) + 1e-6)));
  }
  void update(const step& now, std::size_t tensor, float factor)
  {
    weight& it = weights_[tensor];
    const support::oracle::adam_step step{{.weight_decay = weight_decay}, learning_rate, ++it.updates};
    for (std::size_t element = 0; element < sizes[tensor]; ++element) {
      const float slope = support::oracle::transformed(gradient(now, tensor, element), factor, 0.0F);
      step.update(it.value[element], slope, it.momentum[element], it.variance[element]);
    }
  }

  std::array<weight, tensors> weights_;
  std::uint64_t steps_ = 0;
};

}  // namespace plain_counts
