// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/core/strict_fp_lanes.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/element_streams.hpp>
#include <chunkmem/optimizer/numerics.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/optimizer/packed_lanes.hpp>
#include <chunkmem/optimizer/sgd.hpp>

#include <cstddef>

// The arithmetic of version 1 of the numerics, for trainings that began with it: with this header,
// basic_adam<numerics::version_1> and basic_sgd<numerics::version_1> are complete. The next version of the library
// removes this header.

namespace chunkmem::inline v0 {

namespace optimizer {

namespace detail::version_1 {

/// The numbers that all elements of one update share.
struct adam_factors {
  CHUNKMEM_HOST_DEVICE adam_factors(const adam_options& options, const step_settings& settings) noexcept
      : beta1{options.beta1},
        rest1{strict_fp::sum(1.0F, strict_fp::negative(beta1))},
        beta2{options.beta2},
        rest2{strict_fp::sum(1.0F, strict_fp::negative(beta2))},
        epsilon{options.epsilon}
  {
    const float scaled = strict_fp::product(settings.learning_rate, options.rate_factor);
    negative_rate = strict_fp::negative(strict_fp::quotient(scaled, rest_of_power(beta1, settings.count())));
    scale = strict_fp::quotient(1.0F, strict_fp::root(rest_of_power(beta2, settings.count())));
    if (options.decoupled) keep = strict_fp::fused(strict_fp::negative(scaled), options.weight_decay, 1.0F);
    if (!options.decoupled) decay = options.weight_decay;
    const float smallest =
        strict_fp::to_single(strict_fp::root(strict_fp::quotient(0x1p-126, strict_fp::to_double(rest2))));
    least = strict_fp::product(smallest, smallest);
  }

  float beta1, rest1, beta2, rest2, epsilon;
  float negative_rate;  ///< the learning rate times -1, corrected for the bias of the momentum
  float scale;          ///< factor of the root of the variance, which corrects its bias
  float keep = 1.0F;    ///< of the parameter, after decoupled decay
  float decay = 0.0F;   ///< of the parameter, added to the gradient
  float least;          ///< a smaller square adds only a denormal to the variance: nothing is added
};

/// The arithmetic of one element, or of as many as a vector has.
#define CHUNKMEM_ADAM_ARITHMETIC(WHERE)                                                                              \
  [[gnu::always_inline]] WHERE void observe(const real& parameter, const real& gradient, real* state) const noexcept \
  {                                                                                                                  \
    real slope = gradient;                                                                                           \
    if (coupled) slope = strict_fp::fused(decay, parameter, gradient);                                               \
    state[0] = settled(strict_fp::fused(beta1, state[0], strict_fp::product(rest1, slope)));                         \
    const real square = strict_fp::zero_if_small(strict_fp::product(slope, slope), least);                           \
    state[1] = settled(strict_fp::fused(beta2, state[1], strict_fp::product(rest2, square)));                        \
  }                                                                                                                  \
  [[gnu::always_inline]] WHERE void move(real& parameter, const real&, const real& root, const real* state)          \
      const noexcept                                                                                                 \
  {                                                                                                                  \
    const real kept = strict_fp::product(keep, parameter);                                                           \
    const real direction = strict_fp::quotient(state[0], strict_fp::fused(root, scale, epsilon));                    \
    parameter = settled(strict_fp::fused(negative_rate, direction, kept));                                           \
  }

/// The arithmetic for one element.
template <bool Coupled>
struct adam_work : adam_factors {
  using real = float;
  static constexpr numerics rule = numerics::version_1;
  static constexpr bool coupled = Coupled;
  static constexpr std::size_t states = 2;

  CHUNKMEM_ADAM_ARITHMETIC(CHUNKMEM_HOST_DEVICE)

  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE void one(float& parameter, float gradient, float& momentum,
                                                       float& variance) const noexcept
  {
    float state[] = {momentum, variance};
    observe(parameter, gradient, state);
    momentum = state[0];
    variance = state[1];
    move(parameter, gradient, strict_fp::root(variance), state);
  }
};

/// The arithmetic for the elements of a vector.
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
        least{in_all_lanes<Real>(of.least)}
  {
  }

  CHUNKMEM_ADAM_ARITHMETIC()

 private:
  bool coupled;
  Real beta1, rest1, beta2, rest2, epsilon, negative_rate, scale, keep, decay, least;
};

#undef CHUNKMEM_ADAM_ARITHMETIC

struct adam_lane_work {
  static constexpr numerics rule = numerics::version_1;
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

/// The numbers that all elements of one update share.
struct sgd_factors {
  CHUNKMEM_HOST_DEVICE sgd_factors(const sgd_options& options, const step_settings& settings) noexcept
      : decay{options.weight_decay},
        momentum{options.momentum},
        rest{strict_fp::sum(1.0F, strict_fp::negative(options.dampening))},
        negative_rate{strict_fp::negative(strict_fp::product(settings.learning_rate, options.rate_factor))}
  {
  }

  float decay, momentum;
  float rest;  ///< of the gradient, after dampening
  float negative_rate;
};

/// The arithmetic of one element, or of as many as a vector has.
#define CHUNKMEM_SGD_ARITHMETIC(WHERE)                                                                               \
  [[gnu::always_inline]] WHERE void observe(const real& parameter, const real& gradient, real* state) const noexcept \
  {                                                                                                                  \
    const real slope = strict_fp::fused(decay, parameter, gradient);                                                 \
    if constexpr (states > 0)                                                                                        \
      state[0] = settled(strict_fp::fused(momentum, state[0], strict_fp::product(rest, slope)));                     \
  }                                                                                                                  \
  [[gnu::always_inline]] WHERE void move(real& parameter, const real& gradient, const real&, const real* state)      \
      const noexcept                                                                                                 \
  {                                                                                                                  \
    real direction = strict_fp::fused(decay, parameter, gradient);                                                   \
    if constexpr (states > 0) direction = nesterov ? strict_fp::fused(momentum, state[0], direction) : state[0];     \
    parameter = settled(strict_fp::fused(negative_rate, direction, parameter));                                      \
  }

/// One element, without momentum.
struct plain_sgd_work : sgd_factors {
  using real = float;
  static constexpr numerics rule = numerics::version_1;
  static constexpr bool nesterov = false;
  static constexpr std::size_t states = 0;

  CHUNKMEM_SGD_ARITHMETIC(CHUNKMEM_HOST_DEVICE)

  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE void one(float& parameter, float gradient) const noexcept
  {
    move(parameter, gradient, 0.0F, nullptr);
  }
};

/// The arithmetic for one element.
template <bool Nesterov>
struct momentum_sgd_work : sgd_factors {
  using real = float;
  static constexpr numerics rule = numerics::version_1;
  static constexpr bool nesterov = Nesterov;
  static constexpr std::size_t states = 1;

  CHUNKMEM_SGD_ARITHMETIC(CHUNKMEM_HOST_DEVICE)

  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE void one(float& parameter, float gradient, float& velocity) const noexcept
  {
    observe(parameter, gradient, &velocity);
    move(parameter, gradient, 0.0F, &velocity);
  }
};

/// The arithmetic for the elements of a vector.
template <std::size_t States, class Real>
struct sgd_in_lanes {
  using real = Real;
  static constexpr std::size_t states = States;
  sgd_in_lanes(const sgd_factors& of, bool looks_ahead) noexcept
      : nesterov{looks_ahead},
        decay{in_all_lanes<Real>(of.decay)},
        momentum{in_all_lanes<Real>(of.momentum)},
        rest{in_all_lanes<Real>(of.rest)},
        negative_rate{in_all_lanes<Real>(of.negative_rate)}
  {
  }

  CHUNKMEM_SGD_ARITHMETIC()

 private:
  bool nesterov;
  Real decay, momentum, rest, negative_rate;
};

#undef CHUNKMEM_SGD_ARITHMETIC

template <std::size_t States>
struct sgd_lane_work {
  static constexpr numerics rule = numerics::version_1;
  static constexpr std::size_t states = States;
  static constexpr std::size_t root_of = no_root;
  template <class Real>
  [[nodiscard, gnu::always_inline]] sgd_in_lanes<States, Real> in() const noexcept
  {
    return {factors, nesterov};
  }

  sgd_factors factors;
  bool nesterov;
};

}  // namespace detail::version_1

namespace detail {

template <>
struct adam_arithmetic<numerics::version_1> {
  using factors = version_1::adam_factors;
  using lane_work = version_1::adam_lane_work;
  template <bool Coupled>
  using work = version_1::adam_work<Coupled>;
};

template <>
struct sgd_arithmetic<numerics::version_1> {
  using factors = version_1::sgd_factors;
  template <std::size_t States>
  using lane_work = version_1::sgd_lane_work<States>;
  using plain_work = version_1::plain_sgd_work;
  template <bool Nesterov>
  using momentum_work = version_1::momentum_sgd_work<Nesterov>;
};

}  // namespace detail

static_assert(device_optimizer_kernel<basic_adam<numerics::version_1>>);
static_assert(device_optimizer_kernel<basic_sgd<numerics::version_1>>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
