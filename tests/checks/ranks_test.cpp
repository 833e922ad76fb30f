// SPDX-License-Identifier: Apache-2.0
#include "checked_stages.hpp"

#include <chunkmem/checks/full_checks.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/catch.hpp>
#include <support/train_on_ranks.hpp>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace ranks_test {

namespace cm = chunkmem;

TEST_CASE("ranks over threads train under checks::full without a complaint, with the bits of one rank", "[checks]")
{
  using namespace support::ranks;
  job wanted;
  wanted.is_tight = true;
  const std::vector<std::string> nothing(wanted.ranks);
  CHECK(train<float, cm::checks::full>(wanted) == nothing);
  CHECK(train<cm::bf16, cm::checks::full>(wanted) == nothing);
}

TEST_CASE("replicas of stages train under checks::full, with gathers and sums under way", "[checks]")
{
  using namespace checked_stages;
  using model_type = cm::sharded_model<arena, ends_type, cm::checks::full>;
  for (const pl::schedule& plan : schedules())
    for (const cm::sharding::zero divided : {cm::sharding::zero_3, cm::sharding::zero_1}) {
      CAPTURE(plan.name, divided.parameters);
      std::deque<pl::thread_stages> pipelines;
      std::deque<cm::collective::thread_group> replicas;
      for (int it = 0; it < 2; ++it) {
        pipelines.emplace_back(plan, patience);
        replicas.emplace_back(2U, patience);
      }
      std::vector<std::vector<float>> found(2, std::vector<float>(plan.part_count(), 0));
      cm::collective::run_threads(4, [&](std::uint32_t rank) {
        pl::thread_stages::place here{pipelines[rank / 2], rank % 2};
        ends_type group{replicas[here.stage()], cm::rank_id{rank / 2}};
        arena memory{{.device_capacity = 128_KiB, .host_capacity = 512_KiB, .async_compute = true}};
        model_type m{memory, group, {.chunk_bytes = 32_KiB}, {.divided = divided}};
        train_stage(m, memory, plan, here, rank / 2, runs::on_the_host, found[rank / 2]);
        m.shares().verify();
      });
      const std::vector<float> plain = train_plainly(plan.part_count(), plan.micro_batches, plan.batches, 2);
      CHECK(found[0] == plain);
      CHECK(found[1] == plain);
    }
}

}  // namespace ranks_test
