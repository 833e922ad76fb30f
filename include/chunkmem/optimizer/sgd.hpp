// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/strict_fp.hpp>
#include <chunkmem/core/strict_fp_lanes.hpp>
#include <chunkmem/optimizer/element_pass.hpp>
#include <chunkmem/optimizer/numerics.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/tensor/dtype.hpp>

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
  float momentum = 0.9F;      ///< in [0, 1); a kernel made with 0 keeps no list
  float weight_decay = 0.0F;  ///< added to the gradient (L2); finite, 0 or above
  float dampening = 0.0F;     ///< the momentum adds (1 - dampening) times the gradient, also in the first step
  bool nesterov = false;      ///< looks ahead along the momentum; without dampening
  float rate_factor = 1.0F;   ///< multiplies the learning rate, for groups; finite, 0 or above
};

/// The storage of SGD's states. Types other than float32 are rounded stochastically, so that small changes are not
/// lost.
///
///     optimizer::sgd sgd{{}, {.momentum = dtype::bfloat16, .masters = false}};
struct sgd_storage {
  dtype momentum = dtype::float32;  ///< or bfloat16: 2 B less for each parameter
  bool masters = true;              ///< 16-bit parameters have one in float32
  instruction_set instructions = best_instruction_set();
  bool takes_any_numerics = false;  ///< loads checkpoints of other versions of the numerics, see numerics_record
};

namespace detail {

/// The numbers that all elements of one update share. None is a denormal. docs/numerics.md derives the limits.
struct sgd_factors {
  CHUNKMEM_HOST_DEVICE sgd_factors(const sgd_options& options, const step_settings& settings) noexcept
      : decay{flush(options.weight_decay)},
        momentum{flush(options.momentum)},
        rest{strict_fp::sum(1.0F, strict_fp::negative(options.dampening))},
        negative_rate{flush(strict_fp::negative(strict_fp::product(settings.learning_rate, options.rate_factor)))},
        least_slope{larger(least_number, strict_fp::product(decay, least_number))},
        least_parameter{least_parameter_of(negative_rate, 1.0F)}
  {
  }

  float decay, momentum;
  float rest;             ///< of the gradient, after dampening
  float negative_rate;    ///< the learning rate times -1
  float least_slope;      ///< a smaller gradient, with the decay, counts as 0
  float least_parameter;  ///< a smaller parameter is stored as 0
};

// The arithmetic of an update, as in adam.hpp.
#define CHUNKMEM_SGD_ARITHMETIC(WHERE)                                                                             \
  [[nodiscard, gnu::always_inline]] WHERE real decayed(const real& parameter, const real& gradient) const noexcept \
  {                                                                                                                \
    return strict_fp::fused(decay, parameter, strict_fp::zero_if_small(gradient, least_state));                    \
  }                                                                                                                \
  [[gnu::always_inline]] WHERE void observe(real& slope, real* state) const noexcept                               \
  {                                                                                                                \
    slope = strict_fp::zero_if_small(slope, least_slope);                                                          \
    if constexpr (states > 0) {                                                                                    \
      const real velocity = strict_fp::fused(momentum, state[0], strict_fp::product(rest, slope));                 \
      state[0] = strict_fp::stored(velocity, least_state);                                                         \
    }                                                                                                              \
  }                                                                                                                \
  [[gnu::always_inline]] WHERE void move(real&, real& step, const real& slope, const real&, const real* state)     \
      const noexcept                                                                                               \
  {                                                                                                                \
    real direction = slope;                                                                                        \
    if constexpr (states > 0) direction = nesterov ? strict_fp::fused(momentum, state[0], slope) : state[0];       \
    step = strict_fp::product(negative_rate, direction);                                                           \
  }

/// The arithmetic for one element, without momentum.
template <numerics Rule = numerics::version_3>
struct plain_sgd_work : sgd_factors {
  using real = float;
  static constexpr numerics rule = Rule;
  static constexpr bool nesterov = false;
  static constexpr std::size_t states = 0;

  CHUNKMEM_SGD_ARITHMETIC(CHUNKMEM_HOST_DEVICE)

  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE void one(float& parameter, float gradient) const noexcept
  {
    float slope = strict_fp::is_less(0.0F, decay) ? decayed(parameter, gradient) : gradient;
    float step;
    observe(slope, nullptr);
    move(parameter, step, slope, 0.0F, nullptr);
    parameter = strict_fp::stored(strict_fp::sum_of_products(parameter, step), least_parameter);
  }

 private:
  static constexpr float least_state = least_number;
};

/// The arithmetic for one element.
template <bool Nesterov, numerics Rule = numerics::version_3>
struct momentum_sgd_work : sgd_factors {
  using real = float;
  static constexpr numerics rule = Rule;
  static constexpr bool nesterov = Nesterov;
  static constexpr std::size_t states = 1;

  CHUNKMEM_SGD_ARITHMETIC(CHUNKMEM_HOST_DEVICE)

  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE void one(float& parameter, float gradient, float& velocity) const noexcept
  {
    float slope = strict_fp::is_less(0.0F, decay) ? decayed(parameter, gradient) : gradient;
    float step;
    observe(slope, &velocity);
    move(parameter, step, slope, 0.0F, &velocity);
    parameter = strict_fp::stored(strict_fp::sum_of_products(parameter, step), least_parameter);
  }

 private:
  static constexpr float least_state = least_number;
};

/// The arithmetic for the elements of a vector.
template <std::size_t States, class Real>
struct sgd_in_lanes {
  using real = Real;
  static constexpr std::size_t states = States;
  sgd_in_lanes(const sgd_factors& of, bool looks_ahead) noexcept
      : least_parameter{in_all_lanes<Real>(of.least_parameter)},
        nesterov{looks_ahead},
        decay{in_all_lanes<Real>(of.decay)},
        momentum{in_all_lanes<Real>(of.momentum)},
        rest{in_all_lanes<Real>(of.rest)},
        negative_rate{in_all_lanes<Real>(of.negative_rate)},
        least_slope{in_all_lanes<Real>(of.least_slope)},
        least_state{in_all_lanes<Real>(least_number)}
  {
  }

  CHUNKMEM_SGD_ARITHMETIC()

  Real least_parameter;

 private:
  bool nesterov;
  Real decay, momentum, rest, negative_rate, least_slope, least_state;
};

#undef CHUNKMEM_SGD_ARITHMETIC

template <std::size_t States, numerics Rule>
struct sgd_lane_work {
  static constexpr numerics rule = Rule;
  static constexpr std::size_t states = States;
  static constexpr std::size_t root_of = no_root;
  template <class Real>
  [[nodiscard, gnu::always_inline]] sgd_in_lanes<States, Real> in() const noexcept
  {
    return {factors, nesterov};
  }

  [[nodiscard]] bool is_decayed() const noexcept { return factors.decay > 0.0F; }

  sgd_factors factors;
  bool nesterov;
};

/// The arithmetic of SGD in one version of the numerics. Version 1 is in version_1.hpp.
template <numerics Rule>
struct sgd_arithmetic;
template <numerics Rule>
  requires(Rule >= numerics::version_2)
struct sgd_arithmetic<Rule> {
  using factors = sgd_factors;
  template <std::size_t States>
  using lane_work = sgd_lane_work<States, Rule>;
  using plain_work = plain_sgd_work<Rule>;
  template <bool Nesterov>
  using momentum_work = momentum_sgd_work<Nesterov, Rule>;
};

}  // namespace detail

/// Stochastic gradient descent, with momentum or Nesterov momentum: one list for each parameter, none without momentum,
/// and a master for a 16-bit parameter.
///
///     optimizer::sgd sgd{{.momentum = 0.9F}};
///     m.use(sgd);                                        // before the first access
///     optimizer::step(m, sgd, {.learning_rate = 0.1F});  // after each backward pass
///
/// The momentum sums plain gradients and is multiplied by the learning rate afterwards. The same rules for bits as
/// `adam`. Source: Sutskever et al. 2013 (ICML). Cost: one pass; 20 B of memory traffic for each element in float32, 12
/// B without momentum.
///
/// @tparam Rule   the version of the numerics, as in `basic_adam`
template <numerics Rule>
class basic_sgd {
 public:
  static constexpr std::string_view name = "sgd";
  static constexpr numerics rule = Rule;

  /// @throws config_error   an option is out of its range, or this processor lacks the instructions
  explicit basic_sgd(const sgd_options& options = {}, const sgd_storage& storage = {})
      : options_{checked(options)}, storage_{storage}, numerics_{storage.takes_any_numerics}
  {
    if (storage.momentum != dtype::float32 && storage.momentum != dtype::bfloat16)
      throw config_error{error_text{} << "chunkmem: momentum of SGD in " << name_of(storage.momentum)
                                      << " (choose float32 or bfloat16)"};
    if (!is_available(storage.instructions))
      throw config_error{error_text{} << "chunkmem: this processor does not run " << name_of(storage.instructions)
                                      << " (leave the instruction set to best_instruction_set())"};
  }

  /// Sets options for the parameters of one group, from the next step on: waiting updates keep the options of their
  /// step. May allocate where the group had no options of its own.
  /// @throws config_error   an option is out of its range, or a momentum without a list; nothing was changed
  basic_sgd& group(group_id which, const sgd_options& options)
  {
    if (!has_momentum() && options.momentum > 0.0F)
      throw config_error{"a group of SGD with momentum in a kernel without (give the momentum to the kernel itself)"};
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
    visit(setting{"numerics", static_cast<std::uint64_t>(Rule)});
  }

  /// The version of the numerics. @see numerics_record
  template <class Visit>
  void for_each_state(Visit visit)
  {
    numerics_.for_each_state(visit);
  }

  using device_factors = typename detail::sgd_arithmetic<Rule>::factors;

  /// Calls `visit` with the type of the arithmetic for a group's options: for kernels on a device.
  template <class Visit>
  void with_arithmetic(group_id group, Visit&& visit) const
  {
    using arithmetic = detail::sgd_arithmetic<Rule>;
    if (!has_momentum())
      visit(std::type_identity<typename arithmetic::plain_work>{});
    else if (options_.of(group).nesterov)
      visit(std::type_identity<typename arithmetic::template momentum_work<true>>{});
    else
      visit(std::type_identity<typename arithmetic::template momentum_work<false>>{});
  }

  /// Calls `visit(work)` with the arithmetic of a group's options: see detail::lane_work.
  template <class Visit>
  void with_lane_work(const step_settings& settings, Visit&& visit) const
  {
    const sgd_options& options = options_.of(settings.group);
    using arithmetic = detail::sgd_arithmetic<Rule>;
    const device_factors factors{options, settings};
    if (has_momentum())
      visit(typename arithmetic::template lane_work<1>{factors, options.nesterov});
    else
      visit(typename arithmetic::template lane_work<0>{factors, false});
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
      throw config_error{"Nesterov momentum of SGD needs a momentum and no dampening (such as 0.9 and 0)"};
    return it;
  }

  detail::group_options<sgd_options> options_;
  sgd_storage storage_;
  numerics_record<Rule> numerics_;
};

using sgd = basic_sgd<numerics::version_3>;

static_assert(device_optimizer_kernel<sgd>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
