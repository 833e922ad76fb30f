// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "budget.hpp"
#include "checkpoints.hpp"
#include "display.hpp"
#include "stage_trainer.hpp"
#include "training_grid.hpp"

#include <chunkmem/backend/host_arena.hpp>
#include <chunkmem/chunkmem.hpp>
#include <chunkmem/pipeline/boundary_buffers.hpp>
#include <chunkmem/pipeline/stage_runner.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/tensor/gradient_measure.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

namespace gpt {

/// The training that all stages share.
struct stage_setup {
  const options& chosen;
  const training_text& text;
  chunkmem::optimizer::thread_pool& workers;
  const training_grid& grid;
  bool is_limited = true;  ///< to a part of the memory that a stage needs

  [[nodiscard]] trainer_settings settings() const
  {
    return {.schedule = {chosen.learning_rate, chosen.steps},
            .seed = chosen.seed,
            .precision = chosen.precision,
            .clip = chosen.clip,
            .activations = chosen.activations};
  }
  [[nodiscard]] chunkmem::bytes chunk() const
  {
    const std::uint64_t grain =
        grid.replicas == 1 ? 4096 : grid.replicas * chunkmem::measure_block * sizeof(float);  // whole shares
    return align_up(chosen.chunk_bytes.value_or(chunkmem::bytes{chosen.size.largest_tensor_bytes()}),
                    chunkmem::bytes{grain});
  }
  /// Bytes that a part gets from the part before, for one micro-batch.
  [[nodiscard]] std::vector<chunkmem::bytes> inputs() const
  {
    const extents& size = chosen.size;
    return std::vector<chunkmem::bytes>(grid.plan.part_count(),
                                        chunkmem::bytes{size.batch * size.context * size.width * sizeof(float)});
  }
};

/// One rank: its device, its parts of the model, and the trainer that works on them.
/// @tparam Here   a place of thread_grid, or process_grid   @tparam has_replicas   its stage is divided over others
template <class Here, bool has_replicas>
class stage_session {
 public:
  using backend_type = chunkmem::backend::host_arena;
  using ranks_type = typename Here::communicator_type;
  using manager_type = std::conditional_t<
      has_replicas,
      chunkmem::sharded_model<backend_type, ranks_type, any_eviction, any_layout, any_transfer, any_placement>,
      chunkmem::manager<backend_type, any_eviction, any_layout, any_placement, any_transfer>>;
  using folder_paths = std::vector<std::filesystem::path>;

  /// @param others   as folders_of_others
  stage_session(const stage_setup& setup, Here& here, chunkmem::bytes device, chunkmem::bytes host,
                folder_paths others = {})
      : setup_{setup},
        others_{std::move(others)},
        files_{own_files(setup, here.stage(), others_)},
        here_{here},
        buffers_{setup.grid.plan, here.stage(), setup.inputs()},
        memory_{{.device_capacity = device, .host_capacity = host}},
        manager_{manager_of(setup, here, memory_)},
        trainer_{manager_, setup.chosen.size, setup.grid.plan, here, setup.text, setup.settings(), setup.workers}
  {
  }
  stage_session(const stage_session&) = delete;

  /// The folders of all stages that saved what is resumed, unless each stage goes on in its own.
  /// @throws problem   this training would be saved into folders of other stages, or one of the folders is missing
  [[nodiscard]] static folder_paths folders_of_others(const stage_setup& setup)
  {
    constexpr std::size_t most_stages = 64;
    folder_paths found;
    const options& chosen = setup.chosen;
    if (!setup.is_limited || !chosen.resume || has_replicas) return found;
    const std::uint32_t stages = setup.grid.plan.stage_count();
    const auto has_hole = [&](std::size_t stage) { return found.size() != stage; };
    bool are_here = true;  // as many stages, all with files of some save
    for (std::size_t stage = 0; stage < most_stages; ++stage) {
      const std::filesystem::path folder = *chosen.resume / folder_of(stage);
      are_here = are_here && has_traces(folder) == (stage < stages);
      if (!has_checkpoint(folder)) continue;
      if (has_hole(stage) && !goes_on_in_place(chosen))
        throw problem{"--resume '" + chosen.resume->string() + "' has checkpoints of " + folder_of(stage) +
                      ", and none of " + folder_of(found.size()) + " (bring that folder back)"};
      found.push_back(folder);
    }
    if (!goes_on_in_place(chosen)) return found;
    if (!found.empty() && !are_here)
      throw problem{"--checkpoint '" + chosen.checkpoint->string() + "' holds a training of " +
                    std::to_string(found.size()) + (found.size() == 1 ? " stage" : " stages") + ", and --stages says " +
                    std::to_string(stages) + " (save into another folder)"};
    return {};
  }

  /// The memory that the stage needs. Stages do not talk in a rehearsal.
  [[nodiscard]] auto rehearse()
  {
    return manager_.rehearse([this] {
      const auto boundaries = lease_boundaries();
      trainer_.rehearse();
    });
  }

  /// Rehearses and trains. @param show   null trains silently
  /// @return   the same on every stage
  [[nodiscard]] training_result train(const display* show)
  {
    (void)rehearse();
    trainer_.fill();
    if (files_.checkpoint) std::filesystem::create_directories(*files_.checkpoint);
    checkpoints<files_of_stages> saves{
        files_, others_.empty() ? std::string{}
                                : setup_.chosen.resume->string() + " of " + std::to_string(others_.size()) + " stages"};
    saved_stage saved{here_.all(), manager_, others_};
    const bool prints = show != nullptr && trainer_.has_loss() && here_.replica() == 0;
    if (const std::string found = saves.resume(saved); prints && !found.empty()) show->line(found);
    if (prints) trainer_.on_update([this, show](std::uint32_t it) { tell(*show, it); });
    if (files_.checkpoint)
      trainer_.on_save([&](std::uint32_t it) { return saves.is_due(it + std::size_t{1}); },
                       [&](std::uint32_t it) {
                         const std::string what = saves.save_after(it + std::size_t{1}, saved);
                         if (prints) show->line(what);
                       });
    before_ = clock::now();
    backend_type couriers{{}};  // links have agents of their own: those of one backend may be too few
    auto links = here_.links(couriers);
    {
      const auto boundaries = lease_boundaries();
      chunkmem::pipeline::stage_runner runner{setup_.grid.plan, links, couriers, buffers_,
                                              std::as_writable_bytes(boundaries.template span<std::uint8_t>())};
      trainer_.begin();
      runner.run(trainer_, trainer_.updates());
      trainer_.end();
    }
    return agreed_result();
  }

  [[nodiscard]] chunkmem::report report() const { return manager_.report(); }

 private:
  [[nodiscard]] static manager_type manager_of(const stage_setup& setup, Here& here, backend_type& memory)
  {
    const options& chosen = setup.chosen;
    const chunkmem::manager_options chunks{.chunk_bytes = setup.chunk()};
    if constexpr (has_replicas)
      return manager_type{memory,          here.replicas(), chunks,          {.divided = setup.grid.divided},
                          chosen.eviction, chosen.layout,   chosen.transfer, chosen.placement};
    else
      return manager_type{memory, chunks, chosen.eviction, chosen.layout, chosen.placement, chosen.transfer};
  }
  [[nodiscard]] static std::string folder_of(std::size_t stage) { return "stage-" + std::to_string(stage); }
  using clock = std::chrono::steady_clock;

  [[nodiscard]] auto lease_boundaries()
  {
    return manager_.lease(chunkmem::tier::device, std::max(buffers_.size(), chunkmem::bytes{256}));
  }
  void tell(const display& show, std::uint32_t batch)
  {
    const auto now = clock::now();
    const double seconds = std::chrono::duration<double>(now - before_).count();
    const chunkmem::bytes moved = manager_.report().loaded + manager_.report().written_back;
    show.step({batch + std::size_t{1}, setup_.chosen.steps, trainer_.loss(batch),
               trainer_.settings().schedule.at(batch), static_cast<double>(trainer_.tokens_of_batch()) / seconds,
               moved - moved_, trainer_.skipped() > skipped_, seconds});
    before_ = now;
    moved_ = moved;
    skipped_ = trainer_.skipped();
  }

  /// Losses of a stage that has them, and a hash of the weights of all stages in the order of the model.
  /// @throws problem   copies of a weight differ, of replicas or of a tied one
  [[nodiscard]] training_result agreed_result()
  {
    training_result result;
    std::vector<std::uint64_t> losses(setup_.chosen.steps, 0);
    if (trainer_.has_loss())
      for (std::size_t batch = 0; batch < losses.size(); ++batch)
        losses[batch] = std::bit_cast<std::uint32_t>(trainer_.loss(batch));
    const std::vector<std::vector<std::uint64_t>> all_losses = exchanged(losses);
    for (const std::uint64_t word : all_losses[setup_.grid.plan.owners.back()])  // of the first replica
      result.losses.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
    const std::vector<std::vector<std::uint64_t>> hashes = exchanged(trainer_.hashes());
    fnv1a all;
    for (std::size_t number = 0; number < hashes.front().size(); ++number) {
      std::uint64_t of_parameter = 0;
      for (const std::vector<std::uint64_t>& rank : hashes) {
        if (rank[number] == 0 || rank[number] == of_parameter) continue;
        if (of_parameter != 0)
          throw problem{"copies of a weight ended different: this must not happen, please report it"};
        of_parameter = rank[number];
      }
      all.add_words(std::as_bytes(std::span{&of_parameter, 1}));
    }
    result.parameter_hash = all.value();
    return result;
  }
  /// Words of every rank.
  [[nodiscard]] std::vector<std::vector<std::uint64_t>> exchanged(const std::vector<std::uint64_t>& mine)
  {
    std::vector<std::uint64_t> all(mine.size() * here_.world().ranks());
    here_.world().exchange(mine, all);
    std::vector<std::vector<std::uint64_t>> by_rank;
    for (auto it = all.begin(); it != all.end(); it += static_cast<std::ptrdiff_t>(mine.size()))
      by_rank.emplace_back(it, it + static_cast<std::ptrdiff_t>(mine.size()));
    return by_rank;
  }

  struct saved_stage {
    ranks_type& stages;
    manager_type& manager;
    const folder_paths& others;
  };
  /// The folders of the command line have one for each stage. A training without a limit has none.
  [[nodiscard]] static options own_files(const stage_setup& setup, std::uint32_t stage, const folder_paths& others)
  {
    options own = setup.chosen;
    if (!setup.is_limited) {
      own.checkpoint.reset();
      own.resume.reset();
    }
    if (own.checkpoint) *own.checkpoint /= folder_of(stage);
    if (own.resume) *own.resume = others.empty() ? *own.resume / folder_of(stage) : others.front();
    return own;
  }

  stage_setup setup_;
  folder_paths others_;
  options files_;
  Here& here_;
  chunkmem::pipeline::boundary_buffers buffers_;
  backend_type memory_;
  manager_type manager_;
  stage_trainer<manager_type, Here> trainer_;
  clock::time_point before_;
  chunkmem::bytes moved_;
  std::size_t skipped_ = 0;
};

/// The room that a plan gives a stage, or as much of it as the stage can use. @param need   of the stage
/// @throws problem   its device is below the smallest that works
[[nodiscard]] inline chunkmem::per_tier<chunkmem::bytes> planned_room(const stage_setup& setup, std::uint32_t stage,
                                                                      const chunkmem::memory_requirement& need)
{
  using enum chunkmem::tier;
  auto room = setup.grid.rooms[stage];
  if (need.smallest_device > room[device])
    throw problem{"stage " + std::to_string(stage) + " of the plan has a device of " + size_text(room[device]) +
                  ", and gpt needs " + size_text(need.smallest_device) +
                  " there (plan again with a --device-allowance of " +
                  std::to_string((need.smallest_device - room[device]).count()) + " or more)"};
  room[device] = std::min(room[device], need.everything + 8 * setup.chunk());
  room[host] = std::min(room[host], need.chunks + setup.chunk());
  return room;
}

/// The memory that a stage needs, and the memory that it is given.
struct stage_budget {
  chunkmem::bytes everything, smallest_device, device, host;
};

/// @throws problem   the device is below the smallest that works
template <class Here, bool has_replicas>
[[nodiscard]] stage_budget budget_of_stage(const stage_setup& setup, Here& here)
{
  const auto need = stage_session<Here, has_replicas>{setup, here, boundless, boundless}.rehearse();
  stage_budget budget{.everything = need.everything, .smallest_device = need.smallest_device, .device = {}, .host = {}};
  if (!setup.is_limited) {
    budget.device = need.everything + 8 * setup.chunk();
    budget.host = need.chunks + setup.chunk();
    return budget;
  }
  const chunkmem::bytes quarter{need.everything.count() / 4};
  chunkmem::per_tier<chunkmem::bytes> room{{std::max(quarter, need.smallest_device), need.chunks + setup.chunk()}};
  if (!setup.grid.rooms.empty()) room = planned_room(setup, here.stage(), need);
  budget.device = setup.chosen.device_memory.value_or(room[chunkmem::tier::device]);
  budget.host = setup.chosen.host_memory.value_or(room[chunkmem::tier::host]);
  check(setup.chosen,
        memory_budget{.weights = {},
                      .gradients = {},
                      .optimizer_states = {},
                      .activations = {},
                      .workspace = {},
                      .everything = budget.everything,
                      .smallest_device = budget.smallest_device,
                      .device = budget.device,
                      .host = budget.host,
                      .unlimited_device = {},
                      .unlimited_host = {}},
        {.host = chunkmem::bytes{machine_memory().count() / (setup.grid.rooms.empty() ? setup.grid.ranks() : 1)},
         .device = {}});  // ranks of a plan may be on several computers
  return budget;
}

/// The lines before the first step: the schedule, and each stage. Every stage calls it, one of them prints.
template <class Here>
void show_stages(const stage_setup& setup, Here& here, const stage_budget& budget, const display* show)
{
  constexpr std::size_t words = 3;
  const std::uint64_t mine[words] = {budget.everything.count(), budget.smallest_device.count(), budget.device.count()};
  std::vector<std::uint64_t> all(words * here.all().ranks());
  here.all().exchange(mine, all);
  if (show == nullptr) return;
  const chunkmem::pipeline::schedule& plan = setup.grid.plan;
  show->line("pipeline " + plan.name + ": " + std::to_string(plan.stage_count()) + " stages, " +
             std::to_string(plan.part_count()) + " parts, " + std::to_string(plan.micro_batches) +
             " micro-batches in a step, " + std::to_string(plan.versions) +
             (plan.versions == 1 ? " version" : " versions") + " of the weights");
  if (setup.grid.replicas > 1)
    show->line("replicas " + std::to_string(setup.grid.replicas) + " of each stage, which divide " +
               (setup.grid.divided.parameters  ? "weights, gradients and states"
                : setup.grid.divided.gradients ? "gradients and states"
                                               : "states"));
  for (std::uint32_t stage = 0; stage < plan.stage_count(); ++stage) {
    std::string layers;
    for (std::uint32_t part = 0; part < plan.part_count(); ++part) {
      if (plan.owners[part] != stage) continue;
      const part_of_model it = part_of_model::of(part, plan.part_count(), setup.chosen.size.layers);
      layers += (layers.empty() ? "" : ", ") + std::to_string(it.first);
      if (it.count > 1) layers += " to " + std::to_string(it.first + it.count - 1);
    }
    const std::uint64_t* const bytes_of = all.data() + words * stage;
    show->line("stage " + std::to_string(stage) + " layers " + layers + ": needs " +
               size_text(chunkmem::bytes{bytes_of[0]}) + ", given a device of " +
               size_text(chunkmem::bytes{bytes_of[2]}) + " (smallest possible " +
               size_text(chunkmem::bytes{bytes_of[1]}) + ")");
  }
}

/// The last part's stage in the first pipeline: it prints.
template <class Here>
[[nodiscard]] bool prints(const training_grid& grid, Here& here)
{
  return here.replica() == 0 && here.stage() == grid.plan.owners.back();
}

template <bool has_replicas, class Here>
[[nodiscard]] training_result train_stage(const stage_setup& setup, Here& here, const display* show)
{
  using session_type = stage_session<Here, has_replicas>;
  auto others = session_type::folders_of_others(setup);  // before a stage that is ahead makes a folder
  const stage_budget budget = budget_of_stage<Here, has_replicas>(setup, here);
  if (setup.is_limited) show_stages(setup, here, budget, prints(setup.grid, here) ? show : nullptr);
  return session_type{setup, here, budget.device, budget.host, std::move(others)}.train(setup.is_limited ? show
                                                                                                         : nullptr);
}

/// Trains one rank.
template <class Here>
[[nodiscard]] training_result run_stage(const stage_setup& setup, Here& here, const display* show)
{
  return setup.grid.replicas > 1 ? train_stage<true>(setup, here, show) : train_stage<false>(setup, here, show);
}

}  // namespace gpt
