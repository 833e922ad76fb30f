// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>

#include <support/chosen_gradient.hpp>
#include <support/counting_ranks.hpp>
#include <support/every_policy.hpp>
#include <support/rank_training.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
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

/// One rank's ends of its groups for a backend that runs nothing by itself. Early updates exchange words while sums are
/// in progress; in other trainings nothing runs before a caller waits for it.
class driven_ends {
 public:
  using communicator_type = counting_ranks;

  template <class Backend>
  driven_ends(cm::sharding::thread_ranks::place& here, Backend& memory, updates when)
      : all_{here.all()},
        node_{here.process_groups().of(cm::ownership::process_group::node)},
        across_{here.process_groups().of(cm::ownership::process_group::across)}
  {
    if (when == updates::early)
      process_groups_.for_each([&](counting_ranks& group) { run_queues_before_words(group, memory); });
  }
  [[nodiscard]] counting_ranks& all() noexcept { return all_; }
  [[nodiscard]] auto& process_groups() noexcept { return process_groups_; }

 private:
  counting_ranks all_;
  counting_ranks node_;
  counting_ranks across_;
  cm::sharding::process_groups<counting_ranks> process_groups_{all_, node_, across_};
};

template <class Backend>
using places_of = std::conditional_t<stands_still<Backend>, driven_ends, cm::sharding::thread_ranks::place>;

/// The communicators of a model with this ownership.
template <class Ownership, class Backend = arena::type,
          class Communicator = typename places_of<Backend>::communicator_type>
using ends_of = std::conditional_t<std::same_as<Ownership, cm::ownership::hierarchical>,
                                   cm::sharding::process_groups<Communicator>, Communicator>;
template <class Ranks, class Place>
[[nodiscard]] Ranks& ends_as(Place& here)
{
  if constexpr (std::same_as<Ranks, typename Place::communicator_type>)
    return here.all();
  else
    return here.process_groups();
}

/// Whether sums have groups of their own.
template <class Ranks>
inline constexpr bool has_sums_apart = cm::sharding::process_groups_of<Ranks>::has_sums_apart;

/// One rank's ends of two sets of groups of the same ranks.
template <class Ranks>
class apart_ends;
template <class Inner>
class apart_ends<cm::sharding::sums_apart<Inner>> {
 public:
  apart_ends(cm::sharding::thread_ranks::place& gathers, const cm::sharding::thread_ranks& sums)
      : sums_{sums, gathers.rank()}, both_{ends_as<Inner>(gathers), ends_as<Inner>(sums_)}
  {
  }
  [[nodiscard]] cm::sharding::sums_apart<Inner>& both() noexcept { return both_; }

 private:
  cm::sharding::thread_ranks::place sums_;
  cm::sharding::sums_apart<Inner> both_;
};

/// A model over ranks whose policies are chosen when the program runs: models of one ownership are of one type.
template <class Ownership, class Backend = arena::type>
using chosen_model = cm::sharded_model<Backend, ends_of<Ownership, Backend>, Ownership, every_eviction, every_layout,
                                       every_placement, every_transfer, chosen_gradient>;

/// The complaints of each rank of a job. @param make   `make(rank, device, host)`: its backend
template <class Element, class Model, class Ranks, class Activations = no_activations, class Make, class... Policies>
std::vector<std::string> train_as(Make make, const job& wanted, const Policies&... policies)
{
  const cm::optimizer::adam kernel{{.weight_decay = 0.01F}};
  one_rank<Element, cm::optimizer::adam> alone{wanted, kernel};
  const auto momentum = alone.momentum();
  std::vector<std::string> complaints(wanted.ranks);
  std::atomic<std::size_t> early_ones = 0;  // none on a rank that owns nothing, or one large shard
  const cm::sharding::thread_ranks groups{wanted.ranks, wanted.of_node};
  const cm::sharding::thread_ranks groups_of_sums{wanted.ranks, wanted.of_node};  // for sums with groups of their own
  groups.run([&](cm::sharding::thread_ranks::place& here) {
    const std::uint32_t rank = here.rank();
    try {
      using steps_type = steps_of_ranks<Model, cm::optimizer::adam>;
      using trainer_type = one_of_many<Element, Model, cm::optimizer::adam, steps_type, Activations>;
      std::optional<std::conditional_t<has_sums_apart<Ranks>, apart_ends<Ranks>, int>> apart;
      if constexpr (has_sums_apart<Ranks>) apart.emplace(here, groups_of_sums);
      const auto on = [&](cm::bytes device, cm::call_ref<void(trainer_type&)> use) {
        auto memory = make(rank, device, wanted.frame_bytes() * 256);
        std::optional<driven_ends> driven;
        const auto ends = [&]() -> Ranks& {
          if constexpr (has_sums_apart<Ranks>)
            return apart->both();
          else if constexpr (stands_still<decltype(memory)>)
            return ends_as<Ranks>(driven.emplace(here, memory, wanted.when));
          else
            return ends_as<Ranks>(here);
        };
        Model model{memory,
                    ends(),
                    {.chunk_bytes = wanted.frame_bytes()},
                    {.divided = wanted.divided, .sum_scale = wanted.scale, .unit_bytes = wanted.unit_bytes()},
                    policies...};
        trainer_type trainer{model, kernel, wanted, alone.values};
        use(trainer);
      };
      cm::bytes device = wanted.frame_bytes() * (wanted.frames == 0 ? 64 : wanted.frames);
      if (wanted.is_tight)
        on(wanted.frame_bytes() * 256,
           [&](trainer_type& trainer) { device = trainer.least_device() + wanted.longest_unit(); });
      if (wanted.is_quarter)
        on(wanted.frame_bytes() * 256, [&](trainer_type& trainer) { device = trainer.least_device(); });
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

/// With policies that are chosen at run time.
template <class Element, class Ownership, class Make = arena>
std::vector<std::string> train_by(const policy_names& by, const job& wanted, Make make = {})
{
  return train_as<Element, chosen_model<Ownership, typename Make::type>, ends_of<Ownership, typename Make::type>>(
      make, wanted, every_eviction{by.eviction}, every_layout{by.layout}, every_placement{by.placement},
      every_transfer{by.transfer}, chosen_gradient{wanted.in_place});
}
/// With policies that the compiler knows, in a model that is `sharded`.
template <class Element, class... Policies>
std::vector<std::string> train(const job& wanted)
{
  using ranks = cm::collective::local_threads;
  return train_as<Element, cm::sharded_model<arena::type, ranks, Policies...>, ranks>(arena{}, wanted);
}

}  // namespace support::ranks
