// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/optimizer/planned_optimizer.hpp>
#include <chunkmem/planner/training_timeline.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// The rates of a rank's updates, in virtual time. No rate has a default: each belongs to a machine, measured or read
/// from its file.
///
///     const update_rates rates{.host_parameters_per_second = 2e9, .device_parameters_per_second = 20e9};
struct update_rates {
  double host_parameters_per_second = 0;
  double device_parameters_per_second = 0;
  double host_measured_per_second = 0;  ///< gradients whose norm is taken, 2 B each; 0: no norm is taken
  double device_measured_per_second = 0;
};

/// An optimizer on a backend without bytes: its lists, and the time of their update.
///
/// It adds up the times that it returned, which gives the busy time of both places.
///
/// Use:
///
///     timed_optimizer kernel{update_rates_of(share, settings), settings.states};
///     m.use(kernel);                                   // m: a manager on backend::simulated
///     optimizer::step(m, kernel, options);             // the clocks of the backend advance by the time of each update
class timed_optimizer : public optimizer::planned_optimizer {
 public:
  static constexpr std::string_view name = "timed";
  static constexpr std::uint64_t norm_bytes = 2;  ///< of a gradient

  /// @param states   of the optimizer; those of Adam by default
  /// @throws config_error   as listed_states::check   @throws usage_error   a rate of updates is not above zero
  explicit timed_optimizer(const update_rates& rates, const optimizer::listed_states& states = {})
      : planned_optimizer{states}, rates_{rates}, update_bytes_{states.update_bytes()}
  {
    expects(rates.host_parameters_per_second > 0 && rates.device_parameters_per_second > 0,
            "timed_optimizer without the rate of updates of the host and of the device");
  }

  /// Time of one update [ns], rounded up, and the bytes of host memory of an update there. optimizer::step asks for it
  /// on backends without bytes.
  [[nodiscard]] work_cost update_takes(memory_location place, std::uint64_t elements)
  {
    const auto accesses = static_cast<std::uint32_t>(2 + lists().size());  // the gradient's, the lists', the value's
    return add(place, accesses, update_time(place, elements), bytes{update_bytes_} * elements);
  }
  /// The same time, without counting it.
  [[nodiscard]] std::uint64_t update_time(memory_location place, std::uint64_t elements) const noexcept
  {
    return time_of(elements, place == memory_location::host ? rates_.host_parameters_per_second
                                                            : rates_.device_parameters_per_second);
  }
  /// Time of taking a gradient's norm [ns], where gradient_done did not, and the bytes of host memory of a norm there.
  /// @throws usage_error   the rate of norms is not above zero
  [[nodiscard]] work_cost measure_takes(memory_location place, std::uint64_t elements)
  {
    const double rate =
        place == memory_location::host ? rates_.host_measured_per_second : rates_.device_measured_per_second;
    expects(rate > 0, "a norm in virtual time without the rate of norms");
    return add(place, 1, time_of(elements, rate), bytes{norm_bytes} * elements);
  }

  /// From now on also records each update and each norm. All arguments outlive this object.
  void watch(const backend::simulated& clocks, const access_index_source& access_indices,
             std::vector<timed_update>& into) noexcept
  {
    clocks_ = &clocks;
    access_indices_ = &access_indices;
    seen_ = &into;
  }

  /// The sum of all updates and norms so far [ns].
  [[nodiscard]] std::uint64_t busy(memory_location place) const noexcept
  {
    return place == memory_location::host ? host_ : device_;
  }

 private:
  [[nodiscard]] static std::uint64_t time_of(std::uint64_t elements, double rate) noexcept
  {
    // rounded and saturated as copies are
    return backend::link_cost{.bytes_per_second = rate}.nanoseconds_for(bytes{elements});
  }
  work_cost add(memory_location place, std::uint32_t accesses, std::uint64_t nanoseconds, bytes touched)
  {
    if (seen_ != nullptr) {
      const std::uint32_t now = access_indices_->now();
      const std::uint64_t begin =
          std::max(clocks_->now(), place == memory_location::host ? 0 : clocks_->clock(agent::compute));
      seen_->push_back({place, now - std::min(now, accesses), now, begin, nanoseconds});
    }
    (place == memory_location::host ? host_ : device_) += nanoseconds;
    return {nanoseconds, place == memory_location::host ? touched : bytes{}};
  }

  update_rates rates_;
  std::uint64_t update_bytes_;  // that an update reads and writes for a parameter
  std::uint64_t host_ = 0;
  std::uint64_t device_ = 0;
  const backend::simulated* clocks_ = nullptr;
  const access_index_source* access_indices_ = nullptr;
  std::vector<timed_update>* seen_ = nullptr;
};

static_assert(optimizer_kernel<timed_optimizer> && timed_kernel<timed_optimizer>);

}  // namespace planner

}  // namespace chunkmem::inline v0
