#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/ownership/hierarchical.hpp>
#include <chunkmem/sharding/sharded_model.hpp>

#include <support/rank_threads.hpp>
#include <support/rank_training.hpp>

#include <concepts>
#include <cstdint>
#include <deque>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

namespace support::ranks {

/// Groups of threads: all, of each node, of each place in nodes.
struct collective_groups {
  explicit collective_groups(const job& wanted) : of_node{wanted.of_node == 0 ? wanted.ranks : wanted.of_node}, all{wanted.ranks, {}}
  {
    for (std::uint32_t at = 0; at < wanted.ranks / of_node; ++at) nodes.emplace_back(of_node, cm::collective::thread_group_options{});
    for (std::uint32_t at = 0; at < of_node; ++at) places.emplace_back(wanted.ranks / of_node, cm::collective::thread_group_options{});
  }
  std::uint32_t of_node;
  cm::collective::thread_group all;
  std::deque<cm::collective::thread_group> nodes;
  std::deque<cm::collective::thread_group> places;
};

struct arena {
  using type = cm::backend::host_arena;
  type operator()(std::uint32_t, cm::bytes device, cm::bytes host) const { return type{{.device_capacity = device, .host_capacity = host}}; }
};

/// This rank's ends of the groups of a job: all ranks, its node, and its place in every node.
class ends {
 public:
  ends(const collective_groups& groups, std::uint32_t rank)
      : all_{groups.all, cm::rank_id{rank}},
        node_{groups.nodes[rank / groups.of_node], cm::rank_id{rank % groups.of_node}},
        across_{groups.places[rank % groups.of_node], cm::rank_id{rank / groups.of_node}},
        circles_{all_, node_, across_}
  {
  }
  template <class Ranks>
  [[nodiscard]] Ranks& as()
  {
    if constexpr (std::same_as<Ranks, cm::collective::local_threads>) return all_;
    else return circles_;
  }

 private:
  cm::collective::local_threads all_;
  cm::collective::local_threads node_;
  cm::collective::local_threads across_;
  cm::sharding::circles<cm::collective::local_threads> circles_;
};

/// What each rank of a job complains of. @param make   `make(rank, device, host)`: its backend
template <class Element, class... Policies, class Make>
std::vector<std::string> train_on(Make make, const job& wanted)
{
  const cm::optimizer::adam kernel{{.weight_decay = 0.01F}};
  one_rank<Element, cm::optimizer::adam> alone{wanted, kernel};
  const auto momentum = alone.momentum();
  std::vector<std::string> complaints(wanted.ranks);
  const collective_groups groups{wanted};
  on_ranks(wanted.ranks, [&](std::uint32_t rank) {
    try {
      using threads = cm::collective::local_threads;
      constexpr bool in_nodes = (std::same_as<Policies, cm::ownership::hierarchical> || ...);
      using ranks_type = std::conditional_t<in_nodes, cm::sharding::circles<threads>, threads>;
      ends here{groups, rank};
      using model_type = cm::sharded_model<typename Make::type, ranks_type, Policies...>;
      using trainer_type = one_of_many<Element, model_type, cm::optimizer::adam>;
      const auto on = [&](cm::bytes device, auto use) {
        auto memory = make(rank, device, wanted.frame_bytes() * 256);
        model_type model{memory, here.as<ranks_type>(), {.chunk_bytes = wanted.frame_bytes()}, {.divided = wanted.divided, .sum_scale = wanted.scale}};
        trainer_type trainer{model, kernel, wanted, alone.values};
        use(trainer);
      };
      cm::bytes device = wanted.frame_bytes() * (wanted.frames == 0 ? 64 : wanted.frames);
      if (wanted.is_tight) on(wanted.frame_bytes() * 256, [&](trainer_type& trainer) { device = trainer.least_device() + wanted.longest_unit(); });
      on(device, [&](trainer_type& trainer) {
        trainer.run();
        trainer.check_momentum(momentum);
        complaints[rank] = trainer.complaint;
        if (complaints[rank].empty() && trainer.norms != alone.norms) complaints[rank] = "rank " + std::to_string(rank) + ": another norm";
      });
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
