#pragma once

#include <chunkmem/tensor/state_machine.hpp>
#include <support/catch.hpp>

#include <map>
#include <set>
#include <string>
#include <utility>

namespace conformance {

/// A table of rules as plain words, written by hand: (state, event) -> next state.
using rule_book = std::map<std::pair<chunkmem::tensor_state, chunkmem::tensor_event>, chunkmem::tensor_state>;

/// The rules are exactly those of `book`: each legal event has its next state, and each other one changes nothing and
/// says which tensor, list, state and event it was.
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

/// The laws of tensor_rules, by walking the machine: every state that can be entered is entered from `free`, and `free`
/// is entered from it; the three releases are legal together.
template <chunkmem::tensor_rules Rules>
void tensor_rules_laws()
{
  using namespace chunkmem;
  const auto walk = [](tensor_state start) {
    std::set<tensor_state> seen{start};
    for (std::size_t round = 0; round < tensor_state_count; ++round)
      for (const tensor_state state : std::set<tensor_state>{seen})
        for (std::size_t e = 0; e < tensor_event_count; ++e)
          if (state_machine<Rules>::is_legal(state, static_cast<tensor_event>(e)))
            seen.insert(static_cast<tensor_state>(state_machine<Rules>::next(state, static_cast<tensor_event>(e))));
    return seen;
  };
  const std::set<tensor_state> reachable = walk(tensor_state::free);
  for (std::size_t s = 0; s < tensor_state_count; ++s) {
    const auto state = static_cast<tensor_state>(s);
    INFO(name_of(state));
    const auto legal = [&](tensor_event event) { return state_machine<Rules>::is_legal(state, event); };
    CHECK(legal(tensor_event::release) == legal(tensor_event::release_forward));
    CHECK(legal(tensor_event::release) == legal(tensor_event::release_backward));
    if (reachable.count(state) != 0) CHECK(walk(state).count(tensor_state::free) == 1);
    else CHECK(walk(state).size() == 1);
  }
}

}  // namespace conformance
