// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/retention_solution.hpp>

#include <support/catch.hpp>
#include <support/oracles/fewest_moved_bytes.hpp>
#include <support/oracles/played_retention.hpp>
#include <support/oracles/retention_trace.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <optional>
#include <vector>

namespace device_only_search_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::plan_retention;
using transfer::retention_problem;
using transfer::retention_solution;
using transfer::use_kind;

namespace {

std::uint64_t all_bytes(const retention_trace& what)
{
  return std::accumulate(what.chunk_bytes.begin(), what.chunk_bytes.end(), std::uint64_t{0});
}

/// A small iteration with a device that has some room more than it needs, so that some chunks may stay for ever.
retention_trace roll(std::uint64_t seed)
{
  support::dice random{seed};
  retention_trace what = support::roll_small_trace(random, {true, seed % 2 == 0, seed % 3 == 0});
  const std::uint32_t more = random.below(4);
  for (std::uint64_t& room : what.device_bytes) room += more;
  return what;
}

std::optional<retention_solution> plan_of(const transfer::retention_input& input)
{
  try {
    return plan_retention(input);
  } catch (const out_of_memory&) {
    return std::nullopt;
  }
}

/// The numbers of a plan are right: it moves those bytes, and device-only chunks neither leave nor are used on the
/// host.
void check(const transfer::retention_input& input, const retention_solution& plan)
{
  const support::played_retention played{input, plan.retained};
  CHECK(played.fits());
  CHECK(played.moved_bytes() == plan.moved_bytes);
  CHECK(plan.certified_bytes <= static_cast<double>(plan.moved_bytes));
  std::uint64_t host_copies = 0;
  for (std::size_t chunk = 0; chunk < input.chunk_bytes.size(); ++chunk)
    host_copies += !plan.device_only.empty() && plan.device_only[chunk] != 0 ? 0 : input.chunk_bytes[chunk];
  CHECK(host_copies <= *std::ranges::min_element(input.host_bytes));
  if (plan.device_only.empty()) return;
  for (std::size_t index = 0; index < input.uses.size(); ++index) {
    if (plan.device_only[input.uses[index].chunk] == 0) continue;
    CHECK((transfer::is_on_device(input.uses[index].kind) || input.uses[index].kind == use_kind::drop));
    CHECK(plan.retained[index] == 1);
  }
  const retention_problem problem{input};
  transfer::row_prices price{problem.room().size()};
  price.set(plan.prices);
  CHECK(transfer::certified_bytes(problem, price) == plan.certified_bytes);
}

}  // namespace

TEST_CASE("where the host is short plans equal brute force, and are there whenever it has one", "[transfer]")
{
  int possible = 0;
  int impossible = 0;
  int equal = 0;
  int dearer = 0;  // than with room for every host copy
  double worst = 1;
  for (std::uint64_t seed = 1; seed <= 1'500; ++seed) {
    const retention_trace what = roll(seed);
    support::dice random{seed + 10'000};
    transfer::retention_input input = what.input();
    const std::vector<std::uint64_t> host(what.device_bytes.size(), all_bytes(what) - random.between(1, 4));
    input.host_bytes = host;
    const std::uint64_t best = support::fewest_moved_bytes{input}();
    const std::optional<retention_solution> plan = plan_of(input);
    if (plan.has_value() != (best != UINT64_MAX))
      FAIL("seed " << seed << ": only one of the two has a plan: " << plan.has_value());
    (plan ? possible : impossible) += 1;
    if (!plan) continue;
    CAPTURE(seed);
    check(input, *plan);
    if (plan->moved_bytes < best) FAIL("seed " << seed << ": " << plan->moved_bytes << " B for " << best);
    if (plan->is_optimal && plan->moved_bytes != best) FAIL("seed " << seed << ": no optimum");
    equal += plan->moved_bytes == best ? 1 : 0;
    worst =
        std::max(worst, static_cast<double>(plan->moved_bytes) / static_cast<double>(std::max<std::uint64_t>(best, 1)));
    dearer += best > support::fewest_moved_bytes{what.input()}() ? 1 : 0;
  }
  std::printf("a short host: %d of %d plans equal brute force, at worst %.3f of it; %d are impossible\n", equal,
              possible, worst, impossible);
  CHECK(possible > 100);
  CHECK(impossible > 50);
  CHECK(dearer > 15);
  CHECK(100 * equal >= 95 * possible);
}

TEST_CASE("a host with room for every host copy changes nothing", "[transfer]")
{
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const retention_trace what = roll(seed);
    transfer::retention_input input = what.input();
    const std::vector<std::uint64_t> host(what.device_bytes.size(), all_bytes(what));
    input.host_bytes = host;
    const retention_solution plan = plan_retention(input);
    const retention_solution same = plan_retention(retention_problem{what.input()});
    CHECK(plan.retained == same.retained);
    CHECK(plan.prices == same.prices);
    CHECK(plan.device_only.empty());
  }
}

TEST_CASE("a GPT whose states do not all fit on the host is near its certificate", "[transfer]")
{
  for (const double share : {0.4, 0.7})
    for (const std::uint32_t on_device : {1U, 2U}) {
      const retention_trace what = support::gpt_retention_trace({8, 2, 16, on_device, 2}, share);
      transfer::retention_input input = what.input();
      const std::vector<std::uint64_t> host(what.device_bytes.size(), all_bytes(what) * 9 / 10);
      input.host_bytes = host;
      const retention_solution plan = plan_retention(input, {.climbs = 100, .rebuilds = 500});
      check(input, plan);
      CHECK(static_cast<double>(plan.moved_bytes) <= 1.02 * plan.certified_bytes + 4 * 2.0 * (1 << 20));
      CHECK(plan.moved_bytes >= plan_retention(retention_problem{what.input()}).moved_bytes);
    }
}

TEST_CASE("a host that is too small for what needs it is refused", "[transfer]")
{
  retention_trace what{{6, 5}, {}, {20, 20, 20}, true};
  what.use(0, 0, use_kind::host_update);
  what.use(1, 1, use_kind::update);
  transfer::retention_input input = what.input();
  const auto with_host = [&](std::uint64_t host) {
    const std::vector<std::uint64_t> room{20, host, 20};
    input.host_bytes = room;
    return plan_of(input);
  };
  REQUIRE(with_host(11).has_value());
  CHECK(with_host(11)->device_only.empty());
  REQUIRE(with_host(6).has_value());
  CHECK(with_host(6)->device_only == std::vector<std::uint8_t>{0, 1});
  CHECK_FALSE(with_host(5).has_value());
  what.device_bytes[2] = 4;  // chunk 1 cannot stay
  input = what.input();
  CHECK_FALSE(with_host(10).has_value());
  CHECK(with_host(11).has_value());
}

}  // namespace device_only_search_test
