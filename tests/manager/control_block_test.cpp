// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/control_block.hpp>

#include <chunkmem/core/error.hpp>

#include <support/catch.hpp>

#include <type_traits>
#include <utility>
#include <vector>

namespace control_block_test {

using namespace chunkmem;

namespace {

struct toy_engine {
  std::vector<int> given_back;

  void release(int held) noexcept { given_back.push_back(held); }
};

struct share : holder<toy_engine, int> {
  using holder::holder;
  share() = default;
  [[nodiscard]] int value() const { return held(); }
};
static_assert(!std::is_copy_constructible_v<share> && !std::is_copy_assignable_v<share>);
static_assert(std::is_nothrow_move_constructible_v<share> && std::is_nothrow_move_assignable_v<share>);

/// A manager's side of the thread.
struct owner {
  toy_engine engine;
  control_block<toy_engine>* link = new control_block<toy_engine>{&engine, 0};

  owner() = default;
  owner(const owner&) = delete;
  owner& operator=(const owner&) = delete;
  ~owner()
  {
    link->engine = nullptr;
    if (link->holders == 0) delete link;
  }
  share give(int what)
  {
    return share{link, [what] { return what; }};
  }
};

}  // namespace

TEST_CASE("a share that moves is one share", "[manager]")
{
  owner it;
  share first = it.give(1);
  share second = std::move(first);
  CHECK(it.link->holders == 1);
  CHECK_THROWS_AS(first.value(), usage_error);
  CHECK(second.value() == 1);
  share third = it.give(3);
  third = std::move(second);  // gives back what it had
  CHECK(it.engine.given_back == std::vector<int>{3});
  CHECK(third.value() == 1);
  share& same = third;
  third = std::move(same);
  CHECK(third.value() == 1);
  third.release();
  CHECK(it.engine.given_back == std::vector<int>{3, 1});
  share empty;
  CHECK_FALSE(empty.is_live());
  CHECK_THROWS_AS(empty.value(), usage_error);
  empty.release();
}

TEST_CASE("an access_token that cannot be made leaves nothing behind", "[manager]")
{
  owner it;
  const auto refuse = []() -> int { throw out_of_memory{{}}; };
  CHECK_THROWS_AS((share{it.link, refuse}), out_of_memory);
  CHECK(it.link->holders == 0);
  CHECK(it.engine.given_back.empty());
}

}  // namespace control_block_test
