// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/optimizer/element_pass.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Settings of Adam and AdamW.
///
///     optimizer::adam adam{{.beta2 = 0.95F, .weight_decay = 0.1F}};
///     adam.group(group_id{1}, {.beta2 = 0.95F});  // without decay
struct adam_options {
  float beta1 = 0.9F;         ///< in [0, 1)
  float beta2 = 0.999F;       ///< in [0, 1)
  float epsilon = 1e-8F;      ///< a normal number above 0
  float weight_decay = 0.0F;  ///< finite, 0 or above
  bool decoupled = true;      ///< the decay is taken off the parameter (AdamW); false: it is added to the gradient (L2)
  float rate_factor = 1.0F;   ///< multiplies the learning rate, for groups; finite, 0 or above
};

/// How Adam keeps its states. What is not float32 is rounded stochastically, so that small changes are not lost.
///
///     optimizer::adam adam{{}, {.moments = dtype::bfloat16, .masters = false}};
struct adam_storage {
  dtype moments = dtype::float32;  ///< or bfloat16: 4 B less for each parameter
  bool masters = true;             ///< 16-bit parameters have one in float32
  instruction_set instructions = best_instruction_set();
};

namespace detail {

/// `base` to a whole power, by repeated squaring: `std::pow` is not the same in every library. Not inlined, so that no
/// compiler contracts its last product with the caller's difference.
[[nodiscard, gnu::noinline]] CHUNKMEM_HOST_DEVICE inline double power(double base, std::uint64_t exponent) noexcept
{
  double result = 1.0;
  for (; exponent != 0; exponent >>= 1U, base = strict_fp::product(base, base))
    if ((exponent & 1U) != 0) result = strict_fp::product(result, base);
  return result;
}

/// The numbers that all elements of one update share.
struct adam_factors {
  CHUNKMEM_HOST_DEVICE adam_factors(const adam_options& options, const step_settings& settings) noexcept
      : beta1{options.beta1},
        rest1{rest_of(beta1)},
        beta2{options.beta2},
        rest2{rest_of(beta2)},
        epsilon{options.epsilon}
  {
    const float scaled = strict_fp::product(settings.learning_rate, options.rate_factor);
    negative_rate = strict_fp::negative(strict_fp::quotient(scaled, bias_of(beta1, settings.count())));
    scale = strict_fp::quotient(1.0F, strict_fp::root(bias_of(beta2, settings.count())));
    if (options.decoupled) keep = strict_fp::fused(strict_fp::negative(scaled), options.weight_decay, 1.0F);
    if (!options.decoupled) decay = options.weight_decay;
    const float smallest =
        strict_fp::to_single(strict_fp::root(strict_fp::quotient(0x1p-126, strict_fp::to_double(rest2))));
    least = strict_fp::product(smallest, smallest);
    lost = strict_fp::lost_quotients_of(negative_rate);
  }

  float beta1, rest1, beta2, rest2, epsilon;
  float negative_rate;                    ///< the learning rate times -1, corrected for the bias of the momentum
  float scale;                            ///< factor of the root of the variance, which corrects its bias
  float keep = 1.0F;                      ///< of the parameter, after decoupled decay
  float decay = 0.0F;                     ///< of the parameter, added to the gradient
  float least;                            ///< a smaller square adds only a denormal to the variance: nothing is added
  strict_fp::lost_quotients<float> lost;  ///< directions that are too small to change their parameter

 private:
  CHUNKMEM_HOST_DEVICE static float rest_of(float beta) noexcept
  {
    return strict_fp::sum(1.0F, strict_fp::negative(beta));
  }

  /// 1 - beta^number
  CHUNKMEM_HOST_DEVICE static float bias_of(float beta, std::uint64_t number) noexcept
  {
    return strict_fp::to_single(strict_fp::sum(1.0, -power(strict_fp::to_double(beta), number)));
  }
};

// The arithmetic of an update, the only place where it is written down: for one single on the host and on a device, and
// for vectors on the host. One text, since nvcc takes no vectors in functions that are for devices too.
// observe() makes new states, momentum and variance; move() takes the root of the variance.
#define CHUNKMEM_ADAM_ARITHMETIC(WHERE)                                                                              \
  [[gnu::always_inline]] WHERE void observe(const real& parameter, const real& gradient, real* state) const noexcept \
  {                                                                                                                  \
    real slope = gradient;                                                                                           \
    if (coupled) slope = strict_fp::fused(decay, parameter, gradient);                                               \
    state[0] = strict_fp::fused(beta1, state[0], strict_fp::product(rest1, slope));                                  \
    const real square = strict_fp::product(slope, slope);                                                            \
    const real added = strict_fp::zero_where_less(square, least, strict_fp::product(rest2, square));                 \
    state[1] = strict_fp::fused(beta2, state[1], added);                                                             \
  }                                                                                                                  \
  [[gnu::always_inline]] WHERE void move(real& parameter, const real&, const real& root, const real* state)          \
      const noexcept                                                                                                 \
  {                                                                                                                  \
    const real kept = strict_fp::product(keep, parameter);                                                           \
    const real divisor = strict_fp::fused(root, scale, epsilon);                                                     \
    const real direction = strict_fp::quotient_unless_lost(state[0], divisor, kept, lost);                           \
    parameter = strict_fp::fused(negative_rate, direction, kept);                                                    \
  }

/// One element.
template <bool Coupled>
struct adam_work : adam_factors {
  using real = float;
  static constexpr bool coupled = Coupled;
  static constexpr std::size_t states = 2;

  CHUNKMEM_ADAM_ARITHMETIC(CHUNKMEM_HOST_DEVICE)

  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE void one(float& parameter, float gradient, float& momentum,
                                                       float& variance) const noexcept
  {
    float state[] = {momentum, variance};
    observe(parameter, gradient, state);
    momentum = state[0] = settled(state[0]);
    variance = state[1] = settled(state[1]);
    move(parameter, gradient, strict_fp::root(variance), state);
    parameter = settled(parameter);
  }
};

/// As many elements as a vector has.
template <class Real>
struct adam_in_lanes {
  using real = Real;
  adam_in_lanes(const adam_factors& of, bool is_coupled) noexcept
      : coupled{is_coupled},
        beta1{in_all_lanes<Real>(of.beta1)},
        rest1{in_all_lanes<Real>(of.rest1)},
        beta2{in_all_lanes<Real>(of.beta2)},
        rest2{in_all_lanes<Real>(of.rest2)},
        epsilon{in_all_lanes<Real>(of.epsilon)},
        negative_rate{in_all_lanes<Real>(of.negative_rate)},
        scale{in_all_lanes<Real>(of.scale)},
        keep{in_all_lanes<Real>(of.keep)},
        decay{in_all_lanes<Real>(of.decay)},
        least{in_all_lanes<Real>(of.least)},
        lost{in_all_lanes<Real>(of.lost.distance), in_all_lanes<Real>(of.lost.least)}
  {
  }

  CHUNKMEM_ADAM_ARITHMETIC()

 private:
  bool coupled;  // both kinds of decay are one loop
  Real beta1, rest1, beta2, rest2, epsilon, negative_rate, scale, keep, decay, least;
  strict_fp::lost_quotients<Real> lost;
};

#undef CHUNKMEM_ADAM_ARITHMETIC

struct adam_lane_work {
  static constexpr std::size_t states = 2;
  static constexpr std::size_t root_of = 1;
  template <class Real>
  [[nodiscard, gnu::always_inline]] adam_in_lanes<Real> in() const noexcept
  {
    return {factors, coupled};
  }

  adam_factors factors;
  bool coupled;
};

}  // namespace detail

/// Adam, with the weight decay of AdamW or with L2: two lists beside each parameter, and a master where it has 16 bits.
///
///     optimizer::adam adam{{.weight_decay = 0.1F}};
///     m.use(adam);                                         // before the first access
///     optimizer::step(m, adam, {.learning_rate = 1e-3F});  // after each backward pass
///
/// Every product that feeds a sum is an explicit fused multiply-add, quotients and roots are the correctly rounded
/// ones, what is stored has no denormals: no compiler flag and no instruction set changes the bits.
/// Source: Kingma and Ba 2014 (arXiv 1412.6980); Loshchilov and Hutter 2017 (arXiv 1711.05101).
/// Cost: one pass; 28 B of memory traffic for each element in float32, and for a 16-bit one with float32 states.
class adam {
 public:
  static constexpr std::string_view name = "adam";

  /// @throws config_error   an option is out of its range, or this processor lacks the instructions
  explicit adam(const adam_options& options = {}, const adam_storage& storage = {})
      : options_{checked(options)}, storage_{storage}
  {
    if (storage.moments != dtype::float32 && storage.moments != dtype::bfloat16)
      throw config_error{error_text{} << "chunkmem: moments of Adam in " << name_of(storage.moments)
                                      << " (choose float32 or bfloat16)"};
    if (!is_available(storage.instructions))
      throw config_error{error_text{} << "chunkmem: this processor does not run " << name_of(storage.instructions)
                                      << " (leave the instruction set to best_instruction_set())"};
  }

  /// Other options for the parameters of one group, from the next step on: updates that wait keep those of their step.
  /// May allocate where the group had none of its own.
  /// @throws config_error   an option is out of its range; nothing was changed
  adam& group(group_id which, const adam_options& options)
  {
    options_.set(which, checked(options));
    return *this;
  }

  [[nodiscard]] std::span<const list_spec> lists() const noexcept
  {
    static constexpr list_spec full[] = {{"adam/momentum"}, {"adam/variance"}, master_list};
    static constexpr list_spec half[] = {
        {"adam/momentum", dtype::bfloat16}, {"adam/variance", dtype::bfloat16}, master_list};
    const std::span<const list_spec> all = storage_.moments == dtype::float32 ? full : half;
    return all.first(storage_.masters ? 3 : 2);
  }
  [[nodiscard]] const adam_options& options() const noexcept { return options_.common(); }
  [[nodiscard]] const adam_options& options(group_id which) const noexcept { return options_.of(which); }
  [[nodiscard]] instruction_set instructions() const noexcept { return storage_.instructions; }
  /// As `names_settings`.
  template <class Visit>
  void for_each_setting(Visit visit) const
  {
    options_.for_each_setting(
        [](const adam_options& it) {
          return std::array<setting, 6>{setting{"beta1", it.beta1},         setting{"beta2", it.beta2},
                                        setting{"epsilon", it.epsilon},     setting{"weight_decay", it.weight_decay},
                                        setting{"decoupled", it.decoupled}, setting{"rate_factor", it.rate_factor}};
        },
        visit);
  }

  using device_factors = detail::adam_factors;

  /// Which arithmetic a group's options ask for, as a type: for kernels on a device.
  template <class Visit>
  void with_arithmetic(group_id group, Visit&& visit) const
  {
    if (is_coupled(options_.of(group)))
      visit(std::type_identity<detail::adam_work<true>>{});
    else
      visit(std::type_identity<detail::adam_work<false>>{});
  }

  /// Calls `visit(work)` with the arithmetic of a group's options: see detail::lane_work.
  template <class Visit>
  void with_lane_work(const step_settings& settings, Visit&& visit) const
  {
    const adam_options& options = options_.of(settings.group);
    visit(detail::adam_lane_work{{options, settings}, is_coupled(options)});
  }

  /// @pre the spans do not overlap
  void update(const update_spans& spans, const step_settings& settings) const noexcept
  {
    detail::update_in_lanes(*this, spans, settings);
  }

  step_progress progress;

 private:
  static bool is_coupled(const adam_options& it) noexcept { return !it.decoupled && it.weight_decay != 0.0F; }

  static const adam_options& checked(const adam_options& it)
  {
    const auto is_part = [](float beta) { return beta >= 0.0F && beta < 1.0F; };
    const auto is_factor = [](float number) { return number >= 0.0F && std::isfinite(number); };
    detail::expect_option(is_part(it.beta1), "beta1 of Adam", it.beta1, "give one in [0, 1), such as 0.9");
    detail::expect_option(is_part(it.beta2), "beta2 of Adam", it.beta2, "give one in [0, 1), such as 0.999");
    detail::expect_option(std::isnormal(it.epsilon) && it.epsilon > 0.0F, "epsilon of Adam", it.epsilon,
                          "give a normal number above 0, such as 1e-8");
    detail::expect_option(is_factor(it.weight_decay), "weight decay of Adam", it.weight_decay,
                          "give a finite one, 0 or above");
    detail::expect_option(is_factor(it.rate_factor), "rate factor of Adam", it.rate_factor,
                          "give a finite one, 0 or above");
    return it;
  }

  detail::group_options<adam_options> options_;
  adam_storage storage_;
};

static_assert(device_optimizer_kernel<adam>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
