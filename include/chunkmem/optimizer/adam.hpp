#pragma once

#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Settings of Adam and AdamW.
struct adam_options {
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0.0F;  ///< decoupled from the gradient (AdamW); 0 is Adam
};

/// Adam with decoupled weight decay: two lists beside each parameter, 16 B for each in fp32 with its gradient.
///
/// Every product that feeds a sum is an explicit fused multiply-add, so that no compiler flag can change the bits.
/// Source: Kingma and Ba 2014 (arXiv 1412.6980); Loshchilov and Hutter 2017 (arXiv 1711.05101).
/// Cost: one pass, 28 B of memory traffic for each element.
class adam {
 public:
  static constexpr std::string_view name = "adam";

  explicit adam(const adam_options& options = {}) noexcept : options_{options} {}

  [[nodiscard]] static std::span<const list_spec> lists() noexcept
  {
    static constexpr list_spec specs[] = {{"adam/momentum", dtype::float32, 1}, {"adam/variance", dtype::float32, 1}};
    return specs;
  }
  [[nodiscard]] const adam_options& options() const noexcept { return options_; }

  void update(const update_spans& spans, const step_settings& settings) const noexcept
  {
    const auto steps = static_cast<double>(settings.number);
    const auto correction1 = static_cast<float>(1.0 - std::pow(static_cast<double>(options_.beta1), steps));
    const auto correction2 = static_cast<float>(1.0 - std::pow(static_cast<double>(options_.beta2), steps));
    const float rate = settings.learning_rate / correction1;
    const float keep = std::fma(-settings.learning_rate, options_.weight_decay, 1.0F);
    const float root = std::sqrt(correction2);
    for (std::size_t at = 0; at < spans.parameter.size(); ++at) {
      const float gradient = spans.gradient[at];
      const float momentum = std::fma(options_.beta1, spans.lists[0][at], (1.0F - options_.beta1) * gradient);
      const float square = gradient * gradient;
      const float variance = std::fma(options_.beta2, spans.lists[1][at], (1.0F - options_.beta2) * square);
      const float divisor = std::sqrt(variance) / root + options_.epsilon;
      spans.lists[0][at] = momentum;
      spans.lists[1][at] = variance;
      spans.parameter[at] = std::fma(-rate, momentum / divisor, keep * spans.parameter[at]);
    }
  }

  step_progress progress;

 private:
  adam_options options_;
};

static_assert(optimizer_kernel<adam>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
