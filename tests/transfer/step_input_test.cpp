// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/step_input.hpp>

#include <chunkmem/transfer/step_work.hpp>
#include <support/catch.hpp>

#include <array>
#include <cstdint>

namespace step_input_test {

using namespace chunkmem;
using transfer::host_task;
using transfer::retention_use;
using transfer::use_kind;

TEST_CASE("a task takes the uses of its moments, and a use without one takes no time", "[transfer][reachable]")
{
  const std::array<std::uint64_t, 4> moments{1, 1, 1, 1};
  const std::array<std::uint64_t, 1> sizes{8};
  const std::array<retention_use, 4> uses{{{0, 0, 1, use_kind::update},
                                           {0, 1, 2, use_kind::host_read},
                                           {0, 2, 3, use_kind::host_update},
                                           {0, 3, 4, use_kind::host_read}}};
  const std::array<std::uint8_t, 4> stays{};
  const std::array<std::uint64_t, 4> room{8, 8, 8, 8};
  const std::array<host_task, 1> tasks{{{1, 3, 100, host_task::none}}};
  const transfer::step_work work{{moments, sizes, uses, stays, room, tasks, {0, 1e9}, {0, 1e9}, 0}};
  REQUIRE(work.updates().size() == 2);
  CHECK(work.updates()[0].nanoseconds == 100);
  CHECK(work.updates()[1].nanoseconds == 0);
}

}  // namespace step_input_test
