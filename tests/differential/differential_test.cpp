// SPDX-License-Identifier: Apache-2.0
#include "campaign.hpp"

#include <support/catch.hpp>
#include <support/figures.hpp>
#include <support/sanitized.hpp>

#include <cstdint>
#include <iostream>
#include <string>

namespace differential_test {

/// Random programs on managers, compared call by call with a model of vectors and states. A difference is reduced and
/// printed as a test.

using namespace differential;

namespace {

/// Which part of the operations each backend gets: those with threads cost ten times as much.
struct share {
  world where;
  std::uint64_t percent;
};
constexpr share shares_in_ci[] = {{world::adversarial, 86}, {world::host_arena, 10}, {world::fake_cuda, 4}};
constexpr share shares_at_length[] = {{world::adversarial, 96}, {world::host_arena, 3}, {world::fake_cuda, 1}};

/// @return   how many backends differed
template <class Shares>
std::uint64_t compare_all(const Shares& shares, std::uint64_t first, std::uint64_t operations, tally& sum)
{
  std::uint64_t differing = 0;
  for (const share& it : shares) {
    const auto setting_of = [&](std::uint64_t seed) { return random_setting(seed, it.where); };
    const finding found = hunt(setting_of, first, operations / 100 * it.percent, sum);
    if (found.difference.empty()) continue;
    ++differing;
    std::cout << text_of(found);
  }
  return differing;
}

struct planted {
  const char* what;
  world where;
  bug kind = bug::none;
};
constexpr planted bugs[] = {
    {"a layout lays two tensors over each other", world::adversarial, bug::overlap},
    {"a load takes the size of another chunk", world::adversarial, bug::wrong_size},
    {"an eviction gives up although there is room to make", world::adversarial, bug::gives_up},
    {"an illegal transition is not refused", world::lenient_rules},
    {"a write-back is skipped and its chunk lost", world::adversarial, bug::skipped_write_back},
    {"a pin is not counted and its chunk leaves", world::lost_pin},
};

finding find(const planted& it)
{
  const auto setting_of = [&](std::uint64_t seed) {
    setting wanted = random_setting(seed, it.where);
    wanted.planted = it.kind;
    wanted.faults = 0;
    wanted.keeps_kernel_pins = it.where != world::lost_pin;  // their release would look for a chunk that is not there
    return wanted;
  };
  tally sum;
  return hunt(setting_of, 1, operations_in_ci, sum);
}

std::uint64_t find_planted_bugs()
{
  std::uint64_t found = 0;
  for (const planted& it : bugs) {
    INFO(it.what);
    // not built there
    if (support::sanitized && (it.where == world::lenient_rules || it.where == world::lost_pin)) continue;
    const finding what = find(it);
    std::cout << (what.difference.empty() ? "SURVIVED" : "found") << " after " << what.operations << " operations, "
              << what.calls.size() << " calls suffice: " << it.what << " (" << what.difference << ")\n";
    CHECK_FALSE(what.difference.empty());
    CHECK(what.calls.size() <= 20);
    found += what.difference.empty() ? 0 : 1;
  }
  return found;
}

}  // namespace

TEST_CASE("random operations on every backend equal a model of vectors, and six planted bugs do not", "[differential]")
{
  tally sum;
  const std::uint64_t differing = compare_all(shares_in_ci, 1, operations_in_ci, sum);
  CHECK(differing == 0);
  std::cout << sum.text();
  CHECK(sum.operations >= operations_in_ci / 100 * 99);
  CHECK(sum.illegal * 10 >= sum.operations);
  if (operations_in_ci == 1'000'000) {
    CHECK(sum.missing(1) == "");
    CHECK(sum.repeated > 1'000);
  }
  const std::uint64_t found = find_planted_bugs();
  CHECK(found == (support::sanitized ? std::size(bugs) - 2 : std::size(bugs)));
  if (support::sanitized) return;  // figures are those of all bugs
  support::write_figures("test_differential", "build/bench/bin/test_differential",
                         {{"engine.differential_divergences", differing, "", "==", 0},
                          {"engine.planted_bugs_found", found, "", "==", 6},
                          {"engine.differential_operations", sum.operations, "", ">=", 1'000'000}});
}

TEST_CASE("a hundred million random operations equal the model, and meet every transition and every error",
          "[differential][.slow]")
{
  tally sum;
  CHECK(compare_all(shares_at_length, 1'000'000, 100'000'000, sum) == 0);
  std::cout << sum.text();
  CHECK(sum.missing(100) == "");
  CHECK(sum.operations >= 100'000'000);
}

TEST_CASE("a failing program is cut down to the calls it takes, and printed as a test that fails alike",
          "[differential]")
{
  const finding found = find(bugs[4]);
  REQUIRE_FALSE(found.difference.empty());
  CHECK(found.calls.size() <= 20);
  tally ignored;
  CHECK(kind_of(run_program(found.where, found.calls, ignored)) == kind_of(found.difference));
  for (std::size_t index = 0; index < found.calls.size(); ++index) {  // none of them can be spared
    program fewer = found.calls;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(index));
    CHECK(kind_of(run_program(found.where, fewer, ignored)) != kind_of(found.difference));
  }
  const std::string text = text_of(found);
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("TEST_CASE(") &&
                       Catch::Matchers::ContainsSubstring(".planted = bug::skipped_write_back"));
  std::cout << text;
}

TEST_CASE("what a program asks of nobody is no operation", "[differential]")
{
  tally sum;
  const program calls{{what::release},       {what::touch},       {what::end},
                      {what::end_lease},     {what::update},      {what::release_all},
                      {what::done_with_pin}, {what::begin, 1, 1}, {what::begin, 1, 1},
                      {what::end},           {what::end}};
  CHECK(run_program({.seed = 1, .device_frames = 8, .host_frames = 80}, calls, sum) == "");
  CHECK(sum.rolled == calls.size());
  CHECK(sum.operations == 3);  // two iterations asked for, one of them refused, and an end
  CHECK(sum.calls[static_cast<std::size_t>(what::end)] == 1);
}

TEST_CASE("a gradient of a weight that could not be made again is refused", "[differential]")
{
  // The weight's gradient was dropped while a pin kept the weight from being made again from its master: the next
  // gradient in place read a row that the table of rules does not have.
  tally sum;
  const setting wanted{
      .seed = 99, .device_frames = 5, .host_frames = 80, .tensors = 2, .eviction = 2, .schedule = 1, .in_place = true};
  CHECK(run_program(wanted,
                    {{what::acquire, 2368475426, 3011626527},
                     {what::begin, 1, 1},
                     {what::gradient, 1142343365, 3378836241},
                     {what::release, 1518359734, 2066426525},
                     {what::drop_gradients},
                     {what::end},
                     {what::begin, 1, 1},
                     {what::gradient, 1142343365, 3378836241},
                     {what::release, 1518359734, 2066426525},
                     {what::acquire, 3157146230, 3461498775},
                     {what::drop_gradients},
                     {what::gradient, 1142343365, 3378836241}},
                    sum) == "");
  CHECK(sum.sentences["a gradient in place of a weight that must first be made again"] > 0);
}

TEST_CASE("a weight whose late update makes its master is not written inside that iteration", "[differential]")
{
  // The master was looked for before the update that makes it: the write was lost with the next update.
  tally sum;
  const setting wanted{.seed = 1000574,
                       .frame = 512,
                       .device_frames = 4,
                       .device_rest = 1,
                       .host_frames = 80,
                       .tensors = 1,
                       .eviction = 1,
                       .transfer = 2,
                       .async_compute = true,
                       .in_place = true};
  CHECK(run_program(wanted,
                    {{what::begin, 2, 1},
                     {what::gradient, 1414463711, 304920962},
                     {what::acquire, 4170996197, 719655167},
                     {what::late_step, 4051934060, 2553507840},
                     {what::acquire, 1601442947, 3136352226}},
                    sum) == "");
  CHECK(sum.sentences["a 16-bit weight cannot be written inside an iteration"] == 1);
}

}  // namespace differential_test
