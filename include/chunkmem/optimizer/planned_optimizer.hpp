// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/optimizer/optimizer_kernel.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

namespace optimizer {

/// The states of an optimizer as plans see them: a master of 4 bytes for each parameter, and lists beside the masters.
///
///     const optimizer::listed_states sgd_with_momentum{.lists = 1};
///     const optimizer::listed_states adam_with_16_bit_moments{.bytes_each = 2};
struct listed_states {
  std::uint32_t lists = 2;       ///< beside masters: 2 of Adam, 1 of SGD with momentum, 0 of SGD
  std::uint32_t bytes_each = 4;  ///< of a number in such a list: 2 or 4

  /// The most lists of an optimizer, without its masters.
  static constexpr std::uint32_t most_lists = max_lists - 1;

  /// @throws config_error   no optimizer has such lists
  constexpr void check() const
  {
    if ((bytes_each != 2 && bytes_each != 4) || lists > most_lists)
      throw config_error{
          "an optimizer whose lists of states no optimizer has (give bytes_each 2 or 4, and lists up to 3)"};
  }
  /// The bytes of a master and the lists for each parameter.
  [[nodiscard]] constexpr std::uint32_t bytes() const noexcept { return 4 + lists * bytes_each; }
  /// An update reads a gradient and a master, writes the master and a weight (12 bytes together), and reads and writes
  /// each list.
  [[nodiscard]] constexpr std::uint32_t update_bytes() const noexcept { return 12 + 2 * lists * bytes_each; }
  /// The time of an update, divided by the time of an update of Adam with lists of 4 bytes. Machines and nodes have the
  /// rate of that Adam. Memory bounds updates.
  [[nodiscard]] constexpr double update_over_adam() const noexcept
  {
    return static_cast<double>(update_bytes()) / listed_states{}.update_bytes();
  }

  [[nodiscard]] constexpr bool operator==(const listed_states&) const noexcept = default;
};

/// An optimizer without its arithmetic, for rehearsals and simulations: it has the lists, and an update changes
/// nothing.
///
///     planned_optimizer sgd{{.lists = 1, .bytes_each = 2}};
///     m.use(sgd);
class planned_optimizer {
 public:
  static constexpr std::string_view name = "planned";

  /// @throws config_error   as listed_states::check
  explicit planned_optimizer(const listed_states& states = {}) : states_{states} { states.check(); }

  /// Masters are the last list, as those of Adam and SGD are.
  [[nodiscard]] std::span<const list_spec> lists() const noexcept
  {
    static constexpr list_spec wide[] = {{"planned/1"}, {"planned/2"}, {"planned/3"}, master_list};
    static constexpr list_spec half[] = {
        {"planned/1", dtype::bfloat16}, {"planned/2", dtype::bfloat16}, {"planned/3", dtype::bfloat16}, master_list};
    return std::span<const list_spec>{states_.bytes_each == 4 ? wide : half}.last(1 + states_.lists);
  }
  void update(const update_spans&, const step_settings&) const noexcept {}

  step_progress progress;

 private:
  listed_states states_;
};

static_assert(optimizer_kernel<planned_optimizer>);

}  // namespace optimizer

}  // namespace chunkmem::inline v0
