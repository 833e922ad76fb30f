// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/tensor/tensor_rules.hpp>
#include <conformance/trials.hpp>
#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace conformance {

/// A table of rules as plain words, written by hand: (state, event) -> next state.
using rule_book = std::map<std::pair<chunkmem::tensor_state, chunkmem::tensor_event>, chunkmem::tensor_state>;

/// The rules are exactly those of `book`: each legal event has its next state, and each other one changes nothing and
/// names the tensor, list, state and event.
template <chunkmem::tensor_rules Rules>
void rules_are(const rule_book& book)
{
  using namespace chunkmem;
  using Catch::Matchers::ContainsSubstring;
  std::size_t legal = 0;
  for (std::size_t s = 0; s < tensor_state_count; ++s)
    for (std::size_t e = 0; e < tensor_event_count; ++e) {
      const auto from = static_cast<tensor_state>(s);
      const auto event = static_cast<tensor_event>(e);
      INFO(name_of(from) << " -- " << name_of(event));
      const auto row = book.find({from, event});
      tensor_state state = from;
      CHECK(state_machine<Rules>::is_legal(from, event) == (row != book.end()));
      if (row != book.end()) {
        ++legal;
        CHECK(state_machine<Rules>::next(from, event) == static_cast<std::uint8_t>(row->second));
        REQUIRE_NOTHROW(state_machine<Rules>::apply(state, event, tensor_id{4'711}, "adam/momentum"));
        CHECK(state == row->second);
        continue;
      }
      CHECK(state_machine<Rules>::next(from, event) == illegal_transition);
      try {
        state_machine<Rules>::apply(state, event, tensor_id{4'711}, "adam/momentum");
        FAIL_CHECK("was accepted");
      } catch (const usage_error& refused) {
        const std::string text = refused.what();
        CHECK_THAT(text, ContainsSubstring("tensor 4711") && ContainsSubstring("adam/momentum"));
        CHECK_THAT(text, ContainsSubstring("is " + std::string{name_of(from)} + " and"));
        CHECK_THAT(text, ContainsSubstring("cannot " + std::string{name_of(event)} + ":"));
        CHECK_THAT(text, ContainsSubstring(std::string{Rules::name}));
      }
      CHECK(state == from);
    }
  CHECK(legal == book.size());
}

/// A table of rules, walked state by state. It need not be one that the concept accepts.
class rules_trial {
 public:
  explicit rules_trial(std::span<const chunkmem::transition> rows) : rows_{rows}, next_{chunkmem::dense_table(rows)} {}

  /// The law that the rows of one state break; empty: none.
  [[nodiscard]] std::string mistake_in(chunkmem::tensor_state from) const
  {
    for (const auto law : {&rules_trial::mistake_in_rows, &rules_trial::mistake_in_ways, &rules_trial::mistake_in_bytes,
                           &rules_trial::mistake_in_pins})
      if (const char* const mistake = (this->*law)(from); mistake != nullptr)
        return std::string{mistake} + ": " + std::string{name_of(from)};
    return {};
  }

 private:
  using state = chunkmem::tensor_state;
  using event = chunkmem::tensor_event;

  [[nodiscard]] bool is_legal(state from, event what) const
  {
    return target(from, what) != chunkmem::illegal_transition;
  }
  [[nodiscard]] std::uint8_t target(state from, event what) const
  {
    return next_[static_cast<std::size_t>(from)][static_cast<std::size_t>(what)];
  }
  [[nodiscard]] bool leads(state from, event what, state to) const
  {
    return target(from, what) == static_cast<std::uint8_t>(to);
  }
  [[nodiscard]] std::set<state> reached_from(state start) const
  {
    std::set<state> seen{start};
    for (std::size_t round = 0; round < chunkmem::tensor_state_count; ++round)
      for (const state from : std::set<state>{seen})
        for (std::size_t what = 0; what < chunkmem::tensor_event_count; ++what)
          if (is_legal(from, static_cast<event>(what)))
            seen.insert(static_cast<state>(target(from, static_cast<event>(what))));
    return seen;
  }
  [[nodiscard]] bool is_named(state one) const
  {
    for (const chunkmem::transition& row : rows_)
      if (row.from == one || row.to == one) return true;
    return false;
  }

  [[nodiscard]] const char* mistake_in_rows(state from) const
  {
    std::set<event> seen;
    for (const chunkmem::transition& row : rows_)
      if (row.from == from && !seen.insert(row.event).second) return "two rows share a state and an event";
    return nullptr;
  }
  [[nodiscard]] const char* mistake_in_ways(state one) const
  {
    if (!is_named(one)) return nullptr;
    if (reached_from(state::free).count(one) == 0) return "a state is not reached from free";
    return reached_from(one).count(state::free) == 0 ? "a state does not lead back to free" : nullptr;
  }
  /// Bytes come by materialize and go by drop, and only so. A drop of no bytes may be legal, and does nothing.
  [[nodiscard]] const char* mistake_in_bytes(state from) const
  {
    for (std::size_t index = 0; index < chunkmem::tensor_event_count; ++index) {
      const auto what = static_cast<event>(index);
      if (!is_legal(from, what)) continue;
      if (from == state::free && what != event::materialize && what != event::drop)
        return "a tensor without bytes is used before it is materialized";
      if (from != state::free && what == event::materialize) return "a tensor with bytes is materialized again";
      if (what == event::materialize && !leads(from, what, state::hold))
        return "materialize leads elsewhere than to hold";
      if (leads(from, what, state::free) != (what == event::drop))
        return "a tensor loses its bytes by another event than drop, or keeps them";
    }
    return nullptr;
  }
  /// A pin begins by acquire and ends by release, and only so; a gradient takes the place of a pinned weight.
  [[nodiscard]] const char* mistake_in_pins(state from) const
  {
    const bool is_pinned = from == state::compute || from == state::gradient;
    if (is_pinned && is_legal(from, event::drop)) return "a pinned tensor is dropped";
    if (is_legal(from, event::acquire) && !leads(from, event::acquire, state::compute))
      return "acquire leads elsewhere than to compute";
    if (is_pinned && is_named(from) && !is_legal(from, event::release)) return "a pinned tensor has no release";
    if (is_legal(from, event::release)) {
      if (!is_pinned) return "a release of a tensor that is not pinned";
      if (leads(from, event::release, state::compute) || leads(from, event::release, state::gradient))
        return "a release leaves the tensor pinned";
    }
    if (!is_legal(from, event::consume)) return nullptr;
    return from == state::compute && leads(from, event::consume, state::gradient)
               ? nullptr
               : "consume is not the way from compute to gradient";
  }

  std::span<const chunkmem::transition> rows_;
  chunkmem::transition_table next_;
};

/// One trial of the laws of tensor_rules, for one state. It asks for a table alone, since the compiler refuses rules
/// that break some of the laws.
template <class Rules>
[[nodiscard]] std::string mistake_in_rules(std::uint64_t number)
{
  if (std::string_view{Rules::name}.empty()) return "a policy without a name";
  return rules_trial{Rules::table}.mistake_in(
      static_cast<chunkmem::tensor_state>((number - 1) % chunkmem::tensor_state_count));
}

/// The broken law of tensor_rules; empty: none.
template <class Rules>
[[nodiscard]] std::string mistake_in_tensor_rules()
{
  return first_mistake(chunkmem::tensor_state_count, mistake_in_rules<Rules>);
}

/// The laws of tensor_rules, by walking the machine: every state that a row names is reached from `free`, and `free`
/// from it; bytes come by `materialize` and go by `drop`; pins begin by `acquire` and end by `release`; a pinned tensor
/// is not dropped, and has a release.
template <chunkmem::tensor_rules Rules>
void tensor_rules_laws()
{
  require_trials(chunkmem::tensor_state_count, mistake_in_rules<Rules>);
}

}  // namespace conformance
