// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/collective/communicator.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/host_device.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/tensor/missed_updates.hpp>
#include <chunkmem/tensor/registration.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// First the types of a kernel's interface: instruction_set, setting, step_settings, step_progress, update_spans. Then
// the concept optimizer_kernel, concepts for optional members of a kernel, and device_optimizer_kernel.

namespace chunkmem::inline v0 {

namespace optimizer {

/// The processors for which a loop is compiled. The bits of a result do not depend on it.
enum class instruction_set : std::uint8_t {
  baseline,     ///< the target of the compiler's flags; slow without fused multiply-add
  avx2,         ///< x86-64 with AVX2, FMA and F16C
  avx512,       ///< and AVX-512 F, BW, VL and DQ
  avx512_bf16,  ///< and AVX512_BF16
};

/// All sets, the largest last.
inline constexpr instruction_set instruction_sets[] = {instruction_set::baseline, instruction_set::avx2,
                                                       instruction_set::avx512, instruction_set::avx512_bf16};

[[nodiscard]] constexpr std::string_view name_of(instruction_set set) noexcept
{
  constexpr std::string_view names[] = {"baseline", "avx2", "avx512", "avx512_bf16"};
  return names[static_cast<std::size_t>(set)];
}

#if defined(__x86_64__)
namespace detail {

/// Conversions of fp16. clang 16 has no name for them.
[[nodiscard]] inline bool has_f16c() noexcept
{
#if defined(__clang__)
  std::uint32_t leaf = 1, b = 0, features = 0, d = 0;
  asm("cpuid" : "+a"(leaf), "=b"(b), "+c"(features), "=d"(d));
  return (features >> 29U & 1U) != 0;
#else
  return __builtin_cpu_supports("f16c") != 0;
#endif
}

}  // namespace detail
#endif

/// The largest set that this processor and its operating system support. Cost: a few instructions.
[[nodiscard]] inline instruction_set best_instruction_set() noexcept
{
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !detail::has_f16c())
    return instruction_set::baseline;
  const bool is_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!is_avx512) return instruction_set::avx2;
  return __builtin_cpu_supports("avx512bf16") ? instruction_set::avx512_bf16 : instruction_set::avx512;
#else
  return instruction_set::baseline;
#endif
}

/// This processor runs code for `set`. A processor that runs one set runs all sets before it.
[[nodiscard]] inline bool is_available(instruction_set set) noexcept
{
  return set <= best_instruction_set();
}

/// One setting of an optimizer, as ranks and stages compare it in every step: by its bits.
///
///     template <class Visit>
///     void for_each_setting(Visit visit) const
///     {
///       visit(optimizer::setting{"sharpness", sharpness_});
///     }
///
/// It refers to the texts that it is made from, and allocates nothing.
class setting {
 public:
  constexpr setting(std::string_view name, float value) noexcept
      : name_{name}, bits_{std::bit_cast<std::uint32_t>(value)}, kind_{kind::single}
  {
  }
  constexpr setting(std::string_view name, double value) noexcept
      : name_{name}, bits_{std::bit_cast<std::uint64_t>(value)}, kind_{kind::number}
  {
  }
  template <std::integral Number>
  constexpr setting(std::string_view name, Number value) noexcept
      : name_{name}, bits_{static_cast<std::uint64_t>(value)}, kind_{kind_of(value)}
  {
  }
  constexpr setting(std::string_view name, bool value) noexcept
      : setting{name, std::string_view{value ? "true" : "false"}}
  {
  }
  /// A choice by its name, such as that of an element type.
  constexpr setting(std::string_view name, std::string_view choice) noexcept
      : name_{name}, choice_{choice}, kind_{kind::choice}
  {
  }
  constexpr setting(std::string_view name, const char* choice) noexcept : setting{name, std::string_view{choice}} {}

  /// The setting of one group of parameters.
  [[nodiscard]] constexpr setting in(group_id group) const noexcept
  {
    setting result{*this};
    result.group_ = std::uint64_t{index_of(group)} + 1;
    return result;
  }

  /// The group of the setting; none: all groups.
  [[nodiscard]] constexpr std::optional<group_id> group() const noexcept
  {
    if (group_ == 0) return std::nullopt;
    return group_id{static_cast<std::uint32_t>(group_ - 1)};
  }
  /// The name, such as "beta1 of group 2".
  [[nodiscard]] std::string name() const
  {
    error_text all;
    all << name_;
    if (group_ != 0) all << " of group " << group_ - 1;
    return std::string{all.view()};
  }
  /// The name, the group and the value in one word.
  [[nodiscard]] constexpr std::uint64_t word() const noexcept
  {
    collective::fingerprint all;
    all.add(name_);
    all.add(choice_);
    all.add(group_);
    all.add(static_cast<std::uint64_t>(kind_));
    all.add(bits_);
    return all.value();
  }
  /// The text, such as "beta1 of group 2 = 0.9".
  [[nodiscard]] std::string text() const
  {
    error_text all;
    all << name() << " = ";
    switch (kind_) {
      case kind::single: all << std::bit_cast<float>(static_cast<std::uint32_t>(bits_)); break;
      case kind::number: all << std::bit_cast<double>(bits_); break;
      case kind::count: all << bits_; break;
      case kind::negative: all << "-" << 0 - bits_; break;
      case kind::choice: all << choice_; break;
    }
    return std::string{all.view()};
  }

 private:
  enum class kind : std::uint8_t { count, negative, single, number, choice };
  template <class Number>
  [[nodiscard]] static constexpr kind kind_of(Number value) noexcept
  {
    if constexpr (std::is_signed_v<Number>)
      return value < 0 ? kind::negative : kind::count;
    else
      return kind::count;
  }

  std::string_view name_;
  std::string_view choice_{};
  std::uint64_t bits_ = 0;
  std::uint64_t group_ = 0;  // number of the group from 1; 0: all groups
  kind kind_ = kind::count;
};

namespace detail {

/// @throws config_error   an option is out of its range: names the option, its value and a valid value
inline void expect_option(bool is_right, std::string_view what, float value, std::string_view instead)
{
  if (!is_right) throw config_error{error_text{} << "chunkmem: " << what << " is " << value << " (" << instead << ")"};
}

/// The options of all groups, and those of the few groups with their own.
template <class Options>
class group_options {
 public:
  explicit group_options(const Options& common) : common_{common} {}

  void set(group_id which, const Options& options)
  {
    const auto place =
        std::ranges::lower_bound(own_, index_of(which), {}, [](const entry& it) { return index_of(it.which); });
    if (place != own_.end() && place->which == which)
      place->options = options;
    else
      own_.insert(place, {which, options});
  }

  [[nodiscard]] const Options& common() const noexcept { return common_; }
  [[nodiscard]] const Options& of(group_id which) const noexcept
  {
    for (const entry& it : own_)
      if (it.which == which) return it.options;
    return common_;
  }
  /// Calls `visit(setting)` for the common settings, and for settings of a group that differ from them, in the order of
  /// groups: equal options give equal calls. @param settings_of   `settings_of(options)`: a range
  template <class SettingsOf, class Visit>
  void for_each_setting(SettingsOf settings_of, Visit& visit) const
  {
    const auto common = settings_of(common_);
    for (const setting& it : common) visit(it);
    for (const entry& it : own_) {
      const auto own = settings_of(it.options);
      for (std::size_t index = 0; index < own.size(); ++index)
        if (own[index].word() != common[index].word()) visit(own[index].in(it.which));
    }
  }

 private:
  struct entry {
    group_id which;
    Options options;
  };

  Options common_;
  std::vector<entry> own_;
};

}  // namespace detail

/// The settings that all elements of one parameter share in one update.
///
///     struct my_kernel {
///       void update(const update_spans& spans, const step_settings& settings) const noexcept
///       {
///         for (std::size_t i = 0; i < spans.parameter.size(); ++i)
///           spans.parameter[i] -= settings.learning_rate * spans.gradient[i];
///       }
///     };
struct step_settings {
  float learning_rate = 1e-3F;
  std::uint64_t number = 1;  ///< of this step, counted from 1: keys of random rounding depend on it
  group_id group{0};         ///< of the parameter, for settings by group
  std::uint64_t missed = 0;  ///< steps before this one that had no gradient of the parameter

  /// The number of this update among those of the parameter, counted from 1: bias corrections depend on it.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE constexpr std::uint64_t count() const noexcept { return number - missed; }
};

/// The decision of the running update. `guessed`: it began before the decision, see early_updates.
enum class step_decision : std::uint32_t { open, update, skip, guessed };

/// The most updates that a progress may count: the largest count that a double has exactly.
inline constexpr std::uint64_t most_updates = std::uint64_t{1} << 53;

/// The progress of a kernel's updates: makes a step safe to repeat, and is saved in checkpoints.
///
///     struct my_kernel { step_progress progress; };
///
/// It counts the updates of one manager, to which the kernel was given by `use`. An assignment changes the counts and
/// leaves the kernel with its manager; a copy has the counts and no manager.
struct step_progress {
  std::uint64_t number = 0;  ///< of the last complete update
  /// parameters that have the next update already, in the manager's order of updates
  std::uint32_t reached = 0;
  std::uint32_t undropped = 0;                   ///< 1: the gradient of the last one was consumed but still has bytes
  step_decision decision = step_decision::open;  ///< taken once for each step, also over retries
  std::uint64_t gradients = 0;  ///< count of gradients at the decision: with newer gradients the step decides again
  float factor = 1.0F;          ///< by which the gradients of this step are multiplied
  double norm = 0.0;            ///< of all gradients of this step
  std::uint64_t forgotten = 0;  ///< the manager's count of voided steps: if it changed, this step begins again
  std::uint64_t settings = 0;   ///< a word of the options at the decision: a step is finished with the same options
  registration registered{};    ///< the manager whose updates are counted
  missed_updates missed{};      ///< by parameter: the updates so far in which it had no gradient

  /// Visits `number` and `missed` alone: no save happens while a step is half done.
  template <class Visit>
  void for_each_state(Visit visit)
  {
    visit(restart_state{"updates", std::as_writable_bytes(std::span{&number, 1}), &check});
    visit(restart_state{"missed", std::as_writable_bytes(std::span{&number, 1}), &check, &missed});
  }

 private:
  /// @throws config_error   an impossible number of updates, or of missed ones
  static void check(std::span<const std::byte> loaded)
  {
    std::uint64_t updates = 0;
    std::memcpy(&updates, loaded.data(), sizeof updates);
    if (updates > most_updates)
      throw config_error{
          error_text{} << "chunkmem: a checkpoint of an optimizer after " << updates << " updates, and at most "
                       << most_updates
                       << " can be counted (the file was not made by a training: load another generation)"};
  }
};

/// The most lists that one kernel may keep for each parameter, masters included.
inline constexpr std::size_t max_lists = 4;

/// A run of elements of one parameter, its gradient and its lists, in single precision: spans of equal length.
///
///     for (std::size_t i = 0; i < spans.parameter.size(); ++i)
///       spans.parameter[i] -= settings.learning_rate * spans.gradient[i];
///
/// Elements of 16 bits were widened before and are rounded afterwards. For a 16-bit parameter with a master, the span
/// `parameter` is the master.
struct update_spans {
  std::span<float> parameter;
  std::span<const float> gradient;    ///< unscaled and clipped, denormals as zero
  std::span<float> lists[max_lists];  ///< in the order of the kernel's lists(), masters left out
};

}  // namespace optimizer

/// The arithmetic of an optimizer, for runs of elements. A class of your own needs four members:
///
///     struct descent {
///       static constexpr std::string_view name = "descent";
///       static std::span<const list_spec> lists() noexcept { return {}; }
///       void update(const optimizer::update_spans&, const optimizer::step_settings&) const noexcept;
///       optimizer::step_progress progress;
///     };
///     m.use(kernel);                    // before the first access
///     optimizer::step(m, kernel, {});   // once for each step
///
/// Laws:
/// - `lists()` names the lists that the kernel keeps for each parameter: at most `max_lists`, at most one master. The
///   result never changes.
/// - `update` treats each element alike and separately. The bits depend neither on the division of a parameter into
///   runs nor on the thread of a run.
/// - `update` reads and writes only its spans and settings, and does not throw.
/// - Only `step` changes `progress`.
///
/// A copyable kernel is copied when a step is decided, and the copy runs the updates of that step: options that change
/// afterwards change only later steps. A copy has to update as its original does. A kernel that cannot be copied runs
/// late updates with its options at that time.
///
/// A kernel may have more members: `for_each_state(visit)` for bytes that checkpoints save (see `registrable`), and the
/// members of `prepares_updates`, `chooses_instructions`, `scales_rates`, `names_settings`, `uses_callers_environment`
/// and `timed_kernel`.
template <class Kernel>
concept optimizer_kernel = requires(Kernel kernel, const Kernel& constant, const optimizer::update_spans& spans,
                                    const optimizer::step_settings& settings) {
  {
    Kernel::name
  } -> std::convertible_to<std::string_view>;
  {
    kernel.lists()
  } -> std::convertible_to<std::span<const list_spec>>;
  {
    constant.update(spans, settings)
  } noexcept;
  {
    kernel.progress
  } -> std::same_as<optimizer::step_progress&>;
};

/// An optimizer kernel that computes once, for each part of a parameter, the numbers that all runs of the part share.
///
/// Law: `prepared(settings)(spans)` has the bits of `update(spans, settings)`.
template <class Kernel>
concept prepares_updates = requires(const Kernel& kernel, const optimizer::step_settings& settings,
                                    const optimizer::update_spans& spans) { kernel.prepared(settings)(spans); };

/// An optimizer kernel that chooses the instruction set of the rounding around it. Other kernels use the best set of
/// this processor.
template <class Kernel>
concept chooses_instructions = requires(const Kernel& kernel) {
  {
    kernel.instructions()
  } -> std::same_as<optimizer::instruction_set>;
};

/// An optimizer kernel that multiplies the learning rate of a step by a factor of the parameter's group. A step refuses
/// a product that is no number, infinite or negative.
template <class Kernel>
concept scales_rates = requires(const Kernel& kernel, group_id group) {
  {
    kernel.options(group).rate_factor
  } -> std::convertible_to<float>;
};

/// An optimizer kernel that computes as its caller does: with flush-to-zero, rounding mode and traps of the thread that
/// takes the step, also on the threads of a pool and in updates that wait. For code that has to keep its bits from
/// calls by the trainer.
///
///     struct my_kernel {
///       static constexpr bool uses_callers_environment = true;
///     };
///
/// `update` is then given the gradient as it is stored (a 16-bit one widened): without a loss scale and clipping it is
/// unchanged. With them, it is multiplied and clamped in the caller's environment too, and not flushed. Norms and the
/// rounding of 16-bit values and lists keep the standard's rules. MXCSR on x86 with SSE and FPCR on 64-bit ARM are
/// taken over, the x87 unit is not.
template <class Kernel>
concept uses_callers_environment = Kernel::uses_callers_environment;

/// An optimizer kernel that names its settings: ranks and stages compare them in every step, and a step that is half
/// done is not finished with other settings (usage_error).
///
///     template <class Visit>
///     void for_each_setting(Visit visit) const { visit(optimizer::setting{"sharpness", sharpness_}); }
///
/// For other kernels, ranks compare the name and the lists alone.
///
/// Law: kernels with equal settings visit equal settings in the same order, and so do copies. The visit allocates
/// nothing.
template <class Kernel>
concept names_settings = requires(const Kernel& kernel) { kernel.for_each_setting([](const optimizer::setting&) {}); };

/// The cost of one work of an optimizer kernel on a backend without bytes.
///
///     const work_cost cost{.nanoseconds = 1'000, .host_memory = bytes{28'000}};
struct work_cost {
  std::uint64_t nanoseconds = 0;  ///< without other load on the machine
  bytes host_memory{};            ///< that the work reads and writes on the host

  [[nodiscard]] constexpr bool operator==(const work_cost&) const noexcept = default;
};

/// An optimizer kernel with the time of its work. On a backend without bytes, `step` lets this time pass.
///
/// Laws: both members are for one parameter of `elements` elements at `place`.
template <class Kernel>
concept timed_kernel = requires(Kernel kernel, memory_location place, std::uint64_t elements) {
  {
    kernel.update_takes(place, elements)
  } -> std::same_as<work_cost>;
  {
    kernel.measure_takes(place, elements)
  } -> std::same_as<work_cost>;
};

namespace optimizer {

namespace detail {

/// A visitor for any arithmetic of a kernel.
struct arithmetic_visitor {
  template <class Work>
  void operator()(std::type_identity<Work>) const noexcept
  {
  }
};

}  // namespace detail

}  // namespace optimizer

/// An optimizer kernel whose update can also run on a device, with the same bits.
///
/// Laws: `device_factors` are the numbers that all elements of one update share, trivially copyable, made from (options
/// of a group, settings) in host and device code alike; `with_arithmetic(group, visit)` calls
/// `visit(std::type_identity<Work>{})` once, where `Work{factors}.one(parameter, gradient, states...)` updates one
/// element like `update`, `Work::states` is the number of lists of states, and both depend on the group's options
/// alone.
template <class Kernel>
concept device_optimizer_kernel =
    optimizer_kernel<Kernel> && std::is_trivially_copyable_v<typename Kernel::device_factors> &&
    requires(const Kernel& kernel, group_id group, optimizer::detail::arithmetic_visitor visit) {
      kernel.options(group);
      requires std::is_trivially_copyable_v<std::remove_cvref_t<decltype(kernel.options(group))>>;
      kernel.with_arithmetic(group, visit);
    };

}  // namespace chunkmem::inline v0
