#include <chunkmem/sharding/sharded_model.hpp>

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/chunk/best_fit_layout.hpp>
#include <chunkmem/eviction/lru.hpp>
#include <chunkmem/placement/device_margin.hpp>
#include <chunkmem/transfer/no_prefetch.hpp>
#include <chunkmem/transfer/planned.hpp>

#include <support/catch.hpp>
#include <support/rank_threads.hpp>
#include <support/rank_training.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace sharded_model_test {

namespace cm = chunkmem;
using support::ranks::job;

/// What each rank of a job complains of.
template <class Element, class... Policies>
std::vector<std::string> train(const job& wanted)
{
  const cm::optimizer::adam kernel{{.weight_decay = 0.01F}};
  support::ranks::one_rank<Element, cm::optimizer::adam> alone{wanted, kernel};
  const auto momentum = alone.momentum();
  std::vector<std::string> complaints(wanted.ranks);
  const cm::collective::thread_group group{wanted.ranks, {}};
  support::on_ranks(wanted.ranks, [&](std::uint32_t rank) {
    try {
      const std::uint64_t frames = wanted.frames == 0 ? 64 : wanted.frames;
      cm::backend::host_arena memory{{.device_capacity = wanted.frame_bytes() * frames, .host_capacity = wanted.frame_bytes() * 128}};
      cm::collective::local_threads ranks{group, cm::rank_id{rank}};
      using model_type = cm::sharded_model<cm::backend::host_arena, cm::collective::local_threads, Policies...>;
      model_type model{memory, ranks, {.chunk_bytes = wanted.frame_bytes()}, wanted.scale};
      support::ranks::one_of_many<Element, model_type, cm::optimizer::adam> trainer{model, kernel, wanted, alone.values};
      trainer.run();
      trainer.check_momentum(momentum);
      complaints[rank] = trainer.complaint;
      if (complaints[rank].empty() && trainer.norms != alone.norms) complaints[rank] = "rank " + std::to_string(rank) + ": another norm";
    } catch (const std::exception& failed) {
      complaints[rank] = failed.what();
    }
  });
  return complaints;
}

std::vector<std::string> nothing(const job& wanted) { return std::vector<std::string>(wanted.ranks); }

TEST_CASE("ranks get the bits of one rank with the same grouping", "[sharding]")
{
  for (const std::uint32_t ranks : {1U, 2U, 3U, 4U, 5U, 8U}) {
    INFO(ranks << " ranks");
    CHECK(train<float>({.ranks = ranks}) == std::vector<std::string>(ranks));
  }
}

TEST_CASE("so they do with several micro-batches, summed each or last, clipped, scaled, rehearsed and in little room", "[sharding]")
{
  const job jobs[] = {
      {.ranks = 2, .micro_batches = 3},
      {.ranks = 3, .micro_batches = 2, .sums_each = false},
      {.ranks = 4, .clip = 0.5F},
      {.ranks = 2, .micro_batches = 2, .sums_each = false, .clip = 3, .scale = 0.5F},
      {.ranks = 4, .steps = 5, .frames = 12},
      {.ranks = 2, .steps = 4, .micro_batches = 2, .clip = 1, .frames = 12, .rehearses = true},
      {.ranks = 1, .steps = 4, .frames = 24, .rehearses = true},
  };
  for (const job& it : jobs) {
    INFO("job " << &it - jobs);
    CHECK(train<float>(it) == nothing(it));
    CHECK(train<cm::bf16>(it) == nothing(it));
    CHECK(train<cm::fp16>(it) == nothing(it));
  }
}

TEST_CASE("so they do under other policies", "[sharding]")
{
  const job tight{.ranks = 3, .steps = 5, .micro_batches = 2, .clip = 1, .frames = 12};
  CHECK(train<float, cm::eviction::lru, cm::transfer::no_prefetch>(tight) == nothing(tight));
  CHECK(train<float, cm::transfer::planned>(tight) == nothing(tight));
  CHECK(train<cm::bf16, cm::best_fit_layout, cm::placement::device_margin>(tight) == nothing(tight));
}

}  // namespace sharded_model_test
