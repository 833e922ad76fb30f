// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "step_meter.hpp"
#include "step_part.hpp"

#include <chunkmem/chunkmem.hpp>
#include <chunkmem/manager/rank_manager.hpp>
#include <chunkmem/optimizer/rate_meter.hpp>

#include <algorithm>
#include <cstddef>

namespace gpt {

/// The seconds of the first steps, and of a byte on each link. Each is the shortest of its kind, since the first steps
/// touch memory for the first time.
struct measured_times {
  part_seconds parts{};  ///< of one step, without waits
  double to_device_seconds_per_byte = 0;
  double to_host_seconds_per_byte = 0;
};

/// The first steps of a training: some are measured, some settle by the chosen plan, and the mean of some is compared
/// with the forecast.
namespace first_steps {
inline constexpr std::size_t measured = 3;  ///< the first one is recorded, and does not count
inline constexpr std::size_t settling = 2;  ///< recorded and planned by the chosen plan
inline constexpr std::size_t compared = 3;
inline constexpr std::size_t all = measured + settling + compared;
}  // namespace first_steps

/// Follows the first steps.
template <class Manager>
class step_watch {
 public:
  /// @param manager, meter   outlive this
  step_watch(Manager& manager, const step_meter<Manager>& meter) noexcept : m_{manager}, meter_{meter} {}

  /// Copies a tensor of activations to the host and back. Where a tier has no room for the tensor, the links stay
  /// unmeasured: copies then cost no time in the forecast. @pre memory is there, and no iteration runs
  void measure_links(chunkmem::tensor<float> room)
  {
    constexpr int rounds = 4;
    (void)m_.acquire(room, chunkmem::access::write);
    try {
      for (int round = 0; round < rounds; ++round)
        for (const auto place : {chunkmem::memory_location::host, chunkmem::memory_location::device}) {
          const chunkmem::optimizer::metered_copies copies{chunkmem::rank_manager(m_)};
          const auto pin = m_.acquire(room, chunkmem::access::read_write, place);
          copies.end(links_);
        }
    } catch (const chunkmem::out_of_memory&) {
    }
    m_.drop(room);
  }

  void begin_step() { before_ = meter_.account(); }
  void end_step()
  {
    const step_account now = meter_.account();
    ++done_;
    step_account step;
    add_between(step, before_, now, 1);
    for (std::size_t part = 0; part < step_parts && done_ <= first_steps::measured; ++part)
      shortest_[part] = done_ <= 2 ? step.parts[part] : std::min(shortest_[part], step.parts[part]);
    if (done_ > first_steps::measured + first_steps::settling && done_ <= first_steps::all)
      add_between(seen_, before_, now, first_steps::compared);
  }
  [[nodiscard]] std::size_t done() const noexcept { return done_; }

  [[nodiscard]] measured_times times() const noexcept
  {
    const auto links = links_.rates();
    return {shortest_, 1 / links.to_device_bytes_per_second, 1 / links.to_host_bytes_per_second};
  }
  /// The mean of the compared steps.
  [[nodiscard]] const step_account& seen() const noexcept { return seen_; }

 private:
  Manager& m_;
  const step_meter<Manager>& meter_;
  chunkmem::optimizer::rate_meter links_;
  part_seconds shortest_{};
  step_account before_, seen_;
  std::size_t done_ = 0;
};

}  // namespace gpt
