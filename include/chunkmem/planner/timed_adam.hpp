// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/optimizer/adam.hpp>
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

/// Adam on a backend without bytes: the lists of the real Adam, and the time of their update.
///
/// It adds up the times that it returned, which gives the busy time of both places.
///
/// Use:
///
///     timed_adam kernel{update_rates_of(share)};
///     m.use(kernel);                                   // m: a manager on backend::simulated
///     optimizer::step(m, kernel, options);             // the clocks of the backend advance by the time of each update
class timed_adam : public optimizer::adam {
 public:
  static constexpr std::string_view name = "timed_adam";

  /// Bytes that an update reads and writes for one parameter: three lists of 32 bits twice, a gradient and a weight of
  /// 16 bits once.
  static constexpr std::uint64_t update_bytes = 28;
  static constexpr std::uint64_t norm_bytes = 2;  ///< of a gradient

  /// @throws usage_error   a rate of updates is not above zero
  explicit timed_adam(const update_rates& rates) : rates_{rates}
  {
    expects(rates.host_parameters_per_second > 0 && rates.device_parameters_per_second > 0,
            "timed_adam without the rate of updates of the host and of the device");
  }

  /// Time of one update [ns], rounded up, and the bytes of host memory of an update there. optimizer::step asks for it
  /// on backends without bytes.
  [[nodiscard]] work_cost update_takes(memory_location place, std::uint64_t elements)
  {
    const auto accesses = static_cast<std::uint32_t>(2 + lists().size());  // the gradient's, the lists', the value's
    return add(place, accesses, update_time(place, elements), bytes{update_bytes} * elements);
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
  std::uint64_t host_ = 0;
  std::uint64_t device_ = 0;
  const backend::simulated* clocks_ = nullptr;
  const access_index_source* access_indices_ = nullptr;
  std::vector<timed_update>* seen_ = nullptr;
};

static_assert(optimizer_kernel<timed_adam> && timed_kernel<timed_adam>);

}  // namespace planner

}  // namespace chunkmem::inline v0
