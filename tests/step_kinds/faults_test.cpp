// SPDX-License-Identifier: Apache-2.0
// Steps of every kind where one allocation, copy or collective fails, or where a rank is killed: the call is made
// again, or the training goes on from its checkpoint, with the same bits.
#include "kind.hpp"

#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace faults_test {

using namespace step_kinds;
using point = support::point<kind::axes>;

namespace {

constexpr std::uint32_t saved_step = 2;
constexpr std::uint64_t patience = 20'000'000'000;  // nanoseconds

/// Kinds of steps that have every pair of values.
const std::vector<kind>& pairs()
{
  static const std::vector<kind> all = [] {
    std::vector<kind> made;
    for (const point& row : support::covering<2>(extents, support::legal_points(extents, is_legal)))
      made.push_back(kind{row});
    return made;
  }();
  return all;
}

/// All of some calls, or every so many of them, begun at a place that depends on the row.
template <class Work>
void for_each_call(std::uint64_t calls, bool all, std::size_t row, Work work)
{
  const std::uint64_t stride = all || calls == 0 ? 1 : calls;
  for (std::uint64_t call = all || calls == 0 ? 0 : row * 7'919 % calls; call < calls; call += stride) work(call);
}

void check(const std::string& complaint, const kind& how, const char* what, std::uint64_t number, std::uint64_t of)
{
  INFO(how.name() << ", " << what << ' ' << number << " of " << of);
  CHECK(complaint == "");
}

/// @param all   each call fails once; else one of each row
void fail_calls(bool all)
{
  std::uint64_t failed = 0;
  for (std::size_t row = 0; row < pairs().size(); ++row) {
    const kind& how = pairs()[row];
    folders_type nothing;
    const outcome whole = train({.how = how}, {}, nothing);
    check(whole.complaint, how, "without a fault", 0, 0);
    for_each_call(whole.allocations, all, row, [&](std::uint64_t number) {
      check(train({.how = how, .faults = {.allocation = number}, .deadline = patience}, {}, nothing).complaint, how,
            "allocation", number, whole.allocations);
      ++failed;
    });
    for_each_call(whole.copies, all, row, [&](std::uint64_t number) {
      check(train({.how = how, .faults = {.copy = number}, .deadline = patience}, {}, nothing).complaint, how, "copy",
            number, whole.copies);
      ++failed;
    });
  }
  CHECK(failed >= 2 * pairs().size());
}

/// A rank dies at a call of its communicators after the checkpoint. A GPU notices by the deadline, which a slow machine
/// may miss earlier: then once more, with a longer one.
outcome die_at(const kind& how, std::uint64_t call, folders_type& saved)
{
  const bool waits = how.place_of_bytes() == memory::fake_cuda;
  outcome found;
  for (std::uint64_t deadline = waits ? 500'000'000 : 60'000'000'000; !found.has_died && deadline <= 60'000'000'000;
       deadline *= 4) {
    saved.clear();
    found = train({.how = how, .saved_at = saved_step, .faults = {.call = call}, .deadline = deadline}, {}, saved);
  }
  return found;
}

/// The training that died goes on, by steps of `how`.
std::string go_on(const kind& how, const kind& before, const folders_type& saved)
{
  folders_type nothing;
  return train({.how = how, .begin = saved_step, .before = before}, saved, nothing).complaint;
}

/// The same with another number of ranks, replicas or stages.
kind elsewhere(kind how)
{
  do {
    how.at[kind::count] = static_cast<std::uint8_t>((how.at[kind::count] + 1) % extents[kind::count]);
  } while (!is_legal(how.at));
  return how;
}

/// @param all   it dies at each call in turn; else at one   @return   how often it died
std::uint64_t die(const kind& how, bool all, std::size_t row)
{
  folders_type saved;
  const outcome whole = train({.how = how, .saved_at = saved_step}, {}, saved);
  check(whole.complaint, how, "with a checkpoint", 0, 0);
  std::uint64_t deaths = 0;
  for_each_call(whole.calls, all, row, [&](std::uint64_t call) {
    const outcome died = die_at(how, call, saved);
    INFO(how.name() << ", call " << call << " of " << whole.calls);
    CHECK(died.complaint == "");
    CHECK(died.has_died);
    if (!died.has_died) return;
    CHECK(go_on(how, how, saved) == "");
    CHECK(go_on(elsewhere(how), how, saved) == "");
    ++deaths;
  });
  return deaths;
}

/// The late and early exchange of each owner that has one.
std::vector<kind> late_and_early()
{
  std::vector<kind> all;
  for (const owner whose : {owner::ranks, owner::stage, owner::stage_with_replicas})
    for (const updates when : {updates::late, updates::early})
      for (const std::uint8_t zero : {std::uint8_t{0}, std::uint8_t{2}}) {
        kind how;
        how.at[kind::when] = static_cast<std::uint8_t>(when);
        how.at[kind::whose] = static_cast<std::uint8_t>(whose);
        how.at[kind::count] = 1;
        how.at[kind::zero] = zero;
        how.at[kind::decided] = static_cast<std::uint8_t>(decision::below_limit);
        if (is_legal(how.at)) all.push_back(how);
      }
  return all;
}

}  // namespace

TEST_CASE("where an allocation or a copy of a step fails, the same call made again gives the same bits", "[step_kinds]")
{
  fail_calls(false);
}

TEST_CASE("where a collective fails, the training goes on from its checkpoint, there and on other ranks",
          "[step_kinds]")
{
  std::uint64_t deaths = 0;
  for (std::size_t row = 0; row < pairs().size(); ++row)
    if (pairs()[row].of() != owner::manager) deaths += die(pairs()[row], false, row);
  CHECK(deaths > 10);
}

TEST_CASE("so it does where a rank is killed in a late or an early exchange", "[step_kinds]")
{
  const std::vector<kind> all = late_and_early();
  CHECK(all.size() == 7);
  for (std::size_t row = 0; row < all.size(); ++row) CHECK(die(all[row], false, row + 3) == 1);
}

TEST_CASE("each allocation and each copy may fail", "[step_kinds][.slow]")
{
  fail_calls(true);
}

TEST_CASE("each collective may fail", "[step_kinds][.slow]")
{
  for (std::size_t row = 0; row < pairs().size(); ++row)
    if (pairs()[row].of() != owner::manager) (void)die(pairs()[row], true, row);
}

TEST_CASE("a rank may be killed at each call of late and early exchanges", "[step_kinds][.slow]")
{
  for (const kind& how : late_and_early()) CHECK(die(how, true, 0) >= 6);  // stages talk least
}

}  // namespace faults_test
