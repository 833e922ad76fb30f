// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/tensor/tensor_rules.hpp>

#include <conformance/tensor_rules.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>
#include <support/refusal.hpp>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tensor_rules_test {

namespace tensor_rules_test {  // `free` is a function outside
namespace {

using namespace chunkmem;
using enum tensor_state;
using enum tensor_event;

constexpr transition good[] = {
    {free, materialize, hold}, {hold, acquire, compute}, {compute, release, hold}, {hold, drop, free}};
static_assert(is_deterministic(good) && is_connected(good));

constexpr transition two_answers[] = {
    {free, materialize, hold}, {hold, drop, free}, {hold, drop, compute}, {compute, drop, free}};
static_assert(!is_deterministic(two_answers));
constexpr transition one_answer_twice[] = {{free, materialize, hold}, {hold, drop, free}, {hold, drop, free}};
static_assert(!is_deterministic(one_answer_twice), "a row that says nothing new is a mistake too");

constexpr transition dead_end[] = {{free, materialize, hold}, {hold, acquire, compute}, {hold, drop, free}};
static_assert(is_deterministic(dead_end) && !is_connected(dead_end));
constexpr transition unreachable[] = {{free, materialize, hold}, {hold, drop, free}, {gradient, drop, free}};
static_assert(!is_connected(unreachable));
constexpr transition island[] = {
    {free, materialize, hold}, {hold, drop, free}, {compute, acquire, gradient}, {gradient, release, compute}};
static_assert(!is_connected(island));
constexpr transition nothing_starts[] = {{hold, acquire, compute}, {compute, release, hold}};
static_assert(!is_connected(nothing_starts));

template <int Which>
struct rules {
  using policy_kind = rules_kind;
  static constexpr std::string_view name = "rules";
  static constexpr std::span<const transition> table = Which == 0   ? std::span<const transition>{good}
                                                       : Which == 1 ? std::span<const transition>{two_answers}
                                                       : Which == 2 ? std::span<const transition>{dead_end}
                                                                    : std::span<const transition>{unreachable};
};
static_assert(tensor_rules<rules<0>> && !tensor_rules<rules<1>> && !tensor_rules<rules<2>> && !tensor_rules<rules<3>>);
struct of_another_kind : rules<0> {
  using policy_kind = eviction_kind;
};
struct without_table {
  using policy_kind = rules_kind;
  static constexpr std::string_view name = "without_table";
};
static_assert(!tensor_rules<of_another_kind> && !tensor_rules<without_table> && !tensor_rules<int>);

/// Reachability by hand: a set that grows until it does not.
std::set<tensor_state> reached_from(tensor_state start, const std::vector<transition>& rows)
{
  std::set<tensor_state> reached{start};
  for (std::size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const transition& row : rows)
      if (reached.count(row.from) != 0) reached.insert(row.to);
  }
  return reached;
}

}  // namespace

TEST_CASE("random tables are judged as sets and maps judge them", "[tensor]")
{
  int connected = 0;
  for (std::uint64_t seed = 1; seed <= 3'000; ++seed) {
    support::dice dice{seed};
    std::vector<transition> rows(1 + dice.below(12));
    const std::uint32_t states = dice.between(1, tensor_state_count);
    for (transition& row : rows)
      row = {static_cast<tensor_state>(dice.below(states)), static_cast<tensor_event>(dice.below(tensor_event_count)),
             static_cast<tensor_state>(dice.below(states))};
    std::map<std::pair<tensor_state, tensor_event>, int> uses;
    for (const transition& row : rows) ++uses[{row.from, row.event}];
    const bool deterministic = uses.size() == rows.size();
    bool joined = true;
    for (const transition& row : rows)
      for (const tensor_state state : {row.from, row.to})
        joined = joined && reached_from(free, rows).count(state) != 0 && reached_from(state, rows).count(free) != 0;
    connected += joined ? 1 : 0;
    if (is_deterministic(rows) != deterministic || is_connected(rows) != joined) FAIL("seed " << seed);
  }
  CHECK(connected > 100);
}

TEST_CASE("states and events have names of their own", "[tensor]")
{
  std::set<std::string> names;
  for (std::size_t state = 0; state < tensor_state_count; ++state)
    names.emplace(name_of(static_cast<tensor_state>(state)));
  for (std::size_t event = 0; event < tensor_event_count; ++event)
    names.emplace(name_of(static_cast<tensor_event>(event)));
  CHECK(names.size() == tensor_state_count + tensor_event_count);
  CHECK(name_of(tensor_state::gradient) == "gradient");
  CHECK(name_of(drop) == "drop");
}

TEST_CASE("a dense table holds each row and nothing else", "[tensor]")
{
  constexpr transition_table table = dense_table(good);
  static_assert(table[0][0] == static_cast<std::uint8_t>(hold));
  std::size_t rows = 0;
  for (const auto& row : table)
    for (const std::uint8_t next : row) rows += next != illegal_transition ? 1 : 0;
  CHECK(rows == std::size(good));
  CHECK(sizeof(transition_table) == tensor_state_count * tensor_event_count);
}

namespace {

/// The functions of the concept and nothing else.
struct two_states {
  using policy_kind = rules_kind;
  static constexpr std::string_view name = "two_states";
  static constexpr transition table[] = {{free, materialize, hold}, {hold, drop, free}};
};

std::string refusal(tensor_state state, tensor_event event)
{
  return support::refusal<usage_error>(
      [&] { state_machine<training_rules>::apply(state, event, tensor_id{12}, "value"); });
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

}  // namespace tensor_rules_test

}  // namespace tensor_rules_test

namespace training_rules_test {

using namespace chunkmem;

TEST_CASE("training rules keep the laws of tensor rules", "[tensor]")
{
  conformance::tensor_rules_laws<training_rules>();
}

TEST_CASE("training rules are those of the documentation and no others", "[tensor]")
{
  using enum tensor_state;
  using enum tensor_event;
  conformance::rules_are<training_rules>({
      {{free, materialize}, hold},
      {{free, drop}, free},
      {{hold, acquire}, compute},
      {{hold, drop}, free},
      {{compute, acquire}, compute},
      {{compute, consume}, gradient},
      {{compute, release}, hold},
      {{gradient, release}, hold},
  });
}

}  // namespace training_rules_test

namespace inference_rules_test {

using namespace chunkmem;

TEST_CASE("inference rules keep the laws of tensor rules", "[tensor]")
{
  conformance::tensor_rules_laws<inference_rules>();
}

TEST_CASE("inference knows held weights and no gradient", "[tensor]")
{
  using enum tensor_state;
  using enum tensor_event;
  conformance::rules_are<inference_rules>({
      {{free, materialize}, hold},
      {{free, drop}, free},
      {{hold, acquire}, compute},
      {{hold, drop}, free},
      {{compute, acquire}, compute},
      {{compute, release}, hold},
  });
}

}  // namespace inference_rules_test
