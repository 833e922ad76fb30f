// SPDX-License-Identifier: Apache-2.0
#include "movement.hpp"

#include "jobs.hpp"
#include "strategies.hpp"

#include <support/catch.hpp>

#include <cstdint>
#include <random>

namespace movement_test {

using namespace max_model_jobs;
using max_model::memory_use;
using max_model::movement;
using max_model::taker;

TEST_CASE("a strategy's chunks lie in the capacities that its rules leave", "[max_model]")
{
  training_job job;
  job.machine = small_machine(4, 10'000'000, 20'000'000);
  memory_use use;
  use.chunk = 40'000;
  use.device = max_model::tier_use{bytes{10'000'000}};
  use.device.take(taker::program, bytes{1'000'000});
  use.device.take(taker::set_aside, bytes{500'000});
  use.device.take(taker::buffers, bytes{80'000});
  use.device.take(taker::states, bytes{3'000'000});
  use.host = max_model::tier_use{bytes{5'000'000}};
  use.host.take(taker::program, bytes{200'000});
  use.host.take(taker::buffers, bytes{100'000});
  use.host.take(taker::states, bytes{1'000'000});
  const movement moves = max_model::moves_within(job, use);
  CHECK(moves.own_chunk == 10'000);
  CHECK(moves.device.count() == 8'500'000 + (3 * 3 * 20'000 - 80'000));
  CHECK(moves.host.count() == 4'700'000);
  CHECK(moves.device_update_share == 0.75);
  CHECK_FALSE(moves.is_replicated);
}

TEST_CASE("no strategy is simulated with more than the machine has, gathered groups of the engine aside", "[max_model]")
{
  std::mt19937_64 random{3};
  int seen = 0;
  for (int run = 0; run < 300; ++run) {
    const training_job job = random_job(random);
    max_model::for_each_strategy([&](const auto& which) {
      if constexpr (max_model::simulated_strategy<std::remove_cvref_t<decltype(which)>>) {
        const memory_use use = which.memory(job);
        if (!use.fits()) return;
        ++seen;
        const movement moves = which.moves(job, use);
        const std::uint64_t ranks = job.rank().ranks;
        const bytes gathered = bytes{3 * 2} * moves.own_chunk * (ranks - 1);
        CAPTURE(which.name, ranks);
        CHECK(moves.device <= job.rank().device_bytes + gathered);
        CHECK((moves.is_replicated || moves.host <= job.rank().host_bytes));
        CHECK(moves.device_update_share >= 0);
        CHECK(moves.device_update_share <= 1);
      }
    });
  }
  CHECK(seen > 100);
}

}  // namespace movement_test
