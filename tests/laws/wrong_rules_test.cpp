// SPDX-License-Identifier: Apache-2.0
#include <conformance/tensor_rules.hpp>

#include "verdict.hpp"

#include <chunkmem/core/policy.hpp>
#include <chunkmem/tensor/tensor_rules.hpp>
#include <support/catch.hpp>

#include <string_view>

namespace wrong_rules_test {

using namespace chunkmem;

namespace {

using state = tensor_state;
using event = tensor_event;

/// Right: pins that count, and gradients that take the place of weights. Each table below has one mistake.
struct plain {
  using policy_kind = rules_kind;
  static constexpr std::string_view name = "plain";
  static constexpr transition table[] = {
      {state::free, event::materialize, state::hold},    {state::hold, event::acquire, state::compute},
      {state::hold, event::drop, state::free},           {state::compute, event::acquire, state::compute},
      {state::compute, event::consume, state::gradient}, {state::compute, event::release, state::hold},
      {state::gradient, event::release, state::hold},
  };
};
static_assert(tensor_rules<plain>);

/// The first rows, which all tables below begin with unless they say otherwise: a tensor that is written, used and
/// dropped.
template <transition... More>
struct with_rows : plain {
  static constexpr transition table[] = {
      {state::free, event::materialize, state::hold},
      {state::hold, event::acquire, state::compute},
      {state::hold, event::drop, state::free},
      {state::compute, event::release, state::hold},
      More...,
  };
};

/// A row was copied and its event left as it was.
struct says_it_twice : with_rows<transition{state::compute, event::release, state::gradient},
                                 transition{state::gradient, event::release, state::hold}> {};
/// Has a way out of a state, and none into it.
struct has_an_island : with_rows<transition{state::gradient, event::release, state::hold}> {};
/// Knows how a gradient begins, and not how it ends.
struct ends_in_a_gradient : with_rows<transition{state::compute, event::consume, state::gradient}> {};
/// Has only pins in mind that end in a gradient: a read is never over.
struct forgets_readers : plain {
  static constexpr transition table[] = {
      {state::free, event::materialize, state::hold}, {state::hold, event::acquire, state::compute},
      {state::hold, event::drop, state::free},        {state::compute, event::consume, state::gradient},
      {state::gradient, event::release, state::hold},
  };
};
/// Lets a tensor go while a kernel uses it.
struct drops_what_is_pinned : with_rows<transition{state::compute, event::drop, state::free}> {};
/// Hands out a pin and does not say that the tensor is in use: it may be dropped under the pin.
struct pins_without_a_trace : plain {
  static constexpr transition table[] = {
      {state::free, event::materialize, state::hold},
      {state::hold, event::acquire, state::hold},
      {state::hold, event::drop, state::free},
  };
};
/// Reads what nobody has written.
struct reads_before_it_writes : with_rows<transition{state::free, event::acquire, state::compute}> {};
/// Takes frames for bytes that are there.
struct writes_anew : with_rows<transition{state::hold, event::materialize, state::hold}> {};
/// Lets a pin end that nobody has.
struct releases_what_is_held : with_rows<transition{state::hold, event::release, state::hold}> {};
/// Lets a gradient take the place of a weight that nobody uses.
struct consumes_what_is_held : with_rows<transition{state::hold, event::consume, state::gradient},
                                         transition{state::gradient, event::release, state::hold}> {};
/// Frees a tensor with its last pin.
struct frees_by_release : plain {
  static constexpr transition table[] = {
      {state::free, event::materialize, state::hold},
      {state::hold, event::acquire, state::compute},
      {state::compute, event::release, state::free},
  };
};
/// Pins a tensor while it writes it.
struct materializes_pinned : plain {
  static constexpr transition table[] = {
      {state::free, event::materialize, state::compute},
      {state::hold, event::acquire, state::compute},
      {state::hold, event::drop, state::free},
      {state::compute, event::release, state::hold},
  };
};
/// Takes the end of each pin for the end of a backward pass.
struct keeps_pins : plain {
  static constexpr transition table[] = {
      {state::free, event::materialize, state::hold}, {state::hold, event::acquire, state::compute},
      {state::hold, event::drop, state::free},        {state::compute, event::release, state::gradient},
      {state::gradient, event::release, state::hold},
  };
};

template <class Policy>
laws::verdict judge(std::string_view law)
{
  return {laws::name_of<Policy>(), law, conformance::mistake_in_tensor_rules<Policy>()};
}

}  // namespace

TEST_CASE("the laws of rules hold for a table with gradients", "[laws][rules]")
{
  conformance::tensor_rules_laws<plain>();
}

TEST_CASE("the compiler refuses those wrong tables that the concept can see", "[laws][rules]")
{
  STATIC_REQUIRE_FALSE(tensor_rules<says_it_twice>);
  STATIC_REQUIRE_FALSE(tensor_rules<has_an_island>);
  STATIC_REQUIRE_FALSE(tensor_rules<ends_in_a_gradient>);
  STATIC_REQUIRE(tensor_rules<forgets_readers>);  // the laws alone see these two
  STATIC_REQUIRE(tensor_rules<drops_what_is_pinned>);
}

}  // namespace wrong_rules_test

const laws::verdicts& laws::wrong_rules()
{
  using namespace wrong_rules_test;
  static const verdicts all{
      judge<says_it_twice>("two rows share a state and an event"),
      judge<has_an_island>("a state is not reached from free"),
      judge<ends_in_a_gradient>("a state does not lead back to free"),
      judge<forgets_readers>("a pinned tensor has no release"),
      judge<drops_what_is_pinned>("a pinned tensor is dropped"),
      judge<pins_without_a_trace>("acquire leads elsewhere than to compute"),
      judge<reads_before_it_writes>("a tensor without bytes is used before it is materialized"),
      judge<writes_anew>("a tensor with bytes is materialized again"),
      judge<releases_what_is_held>("a release of a tensor that is not pinned"),
      judge<consumes_what_is_held>("consume is not the way from compute to gradient"),
      judge<frees_by_release>("a tensor loses its bytes by another event than drop"),
      judge<materializes_pinned>("materialize leads elsewhere than to hold"),
      judge<keeps_pins>("a release leaves the tensor pinned"),
  };
  return all;
}
