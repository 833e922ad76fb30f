// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/manager/owner_link.hpp>

#include <support/catch.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace owner_link_test {

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
  owner_link<toy_engine>* link = new owner_link<toy_engine>{&engine, 0};

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

TEST_CASE("what was handed out comes back once, at the end of its scope or before", "[manager]")
{
  owner it;
  {
    const share first = it.give(1);
    share second = it.give(2);
    CHECK(it.link->holders == 2);
    CHECK((first.value() == 1 && second.value() == 2 && first.is_live()));
    second.release();
    second.release();
    CHECK_FALSE(second.is_live());
    CHECK_THROWS_AS(second.value(), usage_error);
    CHECK(it.engine.given_back == std::vector<int>{2});
  }
  CHECK(it.engine.given_back == std::vector<int>{2, 1});
  CHECK(it.link->holders == 0);
}

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

TEST_CASE("a share that outlives its manager says so and frees the thread", "[manager]")
{
  using Catch::Matchers::ContainsSubstring;
  share survivor;
  share other;
  {
    owner it;
    survivor = it.give(1);
    other = it.give(2);
  }
  CHECK_FALSE(survivor.is_live());
  try {
    (void)survivor.value();
    FAIL("bytes of a manager that is gone");
  } catch (const usage_error& refused) {
    CHECK_THAT(refused.what(), ContainsSubstring("outlived its manager"));
  }
  survivor.release();  // the address sanitizer sees a leak or a second release
  other = share{};
  CHECK_FALSE(other.is_live());
}

TEST_CASE("a access_token that cannot be made leaves nothing behind", "[manager]")
{
  owner it;
  const auto refuse = []() -> int { throw out_of_memory{{}}; };
  CHECK_THROWS_AS((share{it.link, refuse}), out_of_memory);
  CHECK(it.link->holders == 0);
  CHECK(it.engine.given_back.empty());
}

}  // namespace owner_link_test
