// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/core/call_ref.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/step.hpp>
#include <chunkmem/ownership/ownerships.hpp>
#include <chunkmem/sharding/process_groups.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>

#include <support/every_policy.hpp>
#include <support/rank_training.hpp>
#include <support/train_on_ranks.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

/// A training that continues over other ranks than those it began on, and the same on one uninterrupted rank.
namespace resharding {

namespace cm = chunkmem;
using support::ranks::job;
using arena = cm::backend::host_arena;
using threads = cm::collective::local_threads;
using model_type = support::ranks::chosen_model<cm::ownership::hierarchical>;
using manager_type = cm::manager<arena>;

/// A part of a training, on some ranks.
struct phase {
  job how;
  std::string eviction = "lru";
  std::string layout = "append_layout";
};

/// Some blocks and a bit, whole blocks, one element, more than a chunk of four ranks, few.
inline constexpr std::array<std::uint64_t, 8> sizes{5000, 4096, 1, 17000, 300, 9000, 4097, 100};
inline constexpr std::size_t tied = 1, frozen = 4, unused = 5, late = 6, never = 7;
inline constexpr std::uint32_t first_of_late = 2;  ///< step of its first gradient: the checkpoint is made before it

[[nodiscard]] inline bool has_gradient(std::size_t tensor, std::uint32_t step)
{
  return tensor != frozen && tensor != never && (tensor != unused || step % 2 == 0) &&
         (tensor != late || step >= first_of_late);
}
[[nodiscard]] inline cm::optimizer::adam kernel_of_all()
{
  cm::optimizer::adam all{{.weight_decay = 0.01F}};
  all.group(cm::group_id{1}, {.beta1 = 0.8F, .weight_decay = 0.0F});
  return all;
}

/// The common declarations of one rank and many.
template <class Element, class Model>
struct declared {
  explicit declared(Model& model) : m{model}, kernel{kernel_of_all()}
  {
    m.use(kernel);
    for (std::size_t index = 0; index < sizes.size(); ++index)
      weights.push_back(m.template add<Element>({sizes[index]},
                                                index == frozen ? cm::role::frozen : cm::role::parameter,
                                                cm::group_id{index % 3 == 2 ? 1U : 0U}));
    buffer = m.template add<float>({7}, cm::role::buffer);
    empty = m.template add<float>({3}, cm::role::buffer);
    m.name(weights[3], "large one");
    m.state("cursor", std::as_writable_bytes(std::span{cursor}));
  }
  void fill()
  {
    for (std::size_t index = 0; index < sizes.size(); ++index) {
      const auto pin = m.acquire(weights[index], cm::access::write);
      for (std::uint64_t i = 0; i < sizes[index]; ++i)
        pin.span()[i] = cm::round_to<Element>(support::ranks::first_value(index, i));
    }
    tell(0);
  }
  /// What is no weight goes with the step.
  void tell(std::uint32_t step)
  {
    cursor = {step, step * 3, 77};
    for (float& it : m.acquire(buffer, cm::access::write).span()) it = static_cast<float>(step) + 0.5F;
  }
  [[nodiscard]] bool was_told(std::uint32_t step)
  {
    const auto pin = m.acquire(buffer, cm::access::read);
    return cursor == std::array<std::uint32_t, 3>{step, step * 3, 77} && kernel.progress.number == step &&
           std::ranges::all_of(pin.span(), [&](float it) { return it == static_cast<float>(step) + 0.5F; });
  }

  Model& m;
  cm::optimizer::adam kernel;
  std::vector<cm::tensor<Element>> weights;
  cm::tensor<float> buffer;
  cm::tensor<float> empty;  ///< never written
  std::array<std::uint32_t, 3> cursor{};
};

[[nodiscard]] inline cm::optimizer::step_options options_of(const job& how, const std::array<float, 2>& rates)
{
  return {.group_rates = rates, .clip = {.norm = how.clip}};
}
inline constexpr std::array<float, 2> group_rates{0.01F, 0.003F};

/// One rank that never stops: gradients are added in the grouping of whoever would train now.
template <class Element>
class undisturbed {
 public:
  undisturbed() { tensors.fill(), values.push_back(now()); }

  void train(const job& how)
  {
    for (std::uint32_t count = 0; count < how.steps; ++count) step(how, static_cast<std::uint32_t>(values.size()) - 1);
  }

  arena memory{{.device_capacity = cm::bytes{16U << 20U}, .host_capacity = cm::bytes{16U << 20U}}};
  manager_type m{memory, {.chunk_bytes = cm::bytes{256U << 10U}}};
  declared<Element, manager_type> tensors{m};
  support::ranks::history<Element> values;  ///< before the first step and after each
  std::vector<double> norms;

 private:
  std::vector<std::vector<Element>> now() { return support::ranks::values_of(m, tensors.weights); }
  void step(const job& how, std::uint32_t number)
  {
    {
      auto scope = m.iteration();
      for (std::size_t index = 0; index < sizes.size(); ++index)
        if (has_gradient(index, number)) make_gradient(how, index, number);
      norms.push_back(cm::optimizer::step(m, tensors.kernel, options_of(how, group_rates)).norm);
    }
    tensors.tell(number + 1);
    values.push_back(now());
  }
  void make_gradient(const job& how, std::size_t index, std::uint32_t number)
  {
    const std::vector<Element>& weight = values.back()[index];
    const auto add = [&](std::vector<Element>& to, std::uint32_t rank, std::uint32_t batch, bool adds) {
      for (std::uint32_t visit = 0; visit < (index == tied ? 2U : 1U); ++visit)
        support::ranks::write_gradient(to.data(), weight.data(), to.size(), adds || visit > 0, index, rank, batch,
                                       number, visit);
    };
    const std::vector<Element> all = support::ranks::gradient_over_ranks<Element>(how, weight.size(), add);
    std::ranges::copy(all, m.gradient(tensors.weights[index]).span().begin());
  }
};

/// One rank of many. What it reads is compared with `wanted`.
template <class Element>
class rank_of_many {
 public:
  rank_of_many(model_type& model, const job& how, const support::ranks::history<Element>& wanted)
      : tensors{model}, m_{model}, how_{how}, wanted_{wanted}
  {
  }

  [[nodiscard]] cm::bytes least_device(std::uint32_t first)
  {
    cm::bytes least{};
    for (std::uint32_t index = 0; index < how_.steps; ++index)
      least = std::max(least, m_.rehearse([&] { (void)step(first + index); }).smallest_device);
    return least;
  }
  /// @return   the norm
  double step(std::uint32_t number)
  {
    auto scope = m_.iteration(how_.micro_batches);
    for (std::uint32_t batch = 0; batch < how_.micro_batches; ++batch) {
      scope.pass(cm::pass::forward, batch);
      for (std::size_t index = 0; index < sizes.size(); ++index) read(index, number);
      scope.pass(cm::pass::backward, batch);
      for (std::size_t index = sizes.size(); index-- > 0;)
        if (has_gradient(index, number)) backward(index, number, batch);
      visit(tied, number, batch, 1);
      done(tied, batch);
    }
    return m_.step(tensors.kernel, options_of(how_, group_rates)).norm;
  }
  void check_all(std::uint32_t number)
  {
    for (std::size_t index = 0; index < sizes.size(); ++index) read(index, number);
  }

  declared<Element, model_type> tensors;

 private:
  void read(std::size_t index, std::uint32_t number)
  {
    const auto pin = m_.acquire(tensors.weights[index], cm::access::read);
    if (!m_.rehearsing() && !support::ranks::equal(pin.data(), wanted_[number][index]))
      throw std::runtime_error{"before step " + std::to_string(number) + " weight " + std::to_string(index) +
                               " differs"};
  }
  void backward(std::size_t index, std::uint32_t number, std::uint32_t batch)
  {
    visit(index, number, batch, 0);
    if (index != tied) done(index, batch);
  }
  void done(std::size_t index, std::uint32_t batch)
  {
    if (how_.sums_each || batch + 1 == how_.micro_batches) m_.gradient_done(tensors.weights[index]);
  }
  void visit(std::size_t index, std::uint32_t number, std::uint32_t batch, std::uint32_t which)
  {
    const auto gradient = m_.gradient(tensors.weights[index]);
    if (m_.rehearsing()) return;
    const auto& before = wanted_[number][index];
    support::ranks::write_gradient(gradient.data(), before.data(), before.size(), gradient.beta() != 0, index,
                                   cm::index_of(m_.ranks().rank()), batch, number, which);
  }

  model_type& m_;
  job how_;
  const support::ranks::history<Element>& wanted_;
};

/// Runs `work(rank, trainer)` on all ranks of a phase. @param first   its first step @throws what a rank throws
template <class Element>
using work_of_rank = cm::call_ref<void(std::uint32_t rank, model_type& model, rank_of_many<Element>& trainer)>;

template <class Element>
void on_ranks(const phase& now, std::uint32_t first, const support::ranks::history<Element>& wanted,
              std::type_identity_t<work_of_rank<Element>> work)
{
  const job& how = now.how;
  cm::sharding::thread_ranks{how.ranks, how.of_node}.run([&](cm::sharding::thread_ranks::place& here) {
    const auto on = [&](cm::bytes device, cm::call_ref<void(model_type&, rank_of_many<Element>&)> use) {
      arena memory{{.device_capacity = device, .host_capacity = how.frame_bytes() * 128}};
      model_type model{memory,
                       here.process_groups(),
                       {.chunk_bytes = how.frame_bytes()},
                       {.divided = how.divided, .sum_scale = how.scale},
                       support::every_eviction{now.eviction},
                       support::every_layout{now.layout},
                       support::every_placement{"optimizer_on_host"},
                       support::every_transfer{"lookahead"}};
      rank_of_many<Element> trainer{model, how, wanted};
      use(model, trainer);
    };
    cm::bytes device = how.frame_bytes() * 64;
    if (how.is_tight)
      on(device, [&](model_type&, rank_of_many<Element>& trainer) {
        device = trainer.least_device(first) + cm::align_up(cm::bytes{sizes[3] * 4}, how.frame_bytes());
      });
    on(device, [&](model_type& model, rank_of_many<Element>& trainer) { work(here.rank(), model, trainer); });
  });
}

}  // namespace resharding
