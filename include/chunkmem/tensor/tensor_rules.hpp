// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/core/error.hpp>
#include <chunkmem/core/ids.hpp>
#include <chunkmem/core/policy.hpp>
#include <chunkmem/tensor/tensor.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace chunkmem::inline v0 {

/// States of a tensor in a list. Moving and arriving are states of a chunk, not of a tensor.
enum class tensor_state : std::uint8_t { free, hold, compute, gradient };

/// The events of a tensor.
enum class tensor_event : std::uint8_t { materialize, acquire, consume, release, drop };

inline constexpr std::size_t tensor_state_count = 4;
inline constexpr std::size_t tensor_event_count = 5;

[[nodiscard]] constexpr std::string_view name_of(tensor_state state) noexcept
{
  constexpr std::string_view names[tensor_state_count] = {"free", "hold", "compute", "gradient"};
  return names[static_cast<std::size_t>(state)];
}

[[nodiscard]] constexpr std::string_view name_of(tensor_event event) noexcept
{
  constexpr std::string_view names[tensor_event_count] = {"materialize", "acquire", "consume", "release", "drop"};
  return names[static_cast<std::size_t>(event)];
}

/// One row of a table of rules.
///
///     constexpr transition row{tensor_state::free, tensor_event::materialize, tensor_state::hold};
struct transition {
  tensor_state from;
  tensor_event event;
  tensor_state to;
};

/// The value in a dense table that stands for "no such row".
inline constexpr std::uint8_t illegal_transition = UINT8_MAX;

/// `[state][event] -> next state`, one byte each: read by the engine on its hot path.
using transition_table = std::array<std::array<std::uint8_t, tensor_event_count>, tensor_state_count>;

[[nodiscard]] constexpr transition_table dense_table(std::span<const transition> rows) noexcept
{
  transition_table table{};
  for (auto& row : table) row.fill(illegal_transition);
  for (const transition& row : rows)
    table[static_cast<std::size_t>(row.from)][static_cast<std::size_t>(row.event)] = static_cast<std::uint8_t>(row.to);
  return table;
}

/// No two rows share a state and an event.
[[nodiscard]] constexpr bool is_deterministic(std::span<const transition> rows) noexcept
{
  for (std::size_t left = 0; left < rows.size(); ++left)
    for (std::size_t right = left + 1; right < rows.size(); ++right)
      if (rows[left].from == rows[right].from && rows[left].event == rows[right].event) return false;
  return true;
}

namespace detail {
constexpr std::array<bool, tensor_state_count> states_reached(std::span<const transition> rows,
                                                              tensor_state start) noexcept
{
  std::array<bool, tensor_state_count> reached{};
  reached[static_cast<std::size_t>(start)] = true;
  for (std::size_t round = 0; round < tensor_state_count; ++round)
    for (const transition& row : rows)
      if (reached[static_cast<std::size_t>(row.from)]) reached[static_cast<std::size_t>(row.to)] = true;
  return reached;
}
}  // namespace detail

/// Every state that a row names can be reached from `free`, and `free` can be reached from it again: no dead end.
[[nodiscard]] constexpr bool is_connected(std::span<const transition> rows) noexcept
{
  const auto reached = detail::states_reached(rows, tensor_state::free);
  for (const transition& row : rows)
    for (const tensor_state state : {row.from, row.to})
      if (!reached[static_cast<std::size_t>(state)] || !detail::states_reached(rows, state)[0]) return false;
  return true;
}

namespace detail {

// Constants, not calls: nvcc takes the destructor of a span in a constraint for one that cannot be constant.
template <class Rules>
inline constexpr bool is_deterministic_table = is_deterministic(Rules::table);
template <class Rules>
inline constexpr bool is_connected_table = is_connected(Rules::table);

}  // namespace detail

/// A table of (state, event, next state), checked when it is compiled.
///
/// Laws: deterministic; every state reachable from `free`; no state a dead end. Bytes come by `materialize`, which
/// leads from `free` to `hold`, and go by `drop`. `acquire` begins a pin and leads to `compute`; `release` ends the
/// last pin. `consume` leads from `compute` to `gradient`. A table that names `compute` or `gradient` has a release for
/// it and no drop; no other state has a release. Source: tensor states of PatrickStar (Fang et al. 2021, arXiv
/// 2108.05818), without the states that distinguish passes.
template <class Rules>
concept tensor_rules = names_itself<Rules> && std::same_as<typename Rules::policy_kind, rules_kind> && requires {
  {
    std::span<const transition>{Rules::table}
  };
  requires detail::is_deterministic_table<Rules>;
  requires detail::is_connected_table<Rules>;
};

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
      return "its gradient has its bytes: release the gradient or take the step first";
    if (event == tensor_event::materialize) return "it already has bytes";
    return "it holds no pin";
  }
};

/// The rules of training: a weight is held, in use, or overwritten by its gradient.
///
///     manager<backend::host_arena, training_rules> m{memory};  // the same type as manager<backend::host_arena>
///
/// `gradient` is a weight whose slot its own gradient has taken: reading the weight there is an error.
/// A tensor without bytes may be dropped: nothing happens, so that a step need not know whether it wrote the tensor.
/// Source: PatrickStar (Fang et al. 2021, arXiv 2108.05818), with `consume` added for gradients in place.
struct training_rules {
  using policy_kind = rules_kind;
  static constexpr std::string_view name = "training_rules";
  using enum tensor_state;
  using enum tensor_event;

  static constexpr transition table[] = {
      {free, materialize, hold},
      {free, drop, free},
      {hold, tensor_event::acquire, compute},
      {hold, drop, free},
      {compute, tensor_event::acquire, compute},
      {compute, consume, tensor_state::gradient},
      {compute, release, hold},
      {tensor_state::gradient, release, hold},
  };
};

static_assert(is_deterministic(training_rules::table), "training_rules: two rows share a state and an event");
static_assert(tensor_rules<training_rules>);

/// The rules of inference: weights are held or in use; a gradient is an error.
///
///     manager<backend::host_arena, inference_rules> m{memory};
///
/// A tensor without bytes may be dropped, and nothing happens.
struct inference_rules {
  using policy_kind = rules_kind;
  static constexpr std::string_view name = "inference_rules";
  using enum tensor_state;
  using enum tensor_event;

  static constexpr transition table[] = {
      {free, materialize, hold}, {free, drop, free},          {hold, acquire, compute},
      {hold, drop, free},        {compute, acquire, compute}, {compute, release, hold},
  };
};

static_assert(is_deterministic(inference_rules::table), "inference_rules: two rows share a state and an event");
static_assert(tensor_rules<inference_rules>);

}  // namespace chunkmem::inline v0
