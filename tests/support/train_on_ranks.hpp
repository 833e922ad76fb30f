// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>

#include <support/rank_threads.hpp>
#include <support/rank_training.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

namespace support::ranks {

struct arena {
  using type = cm::backend::host_arena;
  type operator()(std::uint32_t, cm::bytes device, cm::bytes host) const
  {
    return type{{.device_capacity = device, .host_capacity = host}};
  }
};

/// What a model of this kind works with.
template <class Ranks>
[[nodiscard]] Ranks& ends_as(cm::sharding::thread_ranks::place& here)
{
  if constexpr (std::same_as<Ranks, cm::collective::local_threads>)
    return here.all();
  else
    return here.process_groups();
}

/// What each rank of a job complains of. @param make   `make(rank, device, host)`: its backend
template <class Element, class... Policies, class Make>
std::vector<std::string> train_on(Make make, const job& wanted)
{
  const cm::optimizer::adam kernel{{.weight_decay = 0.01F}};
  one_rank<Element, cm::optimizer::adam> alone{wanted, kernel};
  const auto momentum = alone.momentum();
  std::vector<std::string> complaints(wanted.ranks);
  std::atomic<std::size_t> early_ones = 0;  // of a rank that owns nothing, or one large share, none
  const cm::sharding::thread_ranks groups{wanted.ranks, wanted.of_node};
  groups.run([&](cm::sharding::thread_ranks::place& here) {
    const std::uint32_t rank = here.rank();
    try {
      using threads = cm::collective::local_threads;
      constexpr bool in_nodes = (std::same_as<Policies, cm::ownership::hierarchical> || ...);
      using ranks_type = std::conditional_t<in_nodes, cm::sharding::process_groups<threads>, threads>;
      using model_type = cm::sharded_model<typename Make::type, ranks_type, Policies...>;
      using trainer_type = one_of_many<Element, model_type, cm::optimizer::adam>;
      const auto on = [&](cm::bytes device, auto use) {
        auto memory = make(rank, device, wanted.frame_bytes() * 256);
        model_type model{memory,
                         ends_as<ranks_type>(here),
                         {.chunk_bytes = wanted.frame_bytes()},
                         {.divided = wanted.divided, .sum_scale = wanted.scale}};
        trainer_type trainer{model, kernel, wanted, alone.values};
        use(trainer);
      };
      cm::bytes device = wanted.frame_bytes() * (wanted.frames == 0 ? 64 : wanted.frames);
      if (wanted.is_tight)
        on(wanted.frame_bytes() * 256,
           [&](trainer_type& trainer) { device = trainer.least_device() + wanted.longest_unit(); });
      on(device, [&](trainer_type& trainer) {
        trainer.run();
        trainer.check_momentum(momentum);
        complaints[rank] = trainer.complaint;
        if (complaints[rank].empty() && trainer.norms != alone.norms)
          complaints[rank] = "rank " + std::to_string(rank) + ": another norm";
        early_ones += trainer.early_ones;
      });
    } catch (const std::exception& failed) {
      complaints[rank] = failed.what();
    }
  });
  if (wanted.has_early_updates() && early_ones == 0) complaints[0] += "no update was early";
  return complaints;
}

template <class Element, class... Policies>
std::vector<std::string> train(const job& wanted)
{
  return train_on<Element, Policies...>(arena{}, wanted);
}

}  // namespace support::ranks
