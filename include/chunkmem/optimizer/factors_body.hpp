// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/host_device.hpp>
#include <chunkmem/optimizer/device_body.hpp>
#include <chunkmem/optimizer/device_step_state.hpp>

#include <cstdint>

namespace chunkmem::inline v0 {

namespace optimizer {

/// Works out, on the device, what all elements of one group share in the next update: from the number of updates and
/// the learning rate that lie in device memory, so that a captured step can be repeated.
template <class Options, class Factors>
class factors_body {
 public:
  factors_body(const Options& options, const device_step_state* state, const float* rate, Factors* factors) noexcept
      : options_{options}, state_{state}, rate_{rate}, factors_{factors}
  {
  }

  [[nodiscard]] CHUNKMEM_HOST_DEVICE std::uint64_t count() const noexcept { return 1; }

  /// To be used while this body lives.
  [[nodiscard]] CHUNKMEM_HOST_DEVICE const factors_body& prepared() const noexcept { return *this; }
  CHUNKMEM_HOST_DEVICE void operator()(std::uint64_t) const noexcept
  {
    *factors_ = Factors{options_, step_settings{*rate_, state_->number + 1, group_id{0}}};
  }

 private:
  Options options_;
  const device_step_state* state_;
  const float* rate_;
  Factors* factors_;
};

}  // namespace optimizer

}  // namespace chunkmem::inline v0
