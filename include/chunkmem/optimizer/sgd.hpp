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

/// Settings of stochastic gradient descent.
///
///     optimizer::sgd sgd{{.momentum = 0.9F, .nesterov = true}};
struct sgd_options {
  float momentum = 0.9F;      ///< in [0, 1); where it is 0 from the start, no list is kept
  float weight_decay = 0.0F;  ///< added to the gradient (L2); finite, 0 or above
  float dampening = 0.0F;     ///< of the gradient on its way into the momentum, also in the first step
  bool nesterov = false;      ///< looks ahead along the momentum; without dampening
  float rate_factor = 1.0F;   ///< multiplies the learning rate, for groups; finite, 0 or above
};

/// How SGD keeps its states. What is not float32 is rounded stochastically, so that small changes are not lost.
///
///     optimizer::sgd sgd{{}, {.momentum = dtype::bfloat16, .masters = false}};
struct sgd_storage {
  dtype momentum = dtype::float32;  ///< or bfloat16: 2 B less for each parameter
  bool masters = true;              ///< 16-bit parameters have one in float32
  instruction_set instructions = best_instruction_set();
};

namespace detail {

/// The numbers that all elements of one update share.
struct sgd_factors {
  CHUNKMEM_HOST_DEVICE sgd_factors(const sgd_options& options, const step_settings& settings) noexcept
      : decay{options.weight_decay},
        momentum{options.momentum},
        rest{strict_fp::sum(1.0F, strict_fp::negative(options.dampening))},
        rate{strict_fp::product(settings.learning_rate, options.rate_factor)}
  {
  }

  float decay, momentum;
  float rest;  ///< of the gradient, after dampening
  float rate;
};

// The arithmetic of an update, as that of adam: observe() makes a new velocity.
#define CHUNKMEM_SGD_ARITHMETIC(WHERE)                                                                               \
  [[gnu::always_inline]] WHERE void observe(const real& parameter, const real& gradient, real* state) const noexcept \
  {                                                                                                                  \
    const real slope = strict_fp::fused(decay, parameter, gradient);                                                 \
    if constexpr (states > 0) state[0] = strict_fp::fused(momentum, state[0], strict_fp::product(rest, slope));      \
  }                                                                                                                  \
  [[gnu::always_inline]] WHERE void move(real& parameter, const real& gradient, const real&, const real* state)      \
      const noexcept                                                                                                 \
  {                                                                                                                  \
    real direction = strict_fp::fused(decay, parameter, gradient);                                                   \
    if constexpr (states > 0) direction = nesterov ? strict_fp::fused(momentum, state[0], direction) : state[0];     \
    parameter = strict_fp::fused(strict_fp::negative(rate), direction, parameter);                                   \
  }

/// One element, without momentum.
struct plain_sgd_work : sgd_factors {
  using real = float;
  static constexpr bool nesterov = false;
  static constexpr std::size_t states = 0;

  CHUNKMEM_SGD_ARITHMETIC(CHUNKMEM_HOST_DEVICE)

  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE void one(float& parameter, float gradient) const noexcept
  {
    move(parameter, gradient, 0.0F, nullptr);
    parameter = settled(parameter);
  }
};

/// One element.
template <bool Nesterov>
struct momentum_sgd_work : sgd_factors {
  using real = float;
  static constexpr bool nesterov = Nesterov;
  static constexpr std::size_t states = 1;

  CHUNKMEM_SGD_ARITHMETIC(CHUNKMEM_HOST_DEVICE)

  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE void one(float& parameter, float gradient, float& velocity) const noexcept
  {
    observe(parameter, gradient, &velocity);
    velocity = settled(velocity);
    move(parameter, gradient, 0.0F, &velocity);
    parameter = settled(parameter);
  }
};

/// As many elements as a vector has.
template <std::size_t States, class Real>
struct sgd_in_lanes {
  using real = Real;
  static constexpr std::size_t states = States;
  sgd_in_lanes(const sgd_factors& of, bool looks_ahead) noexcept
      : nesterov{looks_ahead},
        decay{in_all_lanes<Real>(of.decay)},
        momentum{in_all_lanes<Real>(of.momentum)},
        rest{in_all_lanes<Real>(of.rest)},
        rate{in_all_lanes<Real>(of.rate)}
  {
  }

  CHUNKMEM_SGD_ARITHMETIC()

 private:
  bool nesterov;
  Real decay, momentum, rest, rate;
};

#undef CHUNKMEM_SGD_ARITHMETIC

template <std::size_t States>
struct sgd_lane_work {
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

}  // namespace detail

/// Stochastic gradient descent, with momentum and Nesterov's form of it: one list beside each parameter, none without
/// momentum, and a master where the parameter has 16 bits.
///
///     optimizer::sgd sgd{{.momentum = 0.9F}};
///     m.use(sgd);                                        // before the first access
///     optimizer::step(m, sgd, {.learning_rate = 0.1F});  // after each backward pass
///
/// The momentum is the plain sum of gradients, the learning rate comes after it. The same rules for bits as `adam`.
/// Source: Sutskever et al. 2013 (ICML). Cost: one pass; 20 B of memory traffic for each element in float32, 12 B
/// without momentum.
class sgd {
 public:
  static constexpr std::string_view name = "sgd";

  /// @throws config_error   an option is out of its range, or this processor lacks the instructions
  explicit sgd(const sgd_options& options = {}, const sgd_storage& storage = {})
      : options_{checked(options)}, storage_{storage}
  {
    if (storage.momentum != dtype::float32 && storage.momentum != dtype::bfloat16)
      throw config_error{error_text{} << "chunkmem: momentum of SGD in " << name_of(storage.momentum)
                                      << " (choose float32 or bfloat16)"};
    if (!is_available(storage.instructions))
      throw config_error{error_text{} << "chunkmem: this processor does not run " << name_of(storage.instructions)
                                      << " (leave the instruction set to best_instruction_set())"};
  }

  /// Other options for the parameters of one group, from the next step on: updates that wait keep those of their step.
  /// May allocate where the group had none of its own.
  /// @throws config_error   an option is out of its range, or wants a momentum that no list was kept for; nothing was
  ///   changed
  sgd& group(group_id which, const sgd_options& options)
  {
    if (!has_momentum() && options.momentum > 0.0F)
      throw config_error{
          "a group of SGD with momentum beside a kernel without (give the momentum to the kernel itself)"};
    options_.set(which, checked(options));
    return *this;
  }

  [[nodiscard]] std::span<const list_spec> lists() const noexcept
  {
    static constexpr list_spec full[] = {{"sgd/momentum"}, master_list};
    static constexpr list_spec half[] = {{"sgd/momentum", dtype::bfloat16}, master_list};
    const std::span<const list_spec> all = storage_.momentum == dtype::float32 ? full : half;
    return all.subspan(has_momentum() ? 0 : 1, (has_momentum() ? 1U : 0U) + (storage_.masters ? 1U : 0U));
  }
  [[nodiscard]] const sgd_options& options() const noexcept { return options_.common(); }
  [[nodiscard]] const sgd_options& options(group_id which) const noexcept { return options_.of(which); }
  [[nodiscard]] instruction_set instructions() const noexcept { return storage_.instructions; }
  /// As `names_settings`.
  template <class Visit>
  void for_each_setting(Visit visit) const
  {
    options_.for_each_setting(
        [](const sgd_options& it) {
          return std::array<setting, 5>{setting{"momentum", it.momentum}, setting{"dampening", it.dampening},
                                        setting{"weight_decay", it.weight_decay}, setting{"nesterov", it.nesterov},
                                        setting{"rate_factor", it.rate_factor}};
        },
        visit);
  }

  using device_factors = detail::sgd_factors;

  /// Which arithmetic a group's options ask for, as a type: for kernels on a device.
  template <class Visit>
  void with_arithmetic(group_id group, Visit&& visit) const
  {
    if (!has_momentum())
      visit(std::type_identity<detail::plain_sgd_work>{});
    else if (options_.of(group).nesterov)
      visit(std::type_identity<detail::momentum_sgd_work<true>>{});
    else
      visit(std::type_identity<detail::momentum_sgd_work<false>>{});
  }

  /// Calls `visit(work)` with the arithmetic of a group's options: see detail::lane_work.
  template <class Visit>
  void with_lane_work(const step_settings& settings, Visit&& visit) const
  {
    const sgd_options& options = options_.of(settings.group);
    const detail::sgd_factors factors{options, settings};
    if (has_momentum())
      visit(detail::sgd_lane_work<1>{factors, options.nesterov});
    else
      visit(detail::sgd_lane_work<0>{factors, false});
  }

  /// @pre the spans do not overlap
  void update(const update_spans& spans, const step_settings& settings) const noexcept
  {
    detail::update_in_lanes(*this, spans, settings);
  }

  step_progress progress;

 private:
  [[nodiscard]] bool has_momentum() const noexcept { return options_.common().momentum > 0.0F; }

  static const sgd_options& checked(const sgd_options& it)
  {
    const auto is_factor = [](float number) { return number >= 0.0F && std::isfinite(number); };
    detail::expect_option(it.momentum >= 0.0F && it.momentum < 1.0F, "momentum of SGD", it.momentum,
                          "give one in [0, 1), such as 0.9");
    detail::expect_option(is_factor(it.weight_decay), "weight decay of SGD", it.weight_decay,
                          "give a finite one, 0 or above");
    detail::expect_option(std::isfinite(it.dampening), "dampening of SGD", it.dampening,
                          "give a finite one; 0 is neutral");
    detail::expect_option(is_factor(it.rate_factor), "rate factor of SGD", it.rate_factor,
                          "give a finite one, 0 or above");
    if (it.nesterov && (it.dampening != 0.0F || it.momentum == 0.0F))
      throw config_error{"Nesterov's form of SGD wants a momentum and no dampening (such as 0.9 and 0)"};
    return it;
  }

  detail::group_options<sgd_options> options_;
  sgd_storage storage_;
};

static_assert(device_optimizer_kernel<sgd>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
