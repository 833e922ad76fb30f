// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../interruption.hpp"
#include "budget.hpp"
#include "checkpoints.hpp"
#include "display.hpp"
#include "gather_times.hpp"
#include "metrics.hpp"
#include "report.hpp"
#include "run.hpp"
#include "stage_foresight.hpp"
#include "stage_run_times.hpp"
#include "stage_trainer.hpp"
#include "step_watch.hpp"
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
#include <optional>
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
            .clip = clip_of(chosen),
            .activations = chosen.activations};
  }
  [[nodiscard]] chunkmem::bytes chunk() const
  {
    const std::uint64_t grain =
        grid.replicas == 1 ? 4096 : grid.replicas * chunkmem::measure_block * sizeof(float);  // whole shards
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

/// The manager of a stage. @tparam has_replicas   the stage is divided over others
template <class Backend, class Ranks, bool has_replicas>
using stage_manager =
    std::conditional_t<has_replicas,
                       chunkmem::sharded_model<Backend, Ranks, any_eviction, any_layout, any_transfer, any_placement>,
                       chunkmem::manager<Backend, any_eviction, any_layout, any_placement, any_transfer>>;

/// @param here, memory   outlive the manager
template <class Manager, class Here, class Backend>
[[nodiscard]] Manager manager_of_stage(const stage_setup& setup, Here& here, Backend& memory)
{
  const options& chosen = setup.chosen;
  const chunkmem::manager_options chunks{.chunk_bytes = setup.chunk()};
  if constexpr (requires(Manager& m) { m.shares(); })
    return Manager{memory,          here.replicas(), chunks,          {.divided = setup.grid.divided},
                   chosen.eviction, chosen.layout,   chosen.transfer, chosen.placement};
  else
    return Manager{memory, chunks, chosen.eviction, chosen.layout, chosen.placement, chosen.transfer};
}

/// Buffers for tensors that are received from other stages and sent to them.
template <class Manager>
[[nodiscard]] auto lease_boundaries(Manager& manager, const chunkmem::pipeline::boundary_buffers& buffers)
{
  return manager.lease(chunkmem::tier::device, std::max(buffers.size(), chunkmem::bytes{256}));
}

/// One rank: its device, its parts of the model, and the trainer that works on them.
/// @tparam Here   a place of thread_grid, or process_grid   @tparam has_replicas   its stage is divided over others
template <class Here, bool has_replicas>
class stage_session {
 public:
  using backend_type = chunkmem::backend::host_arena;
  using ranks_type = typename Here::communicator_type;
  using manager_type = stage_manager<backend_type, ranks_type, has_replicas>;
  using folder_paths = std::vector<std::filesystem::path>;

  /// @param others   as folders_of_others
  stage_session(const stage_setup& setup, Here& here, chunkmem::bytes device, chunkmem::bytes host,
                folder_paths others = {})
      : setup_{setup},
        start_{device, host},
        others_{std::move(others)},
        files_{own_files(setup, here.stage(), others_)},
        here_{here},
        buffers_{setup.grid.plan, here.stage(), setup.inputs()},
        memory_{{.device_capacity = device, .host_capacity = host}},
        manager_{manager_of_stage<manager_type>(setup, here, memory_)},
        trainer_{manager_, setup.chosen.size, setup.grid.plan, here, setup.text, setup.settings(), setup.workers}
  {
  }
  stage_session(const stage_session&) = delete;

  /// The folders of all stages that were saved, unless each stage resumes from its own.
  /// @throws problem   this training would be saved into folders of other stages, or one of the folders is missing
  [[nodiscard]] static folder_paths folders_of_others(const stage_setup& setup)
  {
    constexpr std::size_t most_stages = 64;
    folder_paths found;
    const options& chosen = setup.chosen;
    if (!setup.is_limited || !chosen.resume || has_replicas) return found;
    const std::uint32_t stages = setup.grid.plan.stage_count();
    const auto has_hole = [&](std::size_t stage) { return found.size() != stage; };
    bool are_here = true;  // the same number of stages, all with files of a save
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

  /// The memory that the stage needs. Stages do not communicate in a rehearsal.
  [[nodiscard]] auto rehearse()
  {
    return manager_.rehearse([this] {
      const auto boundaries = lease_boundaries(manager_, buffers_);
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
    const display* const told = prints ? show : nullptr;
    if (const std::string found = saves.resume(saved); prints && !found.empty()) show->line(found);
    if (prints && setup_.chosen.metrics) metrics_.emplace(*setup_.chosen.metrics, trainer_.updates());
    verify_progress again{show == nullptr && trainer_.has_loss() && here_.replica() == 0, trainer_.updates()};
    trainer_.on_update([&](std::uint32_t it) {
      if (prints) tell(*show, it);
      follow(told);
      again.tell(it + std::size_t{1}, setup_.chosen.steps);
    });
    trainer_.on_question([this] { return is_told_to_end(); });
    if (files_.checkpoint)
      trainer_.on_save([&](std::uint32_t it) { return saves.is_due(it + std::size_t{1}) || trainer_.is_end(it); },
                       [&](std::uint32_t it) {
                         const std::string what = saves.save_after(it + std::size_t{1}, saved, trainer_.is_end(it));
                         was_saved_ = true;
                         if (prints) show->line(what);
                       });
    if (setup_.is_limited) foresee(told);
    before_ = clock::now();
    report_before_ = manager_.report();
    backend_type couriers{{}};  // links need agents of their own: one backend may have too few
    auto links = here_.links(couriers);
    {
      const auto boundaries = lease_boundaries(manager_, buffers_);
      chunkmem::pipeline::stage_runner runner{setup_.grid.plan, links, couriers, buffers_,
                                              std::as_writable_bytes(boundaries.template span<std::uint8_t>())};
      trainer_.begin();
      watch_.begin_step();
      runner.run(trainer_, trainer_.updates());
      trainer_.end();
    }
    if (metrics_) metrics_->finish();
    const training_result result = agreed_result();
    if (!prints) return result;
    if (result.signal != 0) show->line(end_of(setup_.chosen, result));
    print_json(setup_.chosen, result, manager_.report().json());
    return result;
  }

 private:
  [[nodiscard]] static std::string folder_of(std::size_t stage) { return "stage-" + std::to_string(stage); }
  using clock = std::chrono::steady_clock;

  /// Prints the bytes of the steps to come, which every stage simulates. Measures the links. Every rank makes this
  /// call. Without enough steps to compare nothing is simulated. @param show   null prints nothing
  void foresee(const display* show)
  {
    if (trainer_.updates() + first_steps::all > setup_.grid.plan.batches) return;
    said_ = foresee_stage(setup_, here_.stage(), here_.replica(), start_.device, start_.host);
    gathers_ = measured_gathers(memory_, here_.all());
    is_resumed_ = trainer_.updates() > 0;
    std::vector<std::uint64_t> mine = words_of(said_.compared);
    mine.push_back(said_.fits);
    const auto all = exchanged(here_.all(), mine);
    is_foreseen_ = std::ranges::all_of(all, [](const auto& words) { return words.back() == 1; });
    if (show == nullptr) return;
    if (!is_foreseen_) return show->line("expect  the next steps cannot be simulated");
    for (std::uint32_t stage = 0; stage < all.size(); ++stage) {
      const step_account it = account_of(all[stage]);
      show->line("expect  stage " + std::to_string(stage) + ": " + bytes_told(it));
    }
  }
  /// Called after an update.
  void follow(const display* show)
  {
    if (!is_foreseen_ || watch_.done() == first_steps::all) return;
    watch_.end_step();
    watch_.begin_step();
    if (watch_.done() <= first_steps::measured) trainer_.run_times().end_batch(watch_.done() > 1);
    if (watch_.done() == first_steps::measured) say_seconds(show);
    if (watch_.done() == first_steps::all) compare(show);
  }
  /// Simulates the schedule with the measured times of all stages, on the rank that prints. Every rank makes this call.
  void say_seconds(const display* show)
  {
    std::vector<double> seconds = trainer_.run_times().seconds();
    seconds.insert(seconds.end(), gathers_.seconds.begin(), gathers_.seconds.end());
    std::vector<std::uint64_t> words;
    for (const double it : seconds) words.push_back(std::bit_cast<std::uint64_t>(it));
    for (const auto& others : exchanged(here_.all(), words))
      for (std::size_t at = 0; at < words.size(); ++at)
        seconds[at] = std::max(seconds[at], std::bit_cast<double>(others[at]));
    if (show == nullptr) return;
    std::copy_n(seconds.end() - 2, 2, gathers_.seconds.begin());
    const schedule_type& plan = setup_.grid.plan;
    const auto network = gathers_.costs(plan.stage_count());
    const auto costs =
        costs_of_runs(plan, seconds, setup_.inputs().front(),
                      {.latency = gathers_.seconds[0], .bytes_per_second = network.network_bytes_per_second});
    const auto begun = static_cast<std::uint32_t>(trainer_.updates() - first_steps::measured);
    constexpr std::uint32_t before = first_steps::measured + first_steps::settling;
    said_.compared.seconds = seconds_between_updates(plan, costs, here_.stage(), begun + before,
                                                     begun + static_cast<std::uint32_t>(first_steps::all));
    show->line("expect  " + seconds_told(said_.compared.seconds) + " a step");
  }
  /// Compares the forecast of each stage with its measured steps.
  void compare(const display* show)
  {
    std::vector<std::uint64_t> mine = words_of(watch_.seen());
    mine.push_back(manager_.report().divergences);
    const auto said = exchanged(here_.all(), words_of(said_.compared));
    const auto seen = exchanged(here_.all(), mine);
    if (show == nullptr) return;
    unforeseen events{.is_resumed = is_resumed_, .was_saved = was_saved_, .skipped = trainer_.skipped()};
    std::vector<step_account> all_said, all_seen;
    for (const auto& words : said) all_said.push_back(account_of(words));
    for (const auto& words : seen) {
      all_seen.push_back(account_of(words));
      events.divergences += words.back();
    }
    std::string text = compared_stages(setup_.chosen, all_said, all_seen, here_.stage(), events);
    text.pop_back();  // a line ends itself
    show->line(text);
  }
  /// The seconds, bytes and peak of an account, as words that stages exchange.
  [[nodiscard]] static std::vector<std::uint64_t> words_of(const step_account& it)
  {
    return {std::bit_cast<std::uint64_t>(it.seconds), std::bit_cast<std::uint64_t>(it.loaded),
            std::bit_cast<std::uint64_t>(it.written_back), it.device_peak.count()};
  }
  [[nodiscard]] static step_account account_of(const std::vector<std::uint64_t>& words)
  {
    return {.seconds = std::bit_cast<double>(words[0]),
            .loaded = std::bit_cast<double>(words[1]),
            .written_back = std::bit_cast<double>(words[2]),
            .device_peak = chunkmem::bytes{words[3]}};
  }
  void tell(const display& show, std::uint32_t batch)
  {
    const auto now = clock::now();
    const double seconds = std::chrono::duration<double>(now - before_).count();
    const chunkmem::report after = manager_.report();
    const step_figures figures =
        step_of(setup_.chosen, trainer_, report_before_, after,
                {.number = batch + std::size_t{1},
                 .loss = trainer_.loss(batch),
                 .learning_rate = trainer_.settings().schedule.at(batch),
                 .tokens_per_second = static_cast<double>(trainer_.tokens_of_batch()) / seconds,
                 .skipped = trainer_.skipped() > skipped_,
                 .seconds = seconds});
    show.step(figures);
    if (metrics_) metrics_->add(figures);
    before_ = now;
    report_before_ = after;
    skipped_ = trainer_.skipped();
  }
  /// Tells whether a rank received a signal: all ranks see it in the same update.
  [[nodiscard]] bool is_told_to_end()
  {
    for (const auto& words :
         exchanged(here_.world(), {static_cast<std::uint64_t>(command_line::interruption::signal())}))
      signal_ = std::max(signal_, static_cast<int>(words.front()));
    return signal_ != 0;
  }

  /// The losses, and a hash of the weights of all stages in the order of the model.
  /// @throws problem   copies of a weight differ, of replicas or of a tied one
  [[nodiscard]] training_result agreed_result()
  {
    training_result result{.losses = {}, .steps = trainer_.updates(), .signal = signal_};
    std::vector<std::uint64_t> losses(result.steps, 0);
    if (trainer_.has_loss())
      for (std::size_t batch = 0; batch < losses.size(); ++batch)
        losses[batch] = std::bit_cast<std::uint32_t>(trainer_.loss(batch));
    const std::vector<std::vector<std::uint64_t>> all_losses = exchanged(here_.world(), losses);
    for (const std::uint64_t word : all_losses[setup_.grid.plan.owners.back()])  // of the first replica
      result.losses.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
    const std::vector<std::vector<std::uint64_t>> hashes = exchanged(here_.world(), trainer_.hashes());
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
  /// Words of every rank of a group.
  [[nodiscard]] static std::vector<std::vector<std::uint64_t>> exchanged(ranks_type& group,
                                                                         const std::vector<std::uint64_t>& mine)
  {
    std::vector<std::uint64_t> all(mine.size() * group.ranks());
    group.exchange(mine, all);
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

  using schedule_type = chunkmem::pipeline::schedule;

  stage_setup setup_;
  training_start start_;
  folder_paths others_;
  options files_;
  Here& here_;
  chunkmem::pipeline::boundary_buffers buffers_;
  backend_type memory_;
  manager_type manager_;
  stage_trainer<manager_type, Here> trainer_;
  step_meter<manager_type> meter_{manager_};
  step_watch<manager_type> watch_{manager_, meter_};
  foreseen_steps said_;
  gather_times gathers_;
  bool is_foreseen_ = false;
  bool is_resumed_ = false;
  bool was_saved_ = false;
  clock::time_point before_;
  chunkmem::report report_before_;
  int signal_ = 0;  // received by any rank
  std::optional<metrics_file> metrics_;
  std::size_t skipped_ = 0;
};

/// The room of a stage in the plan, or the part of it that the stage can use. @param need   of the stage
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

/// The memory that a stage needs and the memory that it is given.
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

/// Prints the lines before the first step: the schedule, and each stage. Every stage makes this call.
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

/// True on the stage of the last part in the first pipeline: it prints.
template <class Here>
[[nodiscard]] bool prints(const training_grid& grid, Here& here)
{
  return here.replica() == 0 && here.stage() == grid.plan.owners.back();
}

template <bool has_replicas, class Here>
[[nodiscard]] training_result train_stage(const stage_setup& setup, Here& here, const display* show)
{
  using session_type = stage_session<Here, has_replicas>;
  auto others = session_type::folders_of_others(setup);  // before a faster stage makes a folder
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
