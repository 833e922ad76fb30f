// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/mpi_work.hpp>

#include "mpi_world.hpp"

#include <support/catch.hpp>

#include <memory>
#include <string>
#include <vector>

namespace mpi_lane_test {

using namespace chunkmem;
using Catch::Matchers::ContainsSubstring;
using collective::mpi_group;
using collective::mpi_lane;
using part = mpi_group::part;

struct own_lane {
  explicit own_lane(std::chrono::milliseconds deadline = mpi_world::patience)
      : group{std::make_unique<mpi_group>(world.session, MPI_COMM_WORLD, deadline)},
        lane{std::make_unique<mpi_lane>(*group)}
  {
    mpi_world::meet();
  }
  ~own_lane()
  {
    if (!group->has_failed()) group->leave();
    using state = collective::mpi_session::left_group::state;
    auto found = state::waiting;
    while (found == state::waiting) found = group->look_back();
    if (found == state::over) return;
    (void)lane->cancel();
    static_cast<void>(lane.release());
    static_cast<void>(group.release());
  }

  /// As its owner does: an error is the end of the group, and the others are told.
  template <class Work>
  std::string words_of(Work&& work, comm_fault& fault)
  {
    try {
      work();
    } catch (const comm_error& error) {
      (void)lane->cancel();
      group->fail(error);
      fault = error.fault();
      return error.what();
    }
    fault.number = -1;
    return {};
  }

  mpi_world::doomed world;
  std::unique_ptr<mpi_group> group;
  std::unique_ptr<mpi_lane> lane;
};

constexpr collective::call some{.what = collective::operation::all_gather, .size = 1024, .label = 3};

TEST_CASE("ranks that ask for the same agree, and one after another", "[collective_mpi]")
{
  own_lane own;
  for (std::uint64_t sequence = 1; sequence <= 100; ++sequence) {
    const mpi_group::attempt this_attempt{.what = some, .sequence = sequence};
    CHECK_NOTHROW(own.lane->agree(this_attempt));
    own.group->finish(this_attempt);  // else this rank would be lost to one that is slower, when it leaves
  }
  CHECK(!own.group->has_failed());
}

TEST_CASE("one rank that asks for anything else is found by every rank", "[collective_mpi]")
{
  if (mpi_world::ranks() < 2) SKIP("one rank agrees with itself");
  using collective::operation;
  std::vector<mpi_group::attempt> others(8, {.what = some, .each = 256, .sequence = 7});
  others[0].what.what = operation::broadcast;
  others[1].what.type = dtype::float16;
  others[2].what.size = 1025;
  others[3].what.root = 1;
  others[4].what.label = 4;
  others[5].what.scale = 1;
  others[6].sequence = 8;
  others[7].each = 512;
  for (const mpi_group::attempt& other : others) {
    for (std::uint32_t odd = 0; odd < mpi_world::ranks(); ++odd) {
      own_lane own;
      comm_fault fault;
      const mpi_group::attempt usual{.what = some, .each = 256, .sequence = 7};
      const std::string words = own.words_of([&] { own.lane->agree(mpi_world::rank() == odd ? other : usual); }, fault);
      CHECK(fault.number != -1);
      CHECK(fault.failure == comm_failure::mismatch);
      if (mpi_world::ranks() > 2) CHECK(fault.rank == odd);
      CHECK_THAT(words, ContainsSubstring("ranks ask for different things"));
    }
  }
}

TEST_CASE("a rank that sends while the others gather is found by every rank", "[collective_mpi]")
{
  if (mpi_world::ranks() < 2) SKIP("one rank has nobody to send to");
  own_lane own;
  comm_fault fault;
  own.words_of(
      [&] {
        if (mpi_world::rank() == 0)
          own.lane->agree_with_peer({.what = some, .of = part::pair, .sequence = 1, .peer = 1, .group_sequence = 5});
        else
          own.lane->agree({.what = some, .sequence = 6});
      },
      fault);
  CHECK(fault.number != -1);
  CHECK(fault.failure == comm_failure::mismatch);
}

TEST_CASE("both ends of a pair agree, or both do not", "[collective_mpi]")
{
  if (mpi_world::ranks() < 2) SKIP("one rank has no peer");
  for (const bool same : {true, false}) {
    own_lane own;
    comm_fault fault{.number = -1};
    mpi_group::attempt this_attempt{.what = some, .of = part::pair, .sequence = 1, .peer = 1 - mpi_world::rank()};
    if (!same && mpi_world::rank() == 1) ++this_attempt.what.size;
    if (mpi_world::rank() < 2) own.words_of([&] { own.lane->agree_with_peer(this_attempt); }, fault);
    CHECK((fault.number == -1) == (same || mpi_world::rank() > 1));
    mpi_world::meet();
  }
}

TEST_CASE("every rank's words come in order, counted from its own", "[collective_mpi]")
{
  own_lane own;
  for (std::uint64_t length = 1; length <= 5; ++length) {
    std::vector<std::uint64_t> mine;
    for (std::uint64_t index = 0; index < length; ++index) mine.push_back(100 * mpi_world::rank() + index);
    std::vector<std::uint64_t> expected;
    for (std::uint32_t step = 0; step < mpi_world::ranks(); ++step)
      for (std::uint64_t index = 0; index < length; ++index)
        expected.push_back(100 * ((mpi_world::rank() + step) % mpi_world::ranks()) + index);
    const mpi_group::attempt this_attempt{.what = some, .of = part::words, .sequence = length};
    const auto all = own.lane->gather(this_attempt, mine);
    own.group->finish(this_attempt);
    CHECK(std::vector<std::uint64_t>(all.begin(), all.end()) == expected);
  }
}

TEST_CASE("a rank that never comes is waited for until the deadline, and named", "[collective_mpi]")
{
  if (mpi_world::ranks() < 2) SKIP("one rank waits for nobody");
  own_lane own{std::chrono::milliseconds{400}};
  comm_fault fault{.number = -1};
  if (mpi_world::rank() != 0)
    own.words_of([&] { own.lane->agree({.what = some, .sequence = 1}); }, fault);
  else
    own.words_of(
        [&] {
          for (;;) own.group->look({.what = some, .sequence = 1}, {});
        },
        fault);
  CHECK(fault.number != -1);
  if (mpi_world::rank() == 0)
    CHECK(fault.failure == comm_failure::revoked);
  else if (fault.failure == comm_failure::deadline)
    CHECK(fault.waited >= 400'000'000);
  else
    CHECK(fault.failure == comm_failure::revoked);
  if (mpi_world::ranks() == 2 && mpi_world::rank() == 1) CHECK(fault.rank == 0);
}

}  // namespace mpi_lane_test
