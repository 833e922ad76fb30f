// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/transfers.hpp>

#include <chunkmem/transfer/planned.hpp>

#include <conformance/transfer_policy.hpp>
#include <support/catch.hpp>

namespace lookahead_test {

using namespace chunkmem;

TEST_CASE("lookahead keeps the laws of a transfer policy and starts copies early", "[transfer]")
{
  CHECK(conformance::transfer_policy_laws<transfer::lookahead>() > 200);
}

TEST_CASE("lookahead keeps the laws of a transfer policy with a window of any length", "[transfer]")
{
  for (const std::uint32_t window : {0U, 1U, 2U, 4U, 8U, 12U, UINT32_MAX}) {
    CAPTURE(window);
    transfer::lookahead policy;
    policy.window = window;
    const std::uint64_t early = conformance::transfer_policy_laws(conformance::transfer_trials, policy);
    CHECK((early > 0) == (window > 0));
  }
}

namespace {

using transfer::move;
using transfer::move_kind;

/// The access that lookahead gives the only load of chunk `chunk`.
std::uint32_t start_of_load(const conformance::moves& actions, std::uint32_t chunk)
{
  for (const move& it : actions)
    if (it.kind == move_kind::load && it.chunk == chunk) return it.access_index;
  return UINT32_MAX;
}

}  // namespace

TEST_CASE("a load starts when the chunk that leaves its frame was used last", "[transfer]")
{
  support::record_builder build;
  build.brief(0);  // accesses 0 and 1: the last use of chunk 0
  build.brief(0);
  for (int index = 0; index < 8; ++index) build.brief(1);
  build.brief(2);  // access 10
  const std::vector<std::uint32_t> own{0, 1, 2};
  const access_record record = build.finish(own, 3);
  const conformance::moves demand{{10, 0, 0, 1, 0, move_kind::evict}, {10, 2, 0, 1, 0, move_kind::load}};
  conformance::moves actions;
  transfer::lookahead policy;
  policy.schedule({record, own, demand, 3, 2, true}, actions);
  CHECK(start_of_load(actions, 2) == 2);  // after the release of the access at access 1
  policy.window = 3;
  policy.schedule({record, own, demand, 3, 2, true}, actions);
  CHECK(start_of_load(actions, 2) == 7);
  policy.window = 0;
  policy.schedule({record, own, demand, 3, 2, true}, actions);
  CHECK(start_of_load(actions, 2) == 10);
  policy.window = 64;
  policy.schedule({record, own, demand, 3, 2, false}, actions);
  CHECK(start_of_load(actions, 2) == 10);
}

TEST_CASE("a write-back starts at the first read of what was written last", "[transfer]")
{
  support::record_builder build;
  build.brief(0, entry_kind::write);  // access 0
  build.brief(1);
  build.brief(0);  // access 2: the first read
  build.brief(1);
  build.brief(0);  // access 4: the last use
  build.brief(2);
  build.brief(2);  // access 6
  const std::vector<std::uint32_t> own{0, 1, 2};
  const access_record record = build.finish(own, 3);
  const conformance::moves demand{
      {6, 0, 0, 1, 0, move_kind::write_back}, {6, 0, 0, 1, 0, move_kind::evict}, {6, 2, 0, 1, 0, move_kind::load}};
  conformance::moves actions;
  transfer::lookahead policy;
  policy.schedule({record, own, demand, 3, 2, true}, actions);
  REQUIRE(actions.size() == 3);
  CHECK((actions[0].kind == move_kind::write_back && actions[0].access_index == 2));
  CHECK((actions[1].kind == move_kind::evict && actions[1].access_index == 5));
  CHECK(start_of_load(actions, 2) == 6);  // its own last use was access 5
}

TEST_CASE("a write-back whose window begins behind the first read waits for the last use", "[transfer]")
{
  support::record_builder build;
  build.brief(0, entry_kind::write);
  build.brief(0);  // access 1: the first read
  for (int index = 0; index < 4; ++index) build.brief(1);
  const std::uint32_t held = build.access(0);  // access 6
  build.brief(1);
  build.brief(1);
  build.release(held);  // before access 9
  build.brief(1);
  build.brief(2);  // access 10
  const std::vector<std::uint32_t> own{0, 1, 2};
  const access_record record = build.finish(own, 3);
  const conformance::moves demand{
      {10, 0, 0, 1, 0, move_kind::write_back}, {10, 0, 0, 1, 0, move_kind::evict}, {10, 2, 0, 1, 0, move_kind::load}};
  conformance::moves actions;
  transfer::lookahead policy;
  const auto start_with = [&](std::uint32_t window) {
    policy.window = window;
    policy.schedule({record, own, demand, 3, 2, true}, actions);
    return actions.front().kind == move_kind::write_back ? actions.front().access_index : UINT32_MAX;
  };
  CHECK(start_with(9) == 1);
  CHECK(start_with(8) == 9);  // access 2 has no pins, but access 7 would have some
  CHECK(start_with(1) == 9);
}

TEST_CASE("a write-back waits for every pin that was there while bytes were written", "[transfer]")
{
  support::record_builder build;
  const std::uint32_t written = build.access(0, entry_kind::write);  // access 0
  const std::uint32_t held = build.access(3);                        // access 1: ranks may still add the bytes up
  build.release(written);
  build.brief(0);  // access 2
  build.brief(1);
  build.release(held);  // before access 4
  build.brief(1);
  build.brief(1);
  build.brief(2);  // access 6
  const std::vector<std::uint32_t> chunk_of_slot{0, 1, 2, 0};
  const access_record record = build.finish(chunk_of_slot, 3);
  const conformance::moves demand{
      {6, 0, 0, 1, 0, move_kind::write_back}, {6, 0, 0, 1, 0, move_kind::evict}, {6, 2, 0, 1, 0, move_kind::load}};
  conformance::moves actions;
  transfer::lookahead policy;
  policy.schedule({record, chunk_of_slot, demand, 3, 2, true}, actions);
  REQUIRE(actions.size() == 3);
  CHECK((actions[0].kind == move_kind::write_back && actions[0].access_index == 4));
}

TEST_CASE("a claim and a lease stay at their moment, after the copies of that moment", "[transfer]")
{
  support::record_builder build;
  for (int index = 0; index < 4; ++index) build.brief(0);
  build.brief(1, entry_kind::write);  // access 4
  build.brief(2);                     // access 5
  const std::vector<std::uint32_t> own{0, 1, 2};
  const access_record record = build.finish(own, 3);
  const conformance::moves demand{{4, 1, 1, 1, 0, move_kind::claim}, {5, 2, 2, 1, 0, move_kind::load}};
  conformance::moves actions;
  transfer::lookahead policy;
  policy.window = 1;
  policy.schedule({record, own, demand, 3, 3, true}, actions);
  REQUIRE(actions.size() == 2);
  CHECK((actions[0].kind == move_kind::load && actions[0].access_index == 4));
  CHECK((actions[1].kind == move_kind::claim && actions[1].access_index == 4));
}

}  // namespace lookahead_test

namespace no_prefetch_test {

using namespace chunkmem;

TEST_CASE("no_prefetch keeps the laws of a transfer policy and plans nothing", "[transfer]")
{
  static_assert(!transfer::no_prefetch::plans);
  CHECK(conformance::transfer_policy_laws<transfer::no_prefetch>(30) == 0);
}

TEST_CASE("no_prefetch empties the list that it is given", "[transfer]")
{
  std::vector<transfer::move> actions(3);
  const access_record record;
  transfer::no_prefetch{}.schedule({record, {}, {}, 0, 0, true}, actions);
  CHECK(actions.empty());
}

}  // namespace no_prefetch_test

namespace any_transfer_test {

using namespace chunkmem;

namespace {

using ahead_first = transfer::any_transfer<transfer::lookahead, transfer::no_prefetch>;
using demand_first = transfer::any_transfer<transfer::no_prefetch, transfer::lookahead>;
using only_demand = transfer::any_transfer<transfer::no_prefetch>;
static_assert(transfer_policy<ahead_first> && transfer_policy<only_demand>);
static_assert(!retaining_transfer<ahead_first> && !early_loading_transfer<ahead_first>);
static_assert(retaining_transfer<transfer::any_transfer<transfer::lookahead, transfer::planned>>);
static_assert(early_loading_transfer<transfer::any_transfer<transfer::lookahead, transfer::planned>>);
static_assert(ahead_first::plans && demand_first::plans && !only_demand::plans);

}  // namespace

TEST_CASE("a chosen lookahead keeps the laws and starts copies as early as lookahead does", "[transfer]")
{
  CHECK(conformance::transfer_policy_laws<ahead_first>() == conformance::transfer_policy_laws<transfer::lookahead>());
}

TEST_CASE("a chosen no_prefetch beside one that plans leaves each move where it is needed", "[transfer]")
{
  CHECK(conformance::transfer_policy_laws<demand_first>() == 0);
  CHECK(conformance::transfer_policy_laws<only_demand>(30) == 0);
}

TEST_CASE("a transfer policy is chosen by name or given with its settings", "[transfer]")
{
  conformance::demand_run run;
  std::uint64_t seed = 1;
  while (!conformance::roll_demand(seed, {}, false, run) || run.demand.size() < 8) ++seed;
  INFO("seed " << seed);
  const auto planned_accesses = [&run](auto policy) {
    std::vector<std::uint32_t> at;
    conformance::moves actions;
    policy.schedule(run.input(true), actions);
    for (const transfer::move& it : actions) at.push_back(it.access_index);
    return at;
  };
  transfer::lookahead narrow;
  narrow.window = 1;
  CHECK(planned_accesses(demand_first{"lookahead"}) == planned_accesses(transfer::lookahead{}));
  CHECK(planned_accesses(demand_first{narrow}) == planned_accesses(narrow));
  CHECK(planned_accesses(ahead_first{"no_prefetch"}) == planned_accesses(demand_first{}));
  CHECK_THROWS_AS(ahead_first{"fast"}, config_error);
}

}  // namespace any_transfer_test
