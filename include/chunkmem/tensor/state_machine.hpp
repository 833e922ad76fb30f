// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/tensor/tensor_label.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>

#include <string_view>

namespace chunkmem::inline v0 {

/// Runs a table of rules: one look-up for a legal event, one clear sentence for an illegal one.
///
///     tensor_state state = tensor_state::free;
///     state_machine<training_rules>::apply(state, tensor_event::materialize, tensor_id{0}, "value");  // hold
///
/// Holds nothing: the state is the caller's, so that a slot keeps it in one byte. Cost: one load, one compare.
template <tensor_rules Rules>
class state_machine {
 public:
  static constexpr transition_table table = dense_table(Rules::table);

  [[nodiscard]] static constexpr bool is_legal(tensor_state state, tensor_event event) noexcept
  {
    return next(state, event) != illegal_transition;
  }

  /// @return   the next state as a number, or `illegal_transition`
  [[nodiscard]] static constexpr std::uint8_t next(tensor_state state, tensor_event event) noexcept
  {
    return table[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)];
  }

  /// Applies `event` to `state`. Guarantee: strong.
  /// @throws usage_error   the rules have no such row; names tensor, list, state and event
  static void apply(tensor_state& state, tensor_event event, tensor_id tensor, std::string_view list)
  {
    const std::uint8_t after = next(state, event);
    if (after == illegal_transition) [[unlikely]]
      refuse(state, event, tensor_label{tensor, {}, list});
    state = static_cast<tensor_state>(after);
  }

  [[noreturn, gnu::noinline, gnu::cold]] static void refuse(tensor_state state, tensor_event event,
                                                            const tensor_label& label)
  {
    throw usage_error{error_text{} << "chunkmem: " << label << " is " << name_of(state) << " and cannot "
                                   << name_of(event) << ": " << advice(state, event) << " (" << Rules::name << ")"};
  }

 private:
  static constexpr std::string_view advice(tensor_state state, tensor_event event) noexcept
  {
    if (state == tensor_state::free) return "write it first with access::write";
    if (state == tensor_state::compute) return "release its pins first";
    if (state == tensor_state::gradient)
      return "its gradient has its place: release the gradient or take the step first";
    if (event == tensor_event::materialize) return "it already has bytes";
    return "it holds no pin";
  }
};

}  // namespace chunkmem::inline v0
