#pragma once

#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Settings of stochastic gradient descent.
struct sgd_options {
  float momentum = 0.9F;
  float weight_decay = 0.0F;  ///< added to the gradient
};

/// Stochastic gradient descent with momentum: one list beside each parameter.
///
/// Source: Sutskever et al. 2013 (ICML), in the form that keeps the plain sum of gradients. Cost: one pass, 20 B of
/// memory traffic for each element.
class sgd {
 public:
  static constexpr std::string_view name = "sgd";

  explicit sgd(const sgd_options& options = {}) noexcept : options_{options} {}

  [[nodiscard]] static std::span<const list_spec> lists() noexcept
  {
    static constexpr list_spec specs[] = {{"sgd/momentum", dtype::float32, 1}};
    return specs;
  }
  [[nodiscard]] const sgd_options& options() const noexcept { return options_; }

  void update(const update_spans& spans, const step_settings& settings) const noexcept
  {
    for (std::size_t at = 0; at < spans.parameter.size(); ++at) {
      const float gradient = std::fma(options_.weight_decay, spans.parameter[at], spans.gradient[at]);
      const float velocity = std::fma(options_.momentum, spans.lists[0][at], gradient);
      spans.lists[0][at] = velocity;
      spans.parameter[at] = std::fma(-settings.learning_rate, velocity, spans.parameter[at]);
    }
  }

  step_progress progress;

 private:
  sgd_options options_;
};

static_assert(optimizer_kernel<sgd>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
