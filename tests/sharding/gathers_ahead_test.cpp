// SPDX-License-Identifier: Apache-2.0
// Units are gathered anew during a step: every rank reads right values or gets an error, whatever one rank does.
#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/counting_ranks.hpp>
#include <support/oracles/dice.hpp>
#include <support/rank_threads.hpp>

#include <algorithm>
#include <cstdint>
#include <latch>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace gathers_ahead_test {

using namespace chunkmem;
using support::counting_ranks;

constexpr std::uint32_t ranks = 2;
constexpr bytes frame{ranks * 16384};
constexpr std::uint32_t weights_of_model = 5;
constexpr std::uint32_t steps = 5;
constexpr std::uint64_t no_hurry = 60'000'000'000;  // nanoseconds; a hang fails by this

struct scenario {
  sharding::sharding_options division;
  std::uint32_t frames = 12;  ///< of the device
  bool clips = false;
  bool skips = true;  ///< a step of gradients that are not finite; else nothing decides a step without a norm
};

/// Two groups of the same ranks, gathers and sums.
struct two_groups {
  collective::thread_group gathers{ranks, {.deadline = no_hurry}};
  collective::thread_group sums{ranks, {.deadline = no_hurry}};
};

/// The order in which an iteration reads its weights.
using reading = std::vector<std::uint32_t>;
[[nodiscard]] inline reading usual_order()
{
  reading order;
  for (std::uint32_t index = 0; index < weights_of_model; ++index) order.push_back(index);
  return order;
}

/// One rank, whose sums have a group of their own or not.
template <bool sums_are_apart>
struct trainer {
  using ranks_type = std::conditional_t<sums_are_apart, sharding::sums_apart<counting_ranks>, counting_ranks>;

  trainer(two_groups& groups, std::uint32_t rank, const scenario& it)
      : what{it},
        memory{{.device_capacity = frame * it.frames, .host_capacity = frame * 40}},
        gathers{groups.gathers, rank_id{rank}},
        sums{groups.sums, rank_id{rank}},
        m{memory, over(), {.chunk_bytes = frame}, it.division}
  {
    m.use(adam);
    for (std::uint32_t index = 0; index < weights_of_model; ++index)
      weights.push_back(m.template add<float>({7000}, role::parameter));
    for (const auto each : weights) std::ranges::fill(m.acquire(each, access::write).span(), 1.0F);
  }
  [[nodiscard]] ranks_type& over()
  {
    if constexpr (sums_are_apart)
      return both;
    else
      return counted;
  }
  /// Calls `work` until it does not fail for a device, at most four times.
  template <class Work>
  std::invoke_result_t<Work> again(Work work)
  {
    for (;;) try {
        return work();
      } catch (const device_error&) {
        if (++failures > 3) throw;
      }
  }
  /// @param seen   values of each weight at the begin of each step   @param order   of reads of the forward pass
  void step(std::vector<float>& seen, const reading& order)
  {
    const auto scope = again([&] { return m.iteration(); });
    std::vector<float> found(weights_of_model, -1);
    for (const std::uint32_t index : order)
      again([&] { found[index] = m.acquire(weights[index], access::read).span()[6999]; });
    seen.insert(seen.end(), found.begin(), found.end());
    for (std::uint32_t index = weights_of_model; index-- > 0;) {
      again([&] {
        const auto gradient = m.gradient(weights[index]);
        const auto own = static_cast<float>(index_of(counted.rank()) + 1);
        std::ranges::fill(gradient.span(), own * static_cast<float>(index + 1));
      });
      again([&] { m.gradient_done(weights[index]); });
    }
    again([&] {
      (void)m.step(adam,
                   {.learning_rate = 0.125F, .clip = {.norm = what.clips ? 1.0F : 0.0F}, .skip_nonfinite = what.skips});
    });
  }

  scenario what;
  backend::host_arena memory;
  collective::local_threads gathers, sums;
  counting_ranks counted{gathers}, counted_sums{sums};
  sharding::sums_apart<counting_ranks> both{counted, counted_sums};
  sharded_model<backend::host_arena, ranks_type> m;
  optimizer::adam adam{{}};
  std::vector<tensor<float>> weights;
  std::uint32_t failures = 0;
};

/// The end of a rank.
struct outcome {
  std::vector<float> seen;
  std::string told;
  bool hung = false;
  std::uint64_t calls = 0;  ///< of the communicators behind the first step
};

/// Trains on each rank. `prepare(trainer, rank)` is called behind the first step, `give_up(trainer, rank)` at the end.
/// @param order   `order(rank, step)`: the reads of a forward pass
template <bool sums_are_apart, class Prepare, class Order, class GiveUp>
std::vector<outcome> train(const scenario& it, Prepare prepare, Order order, GiveUp give_up)
{
  std::vector<outcome> found(ranks);
  two_groups groups;
  support::on_ranks(ranks, [&](std::uint32_t rank) {
    outcome& mine = found[rank];
    trainer<sums_are_apart> here{groups, rank, it};
    try {
      here.step(mine.seen, usual_order());
      const std::uint64_t before = here.counted.calls + here.counted_sums.calls;
      prepare(here, rank);
      for (std::uint32_t step = 1; step < steps; ++step) here.step(mine.seen, order(rank, step));
      mine.calls = here.counted.calls + here.counted_sums.calls - before;
      here.m.settle();
      for (const auto each : here.weights)
        mine.seen.push_back(here.again([&] { return here.m.acquire(each, access::read).span()[6999]; }));
    } catch (const comm_error& told) {
      mine.hung = told.fault().failure == comm_failure::deadline;
      mine.told = told.what();
    } catch (const std::exception& told) {
      mine.told = told.what();
    }
    give_up(here, rank);
  });
  return found;
}
constexpr auto as_it_is = [](auto&, std::uint32_t) {};
constexpr auto in_the_usual_order = [](std::uint32_t, std::uint32_t) { return usual_order(); };
std::vector<float> undisturbed(const scenario& it)
{
  const std::vector<outcome> found = train<true>(it, as_it_is, in_the_usual_order, as_it_is);
  REQUIRE(found[0].told == "");
  REQUIRE(found[1].told == "");
  REQUIRE(found[0].seen == found[1].seen);
  return found[0].seen;
}
/// All values that were read are right. A value that was not read is -1, or missing at the end.
[[nodiscard]] bool is_right(const std::vector<float>& seen, const std::vector<float>& wanted)
{
  for (std::size_t index = 0; index < seen.size(); ++index)
    if (seen[index] >= 0 && !(seen[index] <= wanted[index] && seen[index] >= wanted[index])) return false;
  return true;
}

/// Divisions whose units are made new while a step goes on.
const std::vector<sharding::sharding_options> divisions{{.divided = sharding::zero_1},
                                                        {.divided = sharding::zero_2},
                                                        {.divided = sharding::zero_3},
                                                        {.divided = sharding::zero_3, .gathers_ahead = 1},
                                                        {.divided = sharding::zero_3, .gathers_ahead = 3},
                                                        {.divided = sharding::zero_3, .gathers_ahead = 9}};

std::string text_of(std::size_t division, const scenario& it)
{
  return "division " + std::to_string(division) + ", " + std::to_string(it.frames) + " frames" +
         (it.clips ? ", a norm" : "");
}

struct gone : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST_CASE("a rank that reads weights in another order is right or tells all ranks, wherever units are made new",
          "[sharding]")
{
  std::uint32_t right = 0;
  std::uint32_t told = 0;
  for (std::size_t division = 0; division < divisions.size(); ++division)
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      support::dice dice{seed};
      const scenario it{.division = divisions[division], .frames = dice.between(7, 14), .clips = dice.one_in(2)};
      CAPTURE(seed, text_of(division, it));
      const std::uint32_t when = dice.between(1, steps - 1);
      reading other;
      for (std::uint32_t left = dice.between(0, 2 * weights_of_model); left > 0; --left)
        other.push_back(dice.below(weights_of_model));
      const std::vector<float> wanted = undisturbed(it);
      const std::vector<outcome> found = train<false>(
          it, as_it_is,
          [&](std::uint32_t rank, std::uint32_t step) { return rank == 1 && step == when ? other : usual_order(); },
          as_it_is);
      for (const outcome& each : found) {
        CHECK(is_right(each.seen, wanted));
        CHECK(!each.hung);
      }
      CAPTURE(found[0].told, found[1].told);
      CHECK(found[0].told.empty() == found[1].told.empty());
      if (!divisions[division].divided.parameters) CHECK(found[0].told == "");
      (found[0].told.empty() ? right : told) += 1;
    }
  CHECK(right > 20);
  CHECK(told > 10);
}

TEST_CASE("every division has the same bits with any number of units gathered ahead", "[sharding]")
{
  for (const bool clips : {false, true}) {
    const std::vector<float> wanted = undisturbed({.division = divisions[0], .frames = 14, .clips = clips});
    for (std::uint32_t at = 0; at < steps * weights_of_model; ++at) CHECK(wanted[at + weights_of_model] < wanted[at]);
    for (std::size_t division = 1; division < divisions.size(); ++division)
      for (const std::uint32_t frames : {7U, 9U, 14U}) {
        const scenario it{.division = divisions[division], .frames = frames, .clips = clips};
        CAPTURE(text_of(division, it));
        CHECK(undisturbed(it) == wanted);
      }
  }
}

TEST_CASE("units that are kept whole are gathered in the order of the forward pass", "[sharding]")
{
  for (const bool decides : {false, true})
    for (std::size_t division = 0; division < 2; ++division) {
      const scenario it{.division = divisions[division], .clips = decides, .skips = decides};
      CAPTURE(text_of(division, it));
      std::vector<std::uint32_t> filled, gathered;
      const std::vector<outcome> found = train<true>(
          it,
          [&](auto& here, std::uint32_t rank) {
            if (rank == 0) filled = here.counted.gathered;
          },
          in_the_usual_order,
          [&](auto& here, std::uint32_t rank) {
            if (rank == 0) gathered = here.counted.gathered;
          });
      REQUIRE(found[0].told == "");
      REQUIRE(gathered.size() == filled.size() + (steps - 1) * weights_of_model);
      for (std::size_t step = filled.size(); step < gathered.size(); step += weights_of_model)
        for (std::uint32_t at = 1; at < weights_of_model; ++at) CHECK(gathered[step + at - 1] < gathered[step + at]);
    }
}

TEST_CASE("units that are gathered ahead are as many as asked for or all, and runs between them differ by one at most",
          "[sharding]")
{
  const auto check = [](std::uint32_t units, std::uint32_t ahead) {
    CAPTURE(units, ahead);
    std::uint32_t found = 0, first = 0, shortest = units, longest = 0;
    for (std::uint32_t unit = 0; unit < units; ++unit) {
      if (!sharding::is_gathered_ahead(unit, units, ahead)) continue;
      ++found;
      shortest = std::min(shortest, unit + 1 - first);
      longest = std::max(longest, unit + 1 - first);
      first = unit + 1;
    }
    CHECK(found == std::min(units, ahead));
    if (ahead == 0) return;
    CHECK(first == units);  // the last unit is one of them
    CHECK(longest - shortest <= 1);
  };
  for (std::uint32_t units = 1; units <= 20; ++units)
    for (const std::uint32_t ahead : {0U, 1U, 2U, 3U, 7U, 19U, 20U, 21U, UINT32_MAX}) check(units, ahead);
  CHECK(sharding::is_gathered_ahead(UINT32_MAX - 1, UINT32_MAX, UINT32_MAX));
  CHECK(!sharding::is_gathered_ahead(UINT32_MAX - 2, UINT32_MAX, 1));
}

TEST_CASE("the units that a step gathers for the next one are spread over the model", "[sharding]")
{
  const std::vector<std::vector<std::uint32_t>> of_a_step{{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {0, 1, 3, 4, 2},
                                                          {0, 2, 4, 3, 1}, {0, 4, 3, 2, 1}, {4, 3, 2, 1, 0}};
  for (std::uint32_t ahead = 0; ahead < of_a_step.size(); ++ahead) {
    const scenario it{.division = {.gathers_ahead = ahead}, .frames = 40, .skips = false};
    CAPTURE(ahead);
    std::vector<std::uint32_t> first, gathered;
    const std::vector<outcome> found = train<true>(
        it,
        [&](auto& here, std::uint32_t rank) {
          if (rank == 0) first = here.counted.gathered;
        },
        in_the_usual_order,
        [&](auto& here, std::uint32_t rank) {
          if (rank == 0) gathered = here.counted.gathered;
        });
    REQUIRE(found[0].told == "");
    for (std::size_t at = first.size(); at + weights_of_model <= gathered.size(); at += weights_of_model)
      CHECK(std::vector<std::uint32_t>(gathered.begin() + static_cast<std::ptrdiff_t>(at),
                                       gathered.begin() + static_cast<std::ptrdiff_t>(at + weights_of_model)) ==
            of_a_step[ahead]);
  }
}

TEST_CASE(
    "a collective that fails on one rank and is asked for again leaves no other bits, wherever units are made new",
    "[sharding]")
{
  for (std::size_t division = 0; division < divisions.size(); ++division) {
    const scenario it{
        .division = divisions[division], .frames = division % 2 == 0 ? 7U : 12U, .clips = division % 3 == 0};
    CAPTURE(text_of(division, it));
    const std::vector<float> wanted = undisturbed(it);
    std::uint64_t calls = 1;
    for (std::uint64_t fatal = 0; fatal < calls; ++fatal) {
      CAPTURE(fatal);
      std::uint64_t count = 0;
      std::uint32_t failures = 0;
      const std::vector<outcome> found = train<true>(
          it,
          [&](auto& here, std::uint32_t rank) {
            if (rank != 1) return;
            here.counted.before = here.counted_sums.before = [&](std::uint64_t) {
              if (count++ == fatal) throw device_error{"a collective cannot be begun"};
            };
          },
          in_the_usual_order,
          [&](auto& here, std::uint32_t rank) {
            if (rank == 1) failures = here.failures;
          });
      CHECK(found[0].told == "");
      CHECK(found[1].told == "");
      CHECK(found[0].seen == wanted);
      CHECK(found[1].seen == wanted);
      CHECK(failures == 1);
      calls = found[0].calls / 2;
    }
    CHECK(calls > 10);
  }
}

TEST_CASE("a rank that dies or revokes at any collective is heard of by the others, wherever units are made new",
          "[sharding]")
{
  for (std::size_t division = 0; division < divisions.size(); ++division) {
    const scenario it{.division = divisions[division]};
    const std::vector<outcome> whole = train<true>(it, as_it_is, in_the_usual_order, as_it_is);
    REQUIRE(whole[1].calls > 20);
    for (std::uint64_t fatal = 0; fatal < whole[1].calls / 2; ++fatal) {
      const bool revokes = (fatal + division) % 2 == 0;
      CAPTURE(text_of(division, it), revokes, fatal);
      std::uint64_t count = 0;
      std::latch heard{1};
      const std::vector<outcome> found = train<true>(
          it,
          [&](auto& here, std::uint32_t rank) {
            if (rank != 1) return;
            here.counted.before = here.counted_sums.before = [&](std::uint64_t) {
              if (count++ == fatal) throw gone{"gone"};
            };
          },
          in_the_usual_order,
          [&](auto& here, std::uint32_t rank) {
            if (rank == 0) return heard.count_down();
            if (!revokes) return;
            here.m.revoke();
            heard.wait();  // it lives on
          });
      CHECK(found[1].told == "gone");
      CHECK(found[0].told != "");
      CHECK(!found[0].hung);
      CHECK(is_right(found[0].seen, whole[0].seen));
    }
  }
}

}  // namespace gathers_ahead_test
