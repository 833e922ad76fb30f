// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/collective/thread_group.hpp>
#include <chunkmem/configurator/memory_proof.hpp>
#include <chunkmem/configurator/parallel_plan.hpp>
#include <chunkmem/configurator/planned_rank.hpp>
#include <chunkmem/configurator/planned_work.hpp>
#include <chunkmem/core/bytes.hpp>
#include <chunkmem/core/error.hpp>
#include <chunkmem/core/tier.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/schedule_generator.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/pipeline/thread_stages.hpp>
#include <chunkmem/workload/transformer.hpp>
#include <configurator/usual_node.hpp>
#include <support/oracles/dice.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <optional>
#include <vector>

namespace executed_plan {

namespace configurator = chunkmem::configurator;
using chunkmem::bytes;
using chunkmem::per_tier;
using chunkmem::tier;
using configurator::parallel_plan;
using configurator::planned_work;

/// The results of the ranks of a plan.
struct outcome {
  bool ran = true;
  std::optional<std::uint32_t> out_of_memory;  ///< the stage that had too little
};

/// Runs every rank of a plan with threads and real memory. @param room   of a rank, by stage
[[nodiscard]] inline outcome run(const planned_work& work, const std::vector<per_tier<bytes>>& room)
{
  using memory_type = chunkmem::backend::host_arena;
  using ranks_type = chunkmem::collective::local_threads;
  const std::uint32_t stages = work.plan.stages;
  const std::uint32_t replicas = work.plan.replicas;
  std::deque<chunkmem::pipeline::thread_stages> pipelines;
  for (std::uint32_t it = 0; it < replicas; ++it) pipelines.emplace_back(work.schedule);
  std::deque<chunkmem::collective::thread_group> groups;
  for (std::uint32_t it = 0; it < stages; ++it) groups.emplace_back(replicas);
  std::vector<outcome> found(std::size_t{stages} * replicas);
  const auto train = [&](auto& model, chunkmem::pipeline::thread_stages::place& here) {
    const chunkmem::pipeline::boundary_buffers buffers{work.schedule, here.stage(), work.inputs()};
    configurator::planned_rank rank{model, work, here.stage()};
    (void)model.rehearse([&] { rank.take_all(buffers.size()); });
    const auto boundaries = model.lease(tier::device, std::max(buffers.size(), bytes{1}));
    rank.fill();
    rank.begin();
    memory_type agents{{.device_capacity = bytes{256}}};  // of links: a model over replicas has none left for them
    auto links = here.links(agents);
    chunkmem::pipeline::stage_runner runner{work.schedule, links, agents, buffers,
                                            std::as_writable_bytes(boundaries.template span<std::uint8_t>())};
    runner.run(rank);
    rank.end();
  };
  chunkmem::collective::run_threads(stages * replicas, [&](std::uint32_t number) {
    chunkmem::pipeline::thread_stages::place here{pipelines[number / stages], number % stages};
    ranks_type group{groups[here.stage()], chunkmem::rank_id{number / stages}};
    try {
      memory_type memory{
          {.device_capacity = room[here.stage()][tier::device], .host_capacity = room[here.stage()][tier::host]}};
      const chunkmem::manager_options options{.chunk_bytes = work.chunk};
      const chunkmem::gradient::separate gradients;
      if (replicas == 1) {
        configurator::lone_model<memory_type> model{memory, options, gradients, update_place(work.plan)};
        train(model, here);
      } else {
        configurator::replicated_model<memory_type, ranks_type> model{
            memory, group, options, {.divided = divided_by(work.plan)}, gradients, update_place(work.plan)};
        train(model, here);
      }
    } catch (const chunkmem::comm_error&) {  // another rank failed
      found[number].ran = false;
    } catch (const chunkmem::config_error&) {
      found[number] = {false, here.stage()};
    } catch (const chunkmem::out_of_memory&) {
      found[number] = {false, here.stage()};
    }
    if (!found[number].ran) {
      here.all().revoke();
      group.revoke();
    }
  });
  outcome all;
  for (const outcome& it : found) {
    all.ran = all.ran && it.ran;
    if (it.out_of_memory) all.out_of_memory = it.out_of_memory;
  }
  return all;
}

/// A model that is small enough to be run often.
[[nodiscard]] inline chunkmem::workload::transformer_shape small_shape()
{
  return {.layers = 8,
          .hidden = 64,
          .heads = 4,
          .kv_heads = 4,
          .ffn = 256,
          .vocabulary = 500,
          .embedding = 64,
          .positions = 32,
          .sequence = 16};
}

/// As many nodes of one device as a plan has ranks.
[[nodiscard]] inline configurator::cluster cluster_for(const parallel_plan& plan, bytes device, bytes host)
{
  configurator::cluster whole{.name = "small", .nodes{}};
  whole.nodes.resize(plan.ranks(), support::usual_node("small"));
  for (configurator::cluster_node& it : whole.nodes) {
    it.device_bytes = device;
    it.host_bytes = host;
  }
  whole.links = configurator::link_matrix{plan.ranks(), {.latency = 1e-5, .bytes_per_second = 1e9}};
  return whole;
}

/// A plan of at most eight ranks, of any schedule.
[[nodiscard]] inline parallel_plan roll_plan(support::dice& dice)
{
  using configurator::schedule_kind;
  parallel_plan plan;
  plan.stages = dice.between(1, 4);
  plan.replicas = dice.between(1, 8 / plan.stages);
  plan.micro_batch = dice.between(1, 3);
  plan.micro_batches = plan.stages * dice.between(1, 3);
  plan.schedule = static_cast<schedule_kind>(dice.below(configurator::schedule_kinds));
  if (plan.stages == 1) plan.schedule = schedule_kind::one_f_one_b;
  plan.parts = plan.schedule == schedule_kind::interleaved || plan.schedule == schedule_kind::zb_v ? 2 : 1;
  plan.recomputes = dice.one_in(3);
  plan.states_on_host = dice.one_in(2);
  plan.zero = dice.between(1, 3);
  plan.devices.resize(plan.ranks());
  std::iota(plan.devices.begin(), plan.devices.end(), 0U);
  return plan;
}

/// The work of a plan, over as many batches as its needs depend on.
[[nodiscard]] inline planned_work work_for(const parallel_plan& plan, const configurator::trainer_traits& trainer = {})
{
  constexpr chunkmem::pipeline::pass_seconds seconds{.forward = 1, .backward_input = 1, .backward_weight = 1};
  return work_of(configurator::trained_model{small_shape(), trainer}, plan, seconds, 3);
}

}  // namespace executed_plan
