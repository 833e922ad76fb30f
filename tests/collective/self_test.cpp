// SPDX-License-Identifier: Apache-2.0
#include <chunkmem/collective/self.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <conformance/communicator.hpp>
#include <support/catch.hpp>
#include <support/rank_threads.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace self_test {

using namespace chunkmem;
using backend::host_arena;
using collective::self;
using collective::shares;

static_assert(communicator<self, host_arena>);

struct lone_harness {
  using stage = support::rank_stage<self, host_arena>;
  std::vector<std::uint32_t> worlds{1};

  template <class Body>
  std::vector<std::string> run(std::uint32_t, Body body) const
  {
    host_arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
    self one;
    self two;
    stage here{.ranks = one, .others = two, .backend = memory};
    body(here);
    return {here.complaint};
  }
};

TEST_CASE("self moves and adds bytes as a communicator of one does", "[collective]")
{
  // A sum of one that is not scaled is left alone, so that its NaNs stay what they are: scaled ones are compared.
  conformance::on_each_world(lone_harness{}, [](lone_harness::stage& this_stage) {
    using collective::operation;
    for (const std::uint64_t size : conformance::run_sizes(1))
      for (const dtype type : {dtype::float32, dtype::bfloat16, dtype::float16})
        for (const operation what :
             {operation::reduce_scatter, operation::all_reduce, operation::all_gather, operation::broadcast})
          conformance::does_as_the_model(this_stage, {.what = what, .size = size, .type = type, .scale = 0.5F}, size);
    conformance::exchanges_beside_agents(this_stage);
  });
}

TEST_CASE("self refuses other ranks", "[collective]")
{
  host_arena memory{{.device_capacity = 1_MiB, .host_capacity = 1_MiB}};
  self alone;
  std::byte place[64]{};
  std::vector<std::uint64_t> words(2);
  CHECK_THROWS_AS(alone.all_gather(memory, agent::to_host, place, shares::of(64_B, 2), 0), usage_error);
  CHECK_THROWS_AS(alone.all_reduce(memory, agent::to_host, place, shares::of(64_B, 1), {.type = dtype::int32}, 0),
                  usage_error);
  CHECK_THROWS_AS(alone.broadcast(memory, agent::to_host, place, 64_B, rank_id{1}, 0), usage_error);
  CHECK_THROWS_AS(alone.send(memory, agent::to_host, place, 64_B, rank_id{0}, 0), usage_error);
  CHECK_THROWS_AS(alone.receive(memory, agent::to_host, place, 64_B, rank_id{0}, 0), usage_error);
  CHECK_THROWS_AS(alone.exchange(std::vector<std::uint64_t>(1), words), usage_error);
}

}  // namespace self_test
