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

/// Settings of Adam and AdamW.
///
///     optimizer::adam adam{{.beta2 = 0.95F, .weight_decay = 0.1F}};
///     adam.group(group_id{1}, {.beta2 = 0.95F});  // without decay
struct adam_options {
  float beta1 = 0.9F;         ///< in [0, 1)
  float beta2 = 0.999F;       ///< in [0, 1)
  float epsilon = 1e-8F;      ///< a normal number above 0
  float weight_decay = 0.0F;  ///< finite, 0 or above
  bool decoupled = true;      ///< the decay is subtracted from the parameter (AdamW); false: added to the gradient (L2)
  float rate_factor = 1.0F;   ///< multiplies the learning rate, for groups; finite, 0 or above
};

/// The storage of Adam's states. Types other than float32 are rounded stochastically, so that small changes are not
/// lost.
///
///     optimizer::adam adam{{}, {.moments = dtype::bfloat16, .masters = false}};
struct adam_storage {
  dtype moments = dtype::float32;  ///< or bfloat16: 4 B less for each parameter
  bool masters = true;             ///< 16-bit parameters have one in float32
  instruction_set instructions = best_instruction_set();
  bool takes_any_numerics = false;  ///< loads checkpoints of other versions of the numerics, see numerics_record
};

namespace detail {

/// The numbers that all elements of one update share. None is a denormal. docs/numerics.md derives the limits.
struct adam_factors {
  CHUNKMEM_HOST_DEVICE adam_factors(const adam_options& options, const step_settings& settings) noexcept
      : beta1{flush(options.beta1)},
        rest1{strict_fp::sum(1.0F, strict_fp::negative(options.beta1))},
        beta2{flush(options.beta2)},
        rest2{strict_fp::sum(1.0F, strict_fp::negative(options.beta2))},
        epsilon{options.epsilon}
  {
    const float scaled = strict_fp::product(settings.learning_rate, options.rate_factor);
    const std::uint64_t count = settings.count();
    negative_rate = flush(strict_fp::negative(strict_fp::quotient(scaled, rest_of_power(options.beta1, count))));
    scale = strict_fp::quotient(1.0F, strict_fp::root(rest_of_power(options.beta2, count)));
    if (options.decoupled) keep = strict_fp::fused(strict_fp::negative(scaled), options.weight_decay, 1.0F);
    if (!options.decoupled) decay = flush(options.weight_decay);
    const float smallest =
        strict_fp::to_single(strict_fp::root(strict_fp::quotient(0x1p-125, strict_fp::to_double(rest2))));
    least_slope = larger(smallest, strict_fp::product(decay, least_number));
    least_variance = strict_fp::quotient(0x1p-125F, beta2);
    least_parameter = least_parameter_of(negative_rate, keep);
  }

  float beta1, rest1, beta2, rest2, epsilon;
  float negative_rate;    ///< the learning rate times -1, corrected for the bias of the momentum
  float scale;            ///< factor of the root of the variance, which corrects its bias
  float keep = 1.0F;      ///< of the parameter, after decoupled decay
  float decay = 0.0F;     ///< of the parameter, added to the gradient
  float least_slope;      ///< a smaller gradient counts as 0: its square would add a denormal to the variance
  float least_variance;   ///< a smaller or negative variance counts as 0: times beta2 it may be a denormal
  float least_parameter;  ///< a smaller parameter is stored as 0
};

// The arithmetic of an update, written once: for one element on the host and on a device, and for vectors on the host.
// A macro, since nvcc takes no vectors in functions that are for devices too. See lane_work.
#define CHUNKMEM_ADAM_ARITHMETIC(WHERE)                                                                               \
  [[nodiscard, gnu::always_inline]] WHERE real decayed(const real& parameter, const real& gradient) const noexcept    \
  {                                                                                                                   \
    return strict_fp::fused(decay, parameter, strict_fp::zero_if_small(gradient, least_state));                       \
  }                                                                                                                   \
  [[gnu::always_inline]] WHERE void observe(real& slope, real* state) const noexcept                                  \
  {                                                                                                                   \
    slope = strict_fp::zero_if_small(slope, least_slope);                                                             \
    const real momentum = strict_fp::fused(beta1, state[0], strict_fp::product(rest1, slope));                        \
    state[0] = strict_fp::stored(momentum, least_state);                                                              \
    const real kept = strict_fp::zero_if_less(state[1], least_variance);                                              \
    const real square = strict_fp::product(slope, slope);                                                             \
    state[1] = strict_fp::with_one_nan(strict_fp::fused(beta2, kept, strict_fp::product(rest2, square)));             \
  }                                                                                                                   \
  [[nodiscard, gnu::always_inline]] WHERE real divisor(const real& root) const noexcept                               \
  {                                                                                                                   \
    return strict_fp::fused(root, scale, epsilon);                                                                    \
  }                                                                                                                   \
  [[gnu::always_inline]] WHERE void move(real& parameter, real& step, const real&, const real& by, const real* state) \
      const noexcept                                                                                                  \
  {                                                                                                                   \
    step = strict_fp::product(negative_rate, strict_fp::quotient(state[0], by));                                      \
    parameter = strict_fp::product(keep, parameter);                                                                  \
  }

/// The arithmetic for one element.
template <bool Coupled, numerics Rule = numerics::version_3>
struct adam_work : adam_factors {
  using real = float;
  static constexpr numerics rule = Rule;
  static constexpr std::size_t states = 2;

  CHUNKMEM_ADAM_ARITHMETIC(CHUNKMEM_HOST_DEVICE)

  [[gnu::always_inline]] CHUNKMEM_HOST_DEVICE void one(float& parameter, float gradient, float& momentum,
                                                       float& variance) const noexcept
  {
    float state[] = {momentum, variance};
    float slope = Coupled ? decayed(parameter, gradient) : gradient;
    float step;
    observe(slope, state);
    momentum = state[0];
    variance = state[1];
    move(parameter, step, slope, divisor(strict_fp::root(variance)), state);
    parameter = strict_fp::stored(strict_fp::sum_of_products(parameter, step), least_parameter);
  }

 private:
  static constexpr float least_state = least_number;
};

/// The arithmetic for the elements of a vector.
template <class Real>
struct adam_in_lanes {
  using real = Real;
  explicit adam_in_lanes(const adam_factors& of) noexcept
      : least_parameter{in_all_lanes<Real>(of.least_parameter)},
        beta1{in_all_lanes<Real>(of.beta1)},
        rest1{in_all_lanes<Real>(of.rest1)},
        beta2{in_all_lanes<Real>(of.beta2)},
        rest2{in_all_lanes<Real>(of.rest2)},
        epsilon{in_all_lanes<Real>(of.epsilon)},
        negative_rate{in_all_lanes<Real>(of.negative_rate)},
        scale{in_all_lanes<Real>(of.scale)},
        keep{in_all_lanes<Real>(of.keep)},
        decay{in_all_lanes<Real>(of.decay)},
        least_slope{in_all_lanes<Real>(of.least_slope)},
        least_state{in_all_lanes<Real>(least_number)},
        least_variance{in_all_lanes<Real>(of.least_variance)}
  {
  }

  CHUNKMEM_ADAM_ARITHMETIC()

  Real least_parameter;

 private:
  Real beta1, rest1, beta2, rest2, epsilon, negative_rate, scale, keep, decay, least_slope, least_state, least_variance;
};

#undef CHUNKMEM_ADAM_ARITHMETIC

template <numerics Rule>
struct adam_lane_work {
  static constexpr numerics rule = Rule;
  static constexpr std::size_t states = 2;
  static constexpr std::size_t root_of = 1;
  template <class Real>
  [[nodiscard, gnu::always_inline]] adam_in_lanes<Real> in() const noexcept
  {
    return adam_in_lanes<Real>{factors};
  }

  [[nodiscard]] bool is_decayed() const noexcept { return coupled; }

  adam_factors factors;
  bool coupled;
};

/// The arithmetic of Adam in one version of the numerics. Version 1 is in version_1.hpp.
template <numerics Rule>
struct adam_arithmetic;
template <numerics Rule>
  requires(Rule >= numerics::version_2)
struct adam_arithmetic<Rule> {
  using factors = adam_factors;
  using lane_work = adam_lane_work<Rule>;
  template <bool Coupled>
  using work = adam_work<Coupled, Rule>;
};

}  // namespace detail

/// Adam, with the weight decay of AdamW or with L2: two lists for each parameter, and a master for a 16-bit parameter.
///
///     optimizer::adam adam{{.weight_decay = 0.1F}};
///     m.use(adam);                                         // before the first access
///     optimizer::step(m, adam, {.learning_rate = 1e-3F});  // after each backward pass
///
/// Quotients and roots are the correctly rounded ones, a product feeds a sum by an explicit fused multiply-add or is
/// rounded first, and no denormal changes a bit: the bits depend on no compiler flag, no flush mode and no instruction
/// set. `adam` has the newest version of the numerics. A training that began with an older version may keep it:
///
///     optimizer::basic_adam<optimizer::numerics::version_2> adam;
///
/// Source: Kingma and Ba 2014 (arXiv 1412.6980); Loshchilov and Hutter 2017 (arXiv 1711.05101).
/// Cost: one pass; 28 B of memory traffic for each element in float32, and for a 16-bit one with float32 states.
///
/// @tparam Rule   the version of the numerics, which checkpoints record
template <numerics Rule>
class basic_adam {
 public:
  static constexpr std::string_view name = "adam";
  static constexpr numerics rule = Rule;

  /// @throws config_error   an option is out of its range, or this processor lacks the instructions
  explicit basic_adam(const adam_options& options = {}, const adam_storage& storage = {})
      : options_{checked(options)}, storage_{storage}, numerics_{storage.takes_any_numerics}
  {
    if (storage.moments != dtype::float32 && storage.moments != dtype::bfloat16)
      throw config_error{error_text{} << "chunkmem: moments of Adam in " << name_of(storage.moments)
                                      << " (choose float32 or bfloat16)"};
    if (!is_available(storage.instructions))
      throw config_error{error_text{} << "chunkmem: this processor does not run " << name_of(storage.instructions)
                                      << " (leave the instruction set to best_instruction_set())"};
  }

  /// Sets options for the parameters of one group, from the next step on: waiting updates keep the options of their
  /// step. May allocate where the group had no options of its own.
  /// @throws config_error   an option is out of its range; nothing was changed
  basic_adam& group(group_id which, const adam_options& options)
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
    visit(setting{"numerics", static_cast<std::uint64_t>(Rule)});
  }

  /// The version of the numerics. @see numerics_record
  template <class Visit>
  void for_each_state(Visit visit)
  {
    numerics_.for_each_state(visit);
  }

  using device_factors = typename detail::adam_arithmetic<Rule>::factors;

  /// Calls `visit` with the type of the arithmetic for a group's options: for kernels on a device.
  template <class Visit>
  void with_arithmetic(group_id group, Visit&& visit) const
  {
    if (is_coupled(options_.of(group)))
      visit(std::type_identity<typename detail::adam_arithmetic<Rule>::template work<true>>{});
    else
      visit(std::type_identity<typename detail::adam_arithmetic<Rule>::template work<false>>{});
  }

  /// Calls `visit(work)` with the arithmetic of a group's options: see detail::lane_work.
  template <class Visit>
  void with_lane_work(const step_settings& settings, Visit&& visit) const
  {
    const adam_options& options = options_.of(settings.group);
    visit(typename detail::adam_arithmetic<Rule>::lane_work{{options, settings}, is_coupled(options)});
  }

  /// @pre the spans do not overlap
  void update(const update_spans& spans, const step_settings& settings) const noexcept
  {
    detail::update_in_lanes(*this, spans, settings);
  }

  step_progress progress;

 private:
  static bool is_coupled(const adam_options& it) noexcept
  {
    const float decay = Rule == numerics::version_1 ? it.weight_decay : flush(it.weight_decay);
    return !it.decoupled && decay != 0.0F;
  }

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
  numerics_record<Rule> numerics_;
};

using adam = basic_adam<numerics::version_3>;

static_assert(device_optimizer_kernel<adam>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
