// SPDX-License-Identifier: Apache-2.0
#include <conformance/transfer_policy.hpp>

#include "verdict.hpp"

#include <chunkmem/transfer/transfer_policy.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace wrong_transfers_test {

using namespace chunkmem;
using transfer::move;
using transfer::move_kind;
using transfer::schedule_input;
using actions_of = std::vector<move>;

namespace {

/// Right: demand paging, written down. Each policy below changes it by one mistake.
struct on_demand {
  using policy_kind = transfer_kind;
  static constexpr std::string_view name = "on_demand";
  static constexpr bool plans = true;
  void schedule(const schedule_input& input, actions_of& actions)
  {
    actions.clear();
    for (const move& each : input.demand)
      if (each.kind != move_kind::vacate) actions.push_back(each);
  }
};

void sort_by_access_index(actions_of& actions)
{
  std::sort(actions.begin(), actions.end(), [](const move& left, const move& right) {
    return std::pair{left.access_index, left.order} < std::pair{right.access_index, right.order};
  });
}

/// An eviction needs no order, so its author thinks: a load into the frames evicts.
struct leaves_evictions_out : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    on_demand::schedule(input, actions);
    std::erase_if(actions, [](const move& each) { return each.kind == move_kind::evict; });
  }
};

/// Passes the whole demand log on, with what only tells a scheduler that frames became free.
struct passes_vacates_on : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    actions.assign(input.demand.begin(), input.demand.end());
  }
};

/// Loads a chunk ahead and again where it is used.
struct loads_twice : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    actions.clear();
    for (const move& each : input.demand) {
      if (each.kind != move_kind::vacate) actions.push_back(each);
      if (each.kind == move_kind::load) actions.push_back(each);
    }
  }
};

/// Takes the frame after the one that demand paging chose.
struct loads_one_frame_on : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    on_demand::schedule(input, actions);
    for (move& each : actions) each.place += each.kind == move_kind::load ? 1 : 0;
  }
};

/// Gives frames to a chunk that was to be loaded, and copies nothing.
struct claims_for_loads : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    on_demand::schedule(input, actions);
    for (move& each : actions)
      if (each.kind == move_kind::load) each.kind = move_kind::claim;
  }
};

/// Counts accesses from 1.
struct is_late_by_one : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    on_demand::schedule(input, actions);
    for (move& each : actions) ++each.access_index;
  }
};

/// Starts everything at the beginning, before frames were left.
struct starts_all_at_once : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    on_demand::schedule(input, actions);
    if (!input.may_move_early) return;
    for (move& each : actions) each.access_index = 0;
  }
};

/// Moves loads ahead and leaves the evictions that make room for them where they were.
struct loads_before_room : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    on_demand::schedule(input, actions);
    if (!input.may_move_early) return;
    for (move& each : actions)
      if (each.kind == move_kind::load && each.access_index > 0) --each.access_index;
    sort_by_access_index(actions);
  }
};

/// Sorts by access index, and inside an access by kind: copies to the device before what makes room for them.
struct sorts_loads_first : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    on_demand::schedule(input, actions);
    std::sort(actions.begin(), actions.end(), [](const move& left, const move& right) {
      return std::tuple{left.access_index, left.kind != move_kind::load, left.order} <
             std::tuple{right.access_index, right.kind != move_kind::load, right.order};
    });
  }
};

/// Evicts as soon as the frames are wanted soon, also while the chunk is still in use.
struct evicts_what_is_in_use : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    on_demand::schedule(input, actions);
    if (!input.may_move_early) return;
    for (move& each : actions)
      if (each.kind == move_kind::evict) each.access_index -= std::min(each.access_index, 2U);
    sort_by_access_index(actions);
  }
};

/// Gives the moves of a chunk one after the other.
struct sorts_by_chunk : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    on_demand::schedule(input, actions);
    std::sort(actions.begin(), actions.end(), [](const move& left, const move& right) {
      return std::tuple{left.chunk, left.access_index, left.order} <
             std::tuple{right.chunk, right.access_index, right.order};
    });
  }
};

/// Looks ahead without asking whether moves may start early.
struct is_early_where_forbidden : transfer::lookahead {
  void schedule(schedule_input input, actions_of& actions)
  {
    input.may_move_early = true;
    lookahead::schedule(input, actions);
  }
};

/// Adds to what the last plan left in `actions`.
struct forgets_to_clear : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    for (const move& each : input.demand)
      if (each.kind != move_kind::vacate) actions.push_back(each);
  }
};

/// Takes a record with as many moves for the record that it knows.
struct keeps_an_old_plan : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    if (input.demand.size() != moves_) on_demand::schedule(input, known_);
    moves_ = input.demand.size();
    actions = known_;
  }
  std::size_t moves_ = SIZE_MAX;
  actions_of known_;
};

/// Says that it plans nothing, and does.
struct plans_in_secret : on_demand {
  static constexpr bool plans = false;
};

/// Makes its notes anew for each plan.
struct allocates_for_each_plan : on_demand {
  void schedule(const schedule_input& input, actions_of& actions)
  {
    const std::vector<std::uint32_t> ready(input.chunks + 1, 0);
    on_demand::schedule(input, actions);
    for (move& each : actions) each.access_index += ready[0];
  }
};

template <class Policy>
laws::verdict judge(std::string_view law)
{
  return {laws::name_of<Policy>(), law, conformance::mistake_in_transfer_policy<Policy>({}, laws::allocations_so_far)};
}

}  // namespace

TEST_CASE("the laws of transfer hold for demand paging, which allocates nothing for sizes that it knows",
          "[laws][transfer]")
{
  CHECK(conformance::transfer_policy_laws<on_demand>(60, {}, laws::allocations_so_far) == 0);
}

}  // namespace wrong_transfers_test

const laws::verdicts& laws::wrong_transfers()
{
  using namespace wrong_transfers_test;
  static const verdicts all{
      judge<leaves_evictions_out>("a move is missing or was made twice"),
      judge<passes_vacates_on>("a move is missing or was made twice"),
      judge<loads_twice>("a move is missing or was made twice"),
      judge<loads_one_frame_on>("a move is missing or was made twice"),
      judge<claims_for_loads>("a move is missing or was made twice"),
      judge<is_late_by_one>("a move comes later than it is needed"),
      judge<starts_all_at_once>("a move comes before what it depends on"),
      judge<loads_before_room>("a move comes before what it depends on"),
      judge<sorts_loads_first>("a move comes before what it depends on"),
      judge<evicts_what_is_in_use>("a move comes before what it depends on"),
      judge<sorts_by_chunk>("actions are not in the order of access indices"),
      judge<is_early_where_forbidden>("a move was made early where that is forbidden"),
      judge<forgets_to_clear>("two plans for one input"),
      judge<keeps_an_old_plan>("two plans for one input"),
      judge<plans_in_secret>("a policy that plans nothing gave actions"),
      judge<allocates_for_each_plan>("schedule allocated for sizes that it had seen"),
  };
  return all;
}
