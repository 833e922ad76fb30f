#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/rank_threads.hpp>
#include <support/rank_training.hpp>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace support::ranks {

struct arena {
  using type = cm::backend::host_arena;
  type operator()(std::uint32_t, cm::bytes device, cm::bytes host) const { return type{{.device_capacity = device, .host_capacity = host}}; }
};

/// What each rank of a job complains of. @param make   `make(rank, device, host)`: its backend
template <class Element, class... Policies, class Make>
std::vector<std::string> train_on(Make make, const job& wanted)
{
  const cm::optimizer::adam kernel{{.weight_decay = 0.01F}};
  one_rank<Element, cm::optimizer::adam> alone{wanted, kernel};
  const auto momentum = alone.momentum();
  std::vector<std::string> complaints(wanted.ranks);
  const cm::collective::thread_group group{wanted.ranks, {}};
  on_ranks(wanted.ranks, [&](std::uint32_t rank) {
    try {
      const std::uint64_t frames = wanted.frames == 0 ? 64 : wanted.frames;
      auto memory = make(rank, wanted.frame_bytes() * frames, wanted.frame_bytes() * 128);
      cm::collective::local_threads ranks{group, cm::rank_id{rank}};
      using model_type = cm::sharded_model<typename Make::type, cm::collective::local_threads, Policies...>;
      model_type model{memory, ranks, {.chunk_bytes = wanted.frame_bytes()}, wanted.scale};
      one_of_many<Element, model_type, cm::optimizer::adam> trainer{model, kernel, wanted, alone.values};
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

template <class Element, class... Policies>
std::vector<std::string> train(const job& wanted)
{
  return train_on<Element, Policies...>(arena{}, wanted);
}

}  // namespace support::ranks
