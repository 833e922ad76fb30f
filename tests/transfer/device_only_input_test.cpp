// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/transfer/retention_solution.hpp>

#include <support/catch.hpp>
#include <support/oracles/played_retention.hpp>
#include <support/oracles/retention_trace.hpp>

#include <cstdint>
#include <vector>

namespace device_only_input_test {

using namespace chunkmem;
using support::retention_trace;
using transfer::device_only_input;
using transfer::retention_problem;
using transfer::use_kind;

TEST_CASE("a chunk on the device alone is in use until its next use begins, but not while it has no bytes",
          "[transfer]")
{
  retention_trace what{{4, 4, 4}, {}, std::vector<std::uint64_t>(10, 12), true};
  what.use(0, 1, use_kind::update, 2);
  what.use(1, 2, use_kind::overwrite);
  what.use(2, 3, use_kind::read);
  what.use(0, 5, use_kind::read);
  what.use(1, 6, use_kind::drop);
  const transfer::retention_input input = what.input();
  const std::vector<std::uint8_t> device_only{1, 1, 0};
  const device_only_input made{input, device_only};
  std::vector<std::vector<std::uint32_t>> seen;
  for (const auto& it : made.input().uses) seen.push_back({it.chunk, it.begin, it.end});
  CHECK(seen ==
        std::vector<std::vector<std::uint32_t>>{{0, 0, 1}, {0, 1, 5}, {1, 2, 6}, {2, 3, 4}, {0, 5, 10}, {1, 6, 7}});
  const retention_problem problem{made.input()};
  CHECK(problem.constant_bytes() == 0);
  CHECK(made.retained(std::vector<std::uint8_t>{0, 0, 0, 1, 0, 0}, device_only) ==
        std::vector<std::uint8_t>{1, 1, 1, 1, 1});
}

TEST_CASE("who lives on the device alone moves nothing, and the others as they do without", "[transfer]")
{
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    support::dice random{seed};
    retention_trace what = support::roll_small_trace(random, {true, seed % 2 == 0, false});
    for (std::uint64_t& room : what.device_bytes) room += 4;
    const transfer::retention_input input = what.input();
    std::vector<std::uint8_t> device_only(what.chunk_bytes.size(), 0);
    device_only[random.below(static_cast<std::uint32_t>(device_only.size()))] = 1;
    const device_only_input made{input, device_only};
    try {
      const retention_problem problem{made.input()};
      const transfer::retention_solution plan = transfer::plan_retention(problem);
      const support::played_retention played{input, made.retained(plan.retained, device_only)};
      CAPTURE(seed);
      CHECK(played.fits());
      CHECK(played.moved_bytes() == plan.moved_bytes);
      ++compared;
    } catch (const out_of_memory&) {  // it cannot stay for ever
    }
  }
  CHECK(compared > 100);
}

}  // namespace device_only_input_test
