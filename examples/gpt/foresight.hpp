// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "step_meter.hpp"
#include "step_watch.hpp"
#include "virtual_clocks.hpp"

#include <chunkmem/activation/activation_plan.hpp>
#include <chunkmem/collective/network_costs.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/manager/rehearsal.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace gpt {

struct rank_plan;
struct training_setup;

/// The first steps of a training on virtual clocks.
struct foreseen_steps {
  bool fits = false;             ///< false: the other members have no meaning
  step_account compared{};       ///< the mean of the steps that are compared
  part_operations operations{};  ///< of the last measured step
};

/// The memory that a training has, and whether it is resumed.
struct training_start {
  chunkmem::bytes device, host;
  chunkmem::memory_requirement need{};  ///< of a step
};

/// The first steps of a training: the same trainer, manager, policies and capacities, without bytes. The copies and the
/// peak are those of the real steps, since no decision of a manager depends on time.
/// @param setup   its plan is that of the measured steps   @param later   the plan of the other steps
[[nodiscard]] foreseen_steps foresee(const training_setup& setup, const chunkmem::activation::activation_plan& later,
                                     const training_start& start, const clock_rates& rates);
/// The same for one rank. No other rank comes late. @param network   the measured times of gathers and sums
[[nodiscard]] foreseen_steps foresee(const training_setup& setup, const chunkmem::activation::activation_plan& later,
                                     const training_start& start, const clock_rates& rates, const rank_plan& plan,
                                     const chunkmem::collective::network_costs& network, chunkmem::rank_id rank);

/// Events that a forecast does not know.
struct unforeseen {
  bool is_resumed = false;        ///< or began with weights of a file
  bool was_saved = false;         ///< a checkpoint, in these steps
  std::size_t skipped = 0;        ///< steps whose gradients were not finite
  std::uint64_t divergences = 0;  ///< steps that differed from the record
};

[[nodiscard]] std::string bytes_told(const step_account& step);
[[nodiscard]] std::string seconds_told(double seconds);
/// A table of the forecast and the measurement of each stage, and likely causes as `foresight::compared_with`.
/// @param seconds_of   the stage whose seconds are compared
[[nodiscard]] std::string compared_stages(const options& chosen, std::span<const step_account> said,
                                          std::span<const step_account> seen, std::size_t seconds_of,
                                          const unforeseen& events);

/// Chooses the plan of activations by measured rates, and forecasts the steps to come.
///
/// Modes without a planner have one plan. For `karma` and `planned` the planner makes plans for several parts of the
/// room; plans that recompute no layer and all layers are tried too. Each plan runs on virtual clocks in the whole
/// step, with weights, states, gradients and activations. The fastest plan is taken.
class foresight {
 public:
  /// Runs the first steps on virtual clocks, see foresee.
  using look = std::function<foreseen_steps(const chunkmem::activation::activation_plan& later, const clock_rates&)>;
  /// Makes each number the greatest of all ranks.
  using agree = std::function<void(std::span<double>)>;

  /// @param first        plan of the measured steps
  /// @param room         bytes of the device for activations
  /// @param parameters   that this rank updates in a step
  /// @param chosen, first   outlive this
  foresight(const options& chosen, const chunkmem::activation::activation_plan& first, chunkmem::bytes room,
            std::uint64_t parameters, look look_ahead, agree agree_on);

  /// Every rank makes this call, and chooses the same plan. @return   the plan of the steps to come
  [[nodiscard]] const chunkmem::activation::activation_plan& choose(const measured_times& times);
  [[nodiscard]] const chunkmem::activation::activation_plan& plan() const noexcept { return plan_; }
  /// The forecast of the compared steps, their mean, as `choose` made it.
  [[nodiscard]] const step_account& said() const noexcept { return said_; }
  [[nodiscard]] bool is_foreseen() const noexcept { return fits_; }
  [[nodiscard]] const clock_rates& rates() const noexcept { return rates_; }

  /// Lines with the rates, the plan and the forecast of its steps.
  [[nodiscard]] std::string told() const;
  /// A table of the forecast and the measurement, and a likely cause: for seconds where they differ by more than a
  /// tenth, for bytes where they differ at all.
  [[nodiscard]] std::string compared_with(const step_account& seen, const unforeseen& events) const;

 private:
  /// The times of the slowest rank, by which the rates are computed.
  [[nodiscard]] measured_times agreed(measured_times times);
  [[nodiscard]] std::vector<chunkmem::activation::activation_plan> candidates(const measured_times& times) const;

  const options& chosen_;
  const chunkmem::activation::activation_plan& first_;
  chunkmem::bytes room_;
  std::uint64_t parameters_;
  look look_;
  agree agree_;
  clock_rates rates_;
  chunkmem::activation::activation_plan plan_;
  step_account said_;
  bool fits_ = false;
};

}  // namespace gpt
