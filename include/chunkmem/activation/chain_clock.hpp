// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/activation/activation_plan.hpp>

#include <cstdint>
#include <vector>

namespace chunkmem::inline v0 {

namespace activation {

/// Measures the runs of blocks in one step, waits for copies aside.
///
///     clock.begin(blocks);
///     const auto before = clock.read(m);
///     ... run a block ...
///     clock.note(chain_run::passing, block, clock.read(m) - before);
///
/// A block that runs forward several times has the shortest time.
class chain_clock {
 public:
  void begin(std::uint32_t blocks)
  {
    forward_.assign(blocks, 0);
    backward_.assign(blocks, 0);
  }
  /// Seconds of the manager's backend, without those that the calling thread waited for copies.
  template <class Manager>
  [[nodiscard]] static double read(Manager& manager)
  {
    return static_cast<double>(manager.backend().now()) * 1e-9 - manager.report().stalls.seconds();
  }
  void note(chain_run run, std::uint32_t block, double seconds) noexcept
  {
    double& known = (run == chain_run::backward ? backward_ : forward_)[block];
    if (known == 0 || seconds < known) known = seconds;
  }
  [[nodiscard]] double forward(std::uint32_t block) const noexcept { return forward_[block]; }
  [[nodiscard]] double backward(std::uint32_t block) const noexcept { return backward_[block]; }

 private:
  std::vector<double> forward_;
  std::vector<double> backward_;
};

}  // namespace activation

}  // namespace chunkmem::inline v0
