// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/sharding/rank_iteration.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/manager/manager.hpp>

#include <support/catch.hpp>

#include <utility>

namespace rank_iteration_test {

using namespace chunkmem;
using manager_type = manager<backend::host_arena>;

struct model {
  using engine_type = manager_type::engine_type;
  int ended = 0;
  bool fails = false;  // once
  void end_micro_batch()
  {
    if (std::exchange(fails, false)) throw device_error{"a sum failed"};
    ++ended;
  }
  bool is_alone = false;
  void check() const
  {
    if (is_alone) throw comm_error{"the other ranks are gone"};
  }
};

TEST_CASE("a micro-batch ends where a pass of another one begins", "[sharding]")
{
  backend::host_arena memory{{.device_capacity = bytes{4096}, .host_capacity = bytes{4096}}};
  manager_type m{memory, {.chunk_bytes = bytes{256}}};
  model heard;
  {
    sharding::rank_iteration<model> scope{heard, [&] { return m.iteration(3); }};
    scope.pass(pass::forward, 0);
    scope.pass(pass::backward, 0);
    CHECK(heard.ended == 0);
    scope.pass(pass::forward, 1);
    scope.pass(pass::backward, 1);
    CHECK(heard.ended == 1);
    scope.pass(pass::forward, 2);
    CHECK(heard.ended == 2);
    CHECK_THROWS_AS(scope.pass(pass::forward, 3), usage_error);
    CHECK(m.is_iterating());
    scope.end();
    CHECK_FALSE(m.is_iterating());
  }
  CHECK(m.report().iterations == 1);
}

TEST_CASE("a micro-batch that could not end is ended by the pass that is called again", "[sharding]")
{
  backend::host_arena memory{{.device_capacity = bytes{4096}, .host_capacity = bytes{4096}}};
  manager_type m{memory, {.chunk_bytes = bytes{256}}};
  model heard;
  sharding::rank_iteration<model> scope{heard, [&] { return m.iteration(2); }};
  scope.pass(pass::forward, 0);
  heard.fails = true;
  CHECK_THROWS_AS(scope.pass(pass::forward, 1), device_error);
  CHECK(heard.ended == 0);
  scope.pass(pass::forward, 1);
  CHECK(heard.ended == 1);
}

TEST_CASE("the end of an iteration asks the ranks, and has ended where they have failed", "[sharding]")
{
  backend::host_arena memory{{.device_capacity = bytes{4096}, .host_capacity = bytes{4096}}};
  manager_type m{memory, {.chunk_bytes = bytes{256}}};
  model heard;
  {
    sharding::rank_iteration<model> scope{heard, [&] { return m.iteration(1); }};
    heard.is_alone = true;
    CHECK_THROWS_AS(scope.end(), comm_error);
    CHECK_FALSE(m.is_iterating());
  }
  heard.is_alone = false;
  sharding::rank_iteration<model> next{heard, [&] { return m.iteration(1); }};
  CHECK_NOTHROW(next.end());
}

}  // namespace rank_iteration_test
