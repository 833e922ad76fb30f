// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/backend/agent_worker.hpp>

#include <support/catch.hpp>

#include <array>
#include <memory>
#include <utility>

namespace operation_test {

using chunkmem::bytes;
using chunkmem::backend::inline_task;
using chunkmem::backend::operation;
using chunkmem::backend::operation_kind;

TEST_CASE("an operation says what it is and does it once it is run", "[backend]")
{
  std::array<std::byte, 4> from{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  std::array<std::byte, 4> to{};
  operation nothing;
  nothing.run();
  CHECK(nothing.kind == operation_kind::marker);

  operation copy = operation::copying(to.data(), from.data(), bytes{3});
  CHECK(copy.kind == operation_kind::copy);
  CHECK(to[0] == std::byte{});
  copy.run();
  CHECK(to == std::array<std::byte, 4>{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{}});

  operation fill = operation::filling(to.data(), std::byte{9}, bytes{2});
  fill.run();
  CHECK(to == std::array<std::byte, 4>{std::byte{9}, std::byte{9}, std::byte{3}, std::byte{}});

  operation empty = operation::copying(nullptr, nullptr, bytes{0});
  empty.run();

  operation wait = operation::waiting({.value = 7, .source = chunkmem::agent::to_host});
  wait.run();
  CHECK(wait.kind == operation_kind::wait);
  CHECK(wait.point.value == 7);
}

TEST_CASE("a copy whose bytes overlap moves them as if they did not", "[backend]")
{
  std::array<std::byte, 4> place{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  operation::copying(place.data() + 1, place.data(), bytes{3}).run();
  CHECK(place == std::array<std::byte, 4>{std::byte{1}, std::byte{1}, std::byte{2}, std::byte{3}});
}

TEST_CASE("a launched callable moves with its operation and is destroyed exactly once", "[backend]")
{
  auto counted = std::make_shared<int>(0);
  {
    operation work = operation::launching([counted] { ++*counted; });
    CHECK(counted.use_count() == 2);
    operation moved = std::move(work);
    CHECK(counted.use_count() == 2);
    operation assigned;
    assigned = std::move(moved);
    assigned.run();
    assigned.run();
    CHECK(*counted == 2);
    assigned.task.reset();
    CHECK(counted.use_count() == 1);
    assigned.run();
    CHECK(*counted == 2);
    operation other = operation::launching([counted] { *counted += 10; });
    assigned = std::move(other);
    CHECK(counted.use_count() == 2);
  }
  CHECK(counted.use_count() == 1);
}

TEST_CASE("a callable of 128 bytes and one that only moves fit an inline task", "[backend]")
{
  std::array<unsigned char, inline_task::room - sizeof(int*)> ballast{};
  ballast.back() = 5;
  int seen = 0;
  inline_task large{[&seen, ballast] { seen = ballast.back(); }};
  large();
  CHECK(seen == 5);

  inline_task moving{[&seen, owned = std::make_unique<int>(6)] { seen = *owned; }};
  inline_task elsewhere{std::move(moving)};
  CHECK(static_cast<bool>(elsewhere));
  elsewhere();
  CHECK(seen == 6);

  inline_task nothing;
  CHECK_FALSE(static_cast<bool>(nothing));
  nothing();
}

TEST_CASE("an operation is small enough that a ring of 256 stays below 64 KiB", "[backend]")
{
  STATIC_REQUIRE(sizeof(operation) * 256 <= 64 * 1024);
}

}  // namespace operation_test
