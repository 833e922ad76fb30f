// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/tensor_rules.hpp>

#include <conformance/tensor_rules.hpp>
#include <support/catch.hpp>

#include <string>

namespace state_machine_test {

namespace state_machine_test {  // `free` is a function outside
namespace {

using namespace chunkmem;
using enum tensor_state;
using enum tensor_event;

/// No more than the concept asks for.
struct two_states {
  using policy_kind = rules_kind;
  static constexpr std::string_view name = "two_states";
  static constexpr transition table[] = {{free, materialize, hold}, {hold, drop, free}};
};

std::string refusal(tensor_state state, tensor_event event)
{
  try {
    state_machine<training_rules>::apply(state, event, tensor_id{12}, "value");
  } catch (const usage_error& refused) {
    return refused.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a machine runs any table of rules", "[tensor]")
{
  conformance::tensor_rules_laws<two_states>();
  conformance::rules_are<two_states>({{{free, materialize}, hold}, {{hold, drop}, free}});
}

TEST_CASE("a machine knows its table when it is compiled", "[tensor]")
{
  static_assert(state_machine<training_rules>::is_legal(free, materialize));
  static_assert(!state_machine<training_rules>::is_legal(free, acquire));
  static_assert(state_machine<training_rules>::next(hold, acquire) == static_cast<std::uint8_t>(compute));
  CHECK(state_machine<training_rules>::table.size() == tensor_state_count);
}

TEST_CASE("a refusal says what to do instead", "[tensor]")
{
  using Catch::Matchers::ContainsSubstring;
  CHECK_THAT(refusal(free, acquire), ContainsSubstring("chunkmem: tensor 12 (value) is free and cannot acquire"));
  CHECK_THAT(refusal(free, acquire), ContainsSubstring("access::write"));
  CHECK_THAT(refusal(compute, drop), ContainsSubstring("release its pins"));
  CHECK_THAT(refusal(gradient, acquire), ContainsSubstring("gradient"));
  CHECK_THAT(refusal(hold, materialize), ContainsSubstring("already has bytes"));
  CHECK_THAT(refusal(hold, release), ContainsSubstring("holds no pin"));
}

}  // namespace state_machine_test

}  // namespace state_machine_test
