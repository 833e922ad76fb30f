// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/pending_updates.hpp>

#include <support/catch.hpp>

#include <stdexcept>
#include <vector>

namespace pending_updates_test {

namespace {

/// Notes what it was asked for; the parameter `bad` cannot be updated.
struct updater {
  static void update(void* self, std::uint32_t parameter)
  {
    auto& it = *static_cast<updater*>(self);
    CHECK(it.pending.is_running());
    CHECK_FALSE(it.pending.has(parameter));
    if (parameter == it.bad) throw std::runtime_error{"bad"};
    it.done.push_back(parameter);
  }

  chunkmem::pending_updates pending;
  std::uint32_t bad = 99;
  std::vector<std::uint32_t> done;
};

}  // namespace

TEST_CASE("updates wait by the chunks of their weights", "[manager]")
{
  updater it;
  CHECK_FALSE(it.pending.any());
  CHECK_FALSE(it.pending.has(3));  // also before there is room for any
  it.pending.prepare(5, 3);
  for (const std::uint32_t parameter : {4U, 3U, 1U}) it.pending.add(parameter, parameter == 4 ? 2 : 1);
  it.pending.serve(&updater::update, &it);
  CHECK(it.pending.count() == 3);
  CHECK((it.pending.has(1) && it.pending.has(3) && it.pending.has(4) && !it.pending.has(0)));
  CHECK((!it.pending.has_in(0) && it.pending.has_in(1) && it.pending.has_in(2)));
  it.pending.run(0);
  CHECK(it.done.empty());
  it.pending.run(1);
  CHECK(it.done == std::vector<std::uint32_t>{1, 3});
  CHECK((it.pending.count() == 1 && !it.pending.has_in(1) && it.pending.has(4)));
  it.pending.add(0, 0);
  it.pending.run_all();
  CHECK(it.done == std::vector<std::uint32_t>{1, 3, 0, 4});
  CHECK_FALSE(it.pending.any());
  it.pending.run_all();
  CHECK(it.done.size() == 4);
}

TEST_CASE("an update that fails waits on, with those behind it", "[manager]")
{
  updater it;
  it.pending.prepare(4, 2);
  for (const std::uint32_t parameter : {3U, 2U, 1U, 0U}) it.pending.add(parameter, 1);
  it.pending.serve(&updater::update, &it);
  it.bad = 1;
  CHECK_THROWS_AS(it.pending.run(1), std::runtime_error);
  CHECK(it.done == std::vector<std::uint32_t>{0});
  CHECK_FALSE(it.pending.is_running());
  CHECK((it.pending.count() == 3 && it.pending.has(1) && !it.pending.has(0)));
  CHECK_THROWS_AS(it.pending.run_all(), std::runtime_error);
  it.bad = 99;
  it.pending.run_all();
  CHECK(it.done == std::vector<std::uint32_t>{0, 1, 2, 3});
}

TEST_CASE("what waits is without a server when that leaves, until it is discarded", "[manager]")
{
  updater it, other;
  it.pending.prepare(2, 1);
  it.pending.add(1, 0);
  it.pending.serve(&updater::update, &it);
  it.pending.leave(&other);
  CHECK(it.pending.is_served());
  it.pending.leave(&it);
  CHECK_FALSE(it.pending.is_served());
  CHECK(it.pending.any());
  it.pending.discard();
  CHECK((!it.pending.any() && !it.pending.has(1) && !it.pending.has_in(0)));
}

}  // namespace pending_updates_test
