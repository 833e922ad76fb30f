// SPDX-License-Identifier: Apache-2.0
#include <step_bound/reachable_step.hpp>

#include "fastest_step.hpp"

#include <chunkmem/planner/step_bound.hpp>
#include <support/catch.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace free_bound_test {

using namespace chunkmem;
using step_bound::host_task;
using step_bound::step_input;
using support::dice;
using transfer::retention_use;
using transfer::use_kind;

namespace {

struct group {
  std::uint32_t parameters = 1;
  std::uint32_t forward = 0;   // [ns]
  std::uint32_t backward = 0;  // [ns]
  bool is_table = false;       // its backward pass does not read the weight
};

/// A training step of few groups, in nanoseconds and bytes. A group is one weight and one chunk of states.
struct tiny_step {
  std::vector<group> groups;
  std::uint32_t up = 1;          // B in each nanosecond
  std::uint32_t down = 1;        // the same
  std::uint32_t on_host = 1;     // to update one parameter [ns]
  std::uint32_t on_device = 0;   // the same
  std::uint32_t device = 0;      // [B]
  std::uint32_t activation = 0;  // of a group, from its forward to its backward pass [B]
  std::uint32_t working = 0;     // of the last group on its way back [B]
  std::uint32_t host = 0;        // [B]
  bool takes_norm = false;
  bool undoes = false;  // no update waits for the norm

  [[nodiscard]] std::uint32_t parameters() const
  {
    std::uint32_t all = 0;
    for (const group& it : groups) all += it.parameters;
    return all;
  }
  [[nodiscard]] std::uint32_t activations(std::size_t held) const
  {
    return activation * static_cast<std::uint32_t>(held);
  }

  /// Seconds are nanoseconds.
  [[nodiscard]] planner::step_needs needs() const
  {
    planner::step_needs made;
    made.parameters = parameters();
    for (const group& it : groups) {
      made.forward_seconds += it.forward;
      made.backward_seconds += it.backward;
      if (it.is_table) made.unread += it.parameters;
    }
    made.device_between = device;
    made.device_at_turn = static_cast<double>(device) - activations(groups.size());
    made.device_at_peak = made.device_at_turn - working;
    made.host = host;
    constexpr double endless = 1e300;
    made.rates.to_device_bytes_per_second = up;
    made.rates.to_host_bytes_per_second = down;
    made.rates.host_memory_bytes_per_second = endless;
    made.rates.host_updates_per_second = 1.0 / on_host;
    made.rates.device_updates_per_second = on_device == 0 ? endless : 1.0 / on_device;
    made.takes_norm = takes_norm;
    made.undoes = undoes;
    return made;
  }
};

tiny_step roll(dice& random, std::uint32_t groups)
{
  tiny_step made;
  const std::uint32_t scale = std::array{1U, 6U, 40U}[random.below(3)];
  for (std::uint32_t index = 0; index < groups; ++index)
    made.groups.push_back(
        {random.between(1, 2), random.below(scale), random.below(2 * scale), index == 0 && random.one_in(3)});
  made.up = std::array{1U, 2U, 24U}[random.below(3)], made.down = std::array{1U, 2U, 24U}[random.below(3)];
  made.on_host = std::array{1U, 4U, 40U}[random.below(3)];
  made.on_device = random.below(random.one_in(3) ? 12 : 3);
  made.activation = random.below(random.one_in(2) ? 4 : 10), made.working = random.below(4);
  const std::uint32_t least = made.activations(groups) + made.working + 4;  // one weight at least
  const std::uint32_t states = 12 * made.parameters();
  made.device = least + random.below(random.one_in(2) ? 12 : 14 * made.parameters());
  made.host = random.one_in(3) ? states - random.below(states / 2) : states;
  made.takes_norm = random.one_in(2);
  made.undoes = random.one_in(2);
  return made;
}

/// All that is decided of a group. Order and waits are free.
struct decision {
  enum place : std::uint8_t { host, after_gradient, after_all, before_forward };  // of its update

  place updated = host;
  bool stays_at_turn = false;     // its weight
  bool stays_to_update = false;   // its gradient, until the device updates it
  bool stays_to_forward = false;  // the weight that the device made
  bool is_resident = false;       // its states
};

/// A decision, and the time of links, compute and host that it takes [ns].
struct priced {
  decision how;
  std::array<double, 4> busy{};

  void add(const priced& it)
  {
    for (std::size_t index = 0; index < busy.size(); ++index) busy[index] += it.busy[index];
  }
  [[nodiscard]] double busiest() const { return *std::ranges::max_element(busy); }
};

priced price(const tiny_step& step, const group& it, const decision& how)
{
  const double weight = 2.0 * it.parameters;
  double up = how.stays_at_turn || it.is_table ? 0 : weight;
  double down = 0;
  double device = it.forward + it.backward;
  double host = 0;
  if (how.updated == decision::host) {
    up += weight, down += weight, host += it.parameters * step.on_host;
  } else {
    device += it.parameters * step.on_device;
    const double back =
        (how.stays_to_update ? 0 : weight) + (how.stays_to_forward ? 0 : weight) + (how.is_resident ? 0 : 6 * weight);
    up += back;
    down += back + (how.stays_to_forward && !how.stays_at_turn ? weight : 0);  // a dirty one leaves at the turn
  }
  return {how, {up / step.up, down / step.down, device, host}};
}

std::vector<priced> decisions_for(const tiny_step& step, const group& it)
{
  std::vector<priced> all;
  for (const decision::place where :
       {decision::host, decision::after_gradient, decision::after_all, decision::before_forward}) {
    if (where == decision::after_gradient && step.takes_norm && !step.undoes) continue;
    for (std::uint32_t bits = 0; bits < 16; ++bits) {
      const decision how{where, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
      if (where == decision::host && bits > 1) continue;
      if (where == decision::after_gradient && !how.stays_to_update) continue;  // nothing comes in between
      if (where == decision::before_forward && !how.stays_to_forward) continue;
      all.push_back(price(step, it, how));
    }
  }
  return all;
}

/// The iteration that the decisions leave, for fastest_step.
class laid_out {
 public:
  laid_out(const tiny_step& step, const std::vector<decision>& how) : step_{step}, how_{how}
  {
    const std::size_t groups = step.groups.size();
    for (const group& it : step.groups) sizes_.push_back(2 * it.parameters);
    for (const group& it : step.groups) sizes_.push_back(12 * it.parameters);
    for (std::size_t at = 0; at < groups; ++at) {
      if (how[at].updated == decision::before_forward) update(at, at);
      access(step.groups[at].forward, at + 1, 0);
      use(at, use_kind::read, how[at].stays_at_turn);
    }
    for (std::size_t at = groups; at-- > 0;) {
      access(step.groups[at].backward, at + 1, at + 1 == groups ? step.working : 0);
      use(at, step.groups[at].is_table ? use_kind::overwrite : use_kind::update, how[at].stays_to_update);
      if (how[at].updated == decision::after_gradient) update(at, at);
    }
    const auto last_gradient = static_cast<std::uint32_t>(nanoseconds_.size() - 1);
    for (std::size_t at = 0; at < groups; ++at)
      if (how[at].updated == decision::after_all) update(at, 0);
    for (std::size_t at = 0; at < groups; ++at) {
      if (how[at].updated != decision::host) continue;
      access(0, 0, 0);
      const auto now = static_cast<std::uint32_t>(nanoseconds_.size() - 1);
      use(at, use_kind::host_update, false);
      tasks_.push_back({now, now + 1, step.groups[at].parameters * step.on_host,
                        step.takes_norm && !step.undoes ? last_gradient : host_task::none});
    }
  }

  [[nodiscard]] step_input input() const
  {
    return {nanoseconds_, sizes_, uses_, stays_, room_, tasks_, {0, step_.up * 1e9}, {0, step_.down * 1e9}, 0};
  }
  /// The result of find_reachable_step [ns]; infinity: the decisions do not fit.
  [[nodiscard]] double least() const
  {
    try {
      return step_bound::find_reachable_step(input()).nanoseconds;
    } catch (const usage_error&) {
      return std::numeric_limits<double>::infinity();
    }
  }

 private:
  void access(std::uint64_t nanoseconds, std::size_t held, std::uint32_t working)
  {
    nanoseconds_.push_back(nanoseconds);
    room_.push_back(step_.device - step_.activations(held) - working);
  }
  void use(std::size_t chunk, use_kind kind, bool stays)
  {
    const auto now = static_cast<std::uint32_t>(nanoseconds_.size() - 1);
    uses_.push_back({static_cast<std::uint32_t>(chunk), now, now + 1, kind});
    stays_.push_back(stays ? 1 : 0);
  }
  void update(std::size_t at, std::size_t held)
  {
    access(step_.groups[at].parameters * step_.on_device, held, 0);
    use(at, use_kind::update, how_[at].stays_to_forward);
    use(step_.groups.size() + at, use_kind::update, how_[at].is_resident);
  }

  const tiny_step& step_;
  const std::vector<decision>& how_;
  std::vector<std::uint64_t> nanoseconds_;
  std::vector<std::uint64_t> sizes_;
  std::vector<retention_use> uses_;
  std::vector<std::uint8_t> stays_;
  std::vector<std::uint64_t> room_;
  std::vector<host_task> tasks_;
};

/// Bytes that decisions take for sure.
struct taken_room {
  std::uint32_t host = 0;
  std::uint32_t at_turn = 0;
  std::uint32_t between = 0;  // at the last gradient

  void add(const group& it, const decision& how)
  {
    (how.is_resident ? at_turn : host) += 12 * it.parameters;
    if (how.is_resident) between += 12 * it.parameters;
    if (how.stays_at_turn) at_turn += 2 * it.parameters;
    if (how.updated > decision::after_gradient && how.stays_to_update) between += 2 * it.parameters;
  }
  [[nodiscard]] bool fits(const tiny_step& step) const
  {
    return host <= step.host && between <= step.device && at_turn + step.activations(step.groups.size()) <= step.device;
  }
};

/// Decisions for all groups that may fit, the least busy ones first.
std::vector<std::pair<double, std::vector<decision>>> decisions_for(const tiny_step& step)
{
  std::vector<std::pair<double, std::vector<decision>>> all;
  std::vector<decision> how(step.groups.size());
  const auto decide = [&](auto& again, std::size_t at, const priced& before, const taken_room& room) -> void {
    if (!room.fits(step)) return;
    if (at == step.groups.size()) return all.push_back({before.busiest(), how});
    for (const priced& it : decisions_for(step, step.groups[at])) {
      how[at] = it.how;
      priced now = before;
      now.add(it);
      taken_room then = room;
      then.add(step.groups[at], it.how);
      again(again, at + 1, now, then);
    }
  };
  decide(decide, 0, {}, {});
  std::ranges::sort(all, {}, [](const auto& it) { return it.first; });
  return all;
}

/// The least time of a step that a search finds: over all decisions, all orders and all waits. 0: none fits.
/// @param most   decisions that are tried; fewer are needed as long as they can be the best
double fastest(const tiny_step& step, std::uint32_t most, std::size_t states)
{
  double best = 0;
  std::uint32_t looked_at = 0;
  for (const auto& [busy, how] : decisions_for(step)) {
    if (most == 0 || ++looked_at > 100 * most || (best > 0 && busy >= best)) break;
    const laid_out trace{step, how};
    if (trace.least() >= (best > 0 ? best : std::numeric_limits<double>::max())) continue;
    --most;
    const double found = step_bound_test::fastest_step{trace.input()}(3, states);
    if (found > 0 && (best == 0 || found < best)) best = found;
  }
  return best;
}

/// Compares the bound with the search on random steps, and prints how far it is below.
void compare(std::uint32_t groups, std::uint32_t wanted, std::uint32_t tried, std::size_t states)
{
  std::vector<double> ratios;
  std::uint64_t seed = 1;
  for (; ratios.size() < wanted; ++seed) {
    dice random{seed};
    const tiny_step step = roll(random, groups);
    const double found = fastest(step, tried, states);
    if (found == 0) continue;
    const planner::step_bound bound = planner::step_bound_of(step.needs());
    INFO("groups " << groups << ", seed " << seed);
    REQUIRE(bound.fits);
    REQUIRE(bound.seconds <= found);
    ratios.push_back(bound.seconds / found);
  }
  std::ranges::sort(ratios);
  const auto reached = std::ranges::count_if(ratios, [](double it) { return it > 1 - 1e-5; });
  WARN(groups << " groups, " << ratios.size() << " steps of " << seed - 1 << ": bound over search, " << reached
              << " reached, median " << ratios[ratios.size() / 2] << ", worst " << ratios.front());
}

}  // namespace

TEST_CASE("no decisions and no order make a step shorter than the free bound", "[step_bound]")
{
  compare(2, 200, 10, 10'000);
  compare(3, 30, 4, 20'000);
}

TEST_CASE("a table that the backward pass does not read comes once", "[step_bound]")
{
  tiny_step step;
  step.groups = {{8, 0, 0, true}, {1, 0, 0, false}};
  step.down = 24, step.on_device = 1'000;
  step.device = 34, step.activation = 16;  // at the turn the table has no room
  step.host = 12 * step.parameters();
  const double found = fastest(step, 100, 20'000);
  planner::step_needs needs = step.needs();
  CHECK(planner::step_bound_of(needs).seconds <= found);
  needs.unread = 0;
  CHECK(planner::step_bound_of(needs).seconds > found);
}

TEST_CASE("the free bound of many more steps", "[step_bound][.slow]")
{
  compare(2, 4'000, 100, 20'000);
  compare(3, 200, 20, 50'000);
  compare(4, 10, 3, 50'000);
}

}  // namespace free_bound_test
