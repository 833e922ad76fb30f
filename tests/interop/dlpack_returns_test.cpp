// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/interop/dlpack.hpp>

#include <support/catch.hpp>

#include <optional>
#include <thread>
#include <vector>

namespace dlpack_returns_test {

using namespace chunkmem;
using interop::dlpack_returns;

namespace {

struct counted final : interop::lent_tensor {
  explicit counted(int& ended) : ended_{ended} {}
  ~counted() override { ++ended_; }
  int& ended_;
};

}  // namespace

TEST_CASE("tensors that come back end when they are collected, not before", "[interop]")
{
  int ended = 0;
  dlpack_returns returns;
  CHECK(returns.collect() == 0);
  for (int round = 0; round < 3; ++round)
    dlpack_returns::address::drop(dlpack_returns::address{returns}, new counted{ended});
  CHECK(ended == 0);
  CHECK(returns.collect() == 3);
  CHECK(ended == 3);
  CHECK(returns.collect() == 0);
  CHECK_FALSE(dlpack_returns::address{}.is_known());
}

TEST_CASE("tensors end too where the mailbox went before them or with them", "[interop]")
{
  int ended = 0;
  std::optional<dlpack_returns> returns{std::in_place};
  dlpack_returns::address late{*returns};
  dlpack_returns::address::drop(dlpack_returns::address{*returns}, new counted{ended});
  returns.reset();
  CHECK(ended == 0);  // one that is out still has the box
  dlpack_returns::address::drop(std::move(late), new counted{ended});
  CHECK(ended == 2);
}

TEST_CASE("any thread may bring tensors back while they are collected", "[interop]")
{
  constexpr int each = 500;
  int ended = 0;  // of the collecting thread alone
  dlpack_returns returns;
  std::size_t collected = 0;
  {
    std::vector<std::thread> threads;
    for (int who = 0; who < 2; ++who)
      threads.emplace_back([&, to = dlpack_returns::address{returns}] {
        for (int index = 0; index < each; ++index) dlpack_returns::address::drop(to, new counted{ended});
      });
    for (int index = 0; index < each; ++index) collected += returns.collect();
    for (auto& it : threads) it.join();
  }
  collected += returns.collect();
  CHECK(collected == 2 * each);
  CHECK(ended == 2 * each);
}

}  // namespace dlpack_returns_test
