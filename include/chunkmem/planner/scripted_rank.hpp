// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/simulated.hpp>
#include <chunkmem/backend/stream_backend.hpp>
#include <chunkmem/chunk/chunk_layout.hpp>
#include <chunkmem/collective/simulated_ranks.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/eviction/eviction_policy.hpp>
#include <chunkmem/manager/rehearsal.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/optimizer/planned_optimizer.hpp>
#include <chunkmem/optimizer/step_options.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/planner/layer_activations.hpp>
#include <chunkmem/planner/own_chunks.hpp>
#include <chunkmem/planner/parameter_groups.hpp>
#include <chunkmem/planner/rank_settings.hpp>
#include <chunkmem/planner/training_script.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/tensor/dtype.hpp>
#include <chunkmem/tensor/tensor.hpp>
#include <chunkmem/transfer/transfer_policy.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace chunkmem::inline v0 {

namespace planner {

/// One of several ranks, without its arithmetic: declares the tensors of a transformer, leases and releases the bytes
/// of a script, reads weights, writes gradients and takes steps of the optimizer, as the trainer of a plan does.
///
/// So it needs the same bytes as that trainer, and its rehearsal measures them. The device computes with weights, so
/// norms are taken in the step.
///
///     sharded_model<backend::simulated, collective::simulated_ranks> m{memory, ranks, options, division};
///     scripted_rank rank{m, tensors, script, settings, ranks.ranks()};
///     const memory_requirement need = m.rehearse([&] { rank.step(); });
///
/// @tparam Model   a sharded_model   Cost: that of an access for each use of the script
template <class Model>
class scripted_rank {
 public:
  /// All arguments outlive this object. @param m   without declarations   @param tensors   a group for each tensor
  scripted_rank(Model& m, const parameter_groups& tensors, const training_script& script, const rank_settings& settings,
                std::uint64_t ranks)
      : m_{m},
        script_{script},
        settings_{settings},
        leases_(script.leases()),
        saved_(tensors.stages() - 2),
        optimizer_{settings.states}
  {
    for (std::uint32_t index = 0; index < tensors.groups(); ++index)
      weights_.push_back(m_.template add<bf16>({tensors.elements_of(index)}, role::parameter));
    const std::uint64_t chunk = chunk_elements_of(settings, ranks);
    for (std::uint32_t layer = 0; layer < saved_.size(); ++layer)
      for (std::uint64_t left = (script.saved_by(layer).count() + 1) / 2; left > 0; left -= std::min(left, chunk))
        saved_[layer].push_back(m_.template add<bf16>({std::min(left, chunk)}, role::activation));
    m_.use(optimizer_);
  }
  scripted_rank(const scripted_rank&) = delete;

  /// Gives each weight its first value, on the host, one after the other.
  void fill()
  {
    for (const tensor<bf16> weight : weights_) (void)m_.acquire(weight, access::write);
  }
  void step()
  {
    auto scope = m_.iteration();
    scope.pass(pass::forward);
    for (const act& it : script_.acts()) switch (it.kind) {
        case act_kind::lease: leases_[it.id] = m_.lease(tier::device, it.size, agent::compute); break;
        case act_kind::give: leases_[it.id].release(); break;
        case act_kind::backward: scope.pass(pass::backward); break;
        case act_kind::use: use(it); break;
        case act_kind::save: hold(it, access::write); break;
        case act_kind::restore: hold(it, access::read); break;
        case act_kind::let_go: held_.clear(); break;
        case act_kind::drop:
          for (const tensor<bf16> each : saved_[it.id]) m_.drop(each);
          break;
      }
    optimizer::step_options options;
    options.skip_nonfinite = false;
    if (settings_.takes_norm) options.clip.norm = 1.0F;
    if (settings_.updates_late)
      late_.step(options);
    else
      m_.step(optimizer_, options);
  }

 private:
  using lease_type = decltype(std::declval<Model&>().lease(tier::device, bytes{}));
  using held_pin = std::variant<typename Model::template pin_type<const bf16>, typename Model::template pin_type<bf16>>;

  void use(const act& it)
  {
    const tensor<bf16> weight = weights_[it.id];
    if (it.reads) (void)m_.acquire(weight, access::read, agent::compute);
    if (!it.makes_gradient) return;
    const auto finish = [&](auto gradient) {
      it.finishes_gradient ? m_.gradient_done(std::move(gradient)) : gradient.release();
    };
    if (settings_.has_wide_gradients())
      finish(m_.template gradient<float>(weight, agent::compute));
    else
      finish(m_.template gradient<bf16>(weight, agent::compute));
  }
  template <class Access>
  void hold(const act& it, Access how)
  {
    for (const tensor<bf16> each : saved_[it.id]) held_.push_back(m_.acquire(each, how, agent::compute));
  }

  Model& m_;
  const training_script& script_;
  const rank_settings& settings_;
  std::vector<tensor<bf16>> weights_;
  std::vector<lease_type> leases_;
  std::vector<std::vector<tensor<bf16>>> saved_;  // by layer
  std::vector<held_pin> held_;
  optimizer::planned_optimizer optimizer_;
  optimizer::late_updates<Model, optimizer::planned_optimizer> late_{m_, optimizer_};
};

/// Rehearses one of several ranks on a machine without bytes, with the model over ranks of a plan.
///
/// The rank then gives weights their first values on the host, one after the other, and takes steps. Where weights stay
/// whole, first values may need more of the host than a step.
/// @param activations   as of forecast_training
/// @return   the bytes of one rank, exact   @throws config_error, out_of_memory   these capacities are too small
/// Cost: that of two rehearsals or more
template <eviction_policy Eviction, transfer_policy Transfer, chunk_layout Layout>
[[nodiscard]] memory_requirement rehearse_over_ranks(const workload::transformer_shape& shape,
                                                     const workload::training_setup& setup,
                                                     const workload::rank_share& share, const rank_settings& settings,
                                                     const layer_activations& activations, per_tier<bytes> capacity,
                                                     Eviction eviction = {}, Transfer transfer = {}, Layout layout = {})
{
  const parameter_groups tensors{shape, setup};
  constexpr double any_rate = 1e9;  // bytes do not depend on time
  const training_script script{tensors, activations, any_rate};
  const auto with_rank = [&](per_tier<bytes> room, auto work) {
    backend::simulated memory{{.device_capacity = room[tier::device], .host_capacity = room[tier::host]}};
    collective::simulated_ranks ranks{exchange_of(share, settings).network};
    sharded_model<backend::simulated, collective::simulated_ranks, Layout, Eviction, Transfer, placement::update_share,
                  planned_gradient>
        model{memory,
              ranks,
              {.chunk_bytes = bytes{2} * chunk_elements_of(settings, share.ranks)},
              division_of(settings, share.ranks),
              layout,
              eviction,
              transfer,
              placement::update_share{settings.device_update_share},
              settings.gradient};
    scripted_rank rank{model, tensors, script, settings, share.ranks};
    work(model, rank);
  };
  memory_requirement told;
  const auto train = [&](auto& model, auto& rank) {
    constexpr int until_repeated = 4;  // steps
    told = model.rehearse([&] { rank.step(); });
    rank.fill();
    for (int step = 0; step < until_repeated; ++step) rank.step();
  };
  const auto trains = [&](bytes host) {
    try {
      with_rank({{capacity[tier::device], host}}, train);
      return true;
    } catch (const config_error&) {
      return false;
    } catch (const out_of_memory&) {
      return false;
    }
  };
  with_rank(capacity, train);
  memory_requirement need = told;
  if (trains(need.smallest_host)) return need;
  const bytes most = std::max(std::min(capacity[tier::host], need.everything), need.smallest_host);
  std::uint64_t low = 0;  // frames more: too few
  std::uint64_t high = (most - need.smallest_host).count() / need.chunk_bytes.count();
  while (high > low + 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (trains(need.smallest_host + middle * need.chunk_bytes) ? high : low) = middle;
  }
  need.smallest_host += high * need.chunk_bytes;
  return need;
}

}  // namespace planner

}  // namespace chunkmem::inline v0
