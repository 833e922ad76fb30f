// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../interruption.hpp"
#include "budget.hpp"
#include "checkpoints.hpp"
#include "display.hpp"
#include "followed_training.hpp"
#include "foresight.hpp"
#include "gather_times.hpp"
#include "metrics.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "run.hpp"

#include <chunkmem/core/ids.hpp>
#include <chunkmem/ownership/ownership_policy.hpp>
#include <chunkmem/sharding/zero.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpt {

/// How ranks divide a model.
struct rank_plan {
  chunkmem::sharding::zero divided;
  std::uint32_t of_node = 1;  ///< ranks that divide it; as many copies as nodes

  /// A ZeRO stage where there are `ranks`. In stage 0 a rank divides the model with itself alone.
  /// @throws problem   the ranks do not fill the nodes
  [[nodiscard]] static rank_plan of(const options& chosen, std::uint32_t ranks)
  {
    using namespace chunkmem::sharding;
    constexpr zero stages[] = {zero_1, zero_1, zero_2, zero_3};
    const unsigned stage = chosen.shard.value_or(3);
    if (ranks % chosen.nodes != 0)
      throw problem{std::to_string(ranks) + " ranks do not fill --nodes " + std::to_string(chosen.nodes) +
                    " (start a multiple)"};
    return {stages[stage], stage == 0 ? 1 : ranks / static_cast<std::uint32_t>(chosen.nodes)};
  }
  /// A plan that divides memory in another way and has the same sums.
  [[nodiscard]] rank_plan other() const
  {
    return {{.gradients = divided.gradients, .parameters = !divided.parameters}, of_node};
  }
};

/// One rank: its device, its part of the model, and the trainer that works on it.
///
/// Every rank computes on rows of its own; the loss of a step is the mean of all of them, in order of ranks.
/// @tparam Place   a rank and the parts of its training, see rank_on_host: `communicator_type`, `backend_type`,
///   `manager_type`, `model_type` and `trainer_type`; `process_groups()`, `memory`, `manager`, `declare`, `plan`,
///   `limits` and `largest_tensor_bytes`; `foresees`: its steps can be run on virtual clocks
template <class Place>
class rank_session : public any_session<Place> {
 public:
  rank_session(const training_setup& setup, const Place& here, const rank_plan& plan, chunkmem::bytes device,
               chunkmem::bytes host)
      : rank_session::any_session{setup,
                                  settings(setup, ranks_at(here)),
                                  device,
                                  host,
                                  [&] { return here.memory(device, host); },
                                  [&](auto& memory) { return here.manager(memory, setup, plan); }},
        plan_{plan},
        ranks_{ranks_at(here)}
  {
  }

  /// Rehearses, fills the weights or resumes a saved training, and trains.
  /// @param show   null trains silently @param saves   null saves nothing; has the same folders on every rank
  /// @throws problem   ranks ended with different weights; the saved training had more or fewer rows in a step
  [[nodiscard]] training_result train(const display* show, checkpoints<files_of_model>* saves)
  {
    (void)this->rehearse();
    gpt::fill(manager_, net_, setup_.chosen.seed, setup_.workers, memory_watch<typename Place::backend_type>{show});
    const std::string begun = import_weights(manager_, setup_.chosen);
    if (show != nullptr && !begun.empty()) show->line(begun);
    const std::string found = saves == nullptr ? std::string{} : saves->resume(manager_);
    progress_.check();
    if constexpr (requires { trainer_.samples(); })
      if (trainer_.samples() != nullptr) trainer_.samples()->check_ratios();
    if (show != nullptr && !found.empty()) show->line(found);
    follow(show);
    const bool is_second = saves == nullptr && chunkmem::index_of(ranks_.rank()) == 0;
    this->take_steps(
        show, saves, is_second, [this](float loss) { return mean(loss); }, [this] { return signal_; });
    const training_result result = progress_.result(trainer_.parameter_hash(), signal_);
    for (const std::uint64_t other : all(result.parameter_hash))
      if (other != result.parameter_hash)
        throw problem{"ranks ended with different weights: this must not happen, please report it"};
    return result;
  }

  /// A step in virtual time.
  struct timed_step {
    double seconds = 0;
    double operations = 0;
  };
  /// The mean of some steps in the steady state, on clocks of the backend.
  [[nodiscard]] timed_step steady_step()
  {
    constexpr std::size_t warm_up = first_steps::all, measured = 4;
    (void)this->rehearse();
    gpt::fill(manager_, net_, setup_.chosen.seed, setup_.workers);
    follow(nullptr);
    std::size_t number = 0;
    while (number < warm_up) {
      this->begin_step();
      (void)trainer_.step(number++);
      this->end_step();
    }
    const std::uint64_t begin = memory_.now();
    const part_operations operations = memory_.operations();
    while (number < warm_up + measured) (void)trainer_.step(number++);
    timed_step mean{.seconds = static_cast<double>(memory_.now() - begin) * 1e-9 / measured};
    for (std::size_t part = 0; part < step_parts; ++part)
      mean.operations += (memory_.operations()[part] - operations[part]) / measured;
    return mean;
  }

 private:
  using ranks_type = typename Place::communicator_type;
  using base = any_session<Place>;
  using base::setup_, base::start_, base::is_resumed_, base::memory_, base::manager_, base::net_, base::trainer_,
      base::progress_, base::followed_;

  /// Follows the first steps from now on, if this training has a forecast. Every rank makes this call.
  void follow(const display* show)
  {
    if constexpr (Place::foresees) {
      if (!setup_.is_followed) return;
      is_resumed_ = progress_.step() > 0;
      const auto agree = [this](std::span<double> numbers) {
        for (double& number : numbers)
          for (const std::uint64_t word : all(std::bit_cast<std::uint64_t>(number)))
            number = std::max(number, std::bit_cast<double>(word));
      };
      gather_times gathers = measured_gathers(memory_, ranks_);
      agree(gathers.seconds);
      const auto network = gathers.costs(ranks_.ranks());
      if (show != nullptr) show->line(gathers.told());
      const auto look = [this, network](const chunkmem::activation::activation_plan& later, const clock_rates& rates) {
        return gpt::foresee(setup_, later, start_, rates, plan_, network, ranks_.rank());
      };
      foresight ahead{setup_.chosen,
                      setup_.plan,
                      room_for_activations(start_, setup_.plan),
                      setup_.chosen.size.parameters() / setup_.owners,
                      look,
                      agree};
      followed_.emplace(manager_, trainer_, net_, std::move(ahead), show).measure_links();
    }
  }
  [[nodiscard]] static ranks_type& ranks_at(const Place& here)
  {
    return here.process_groups().of(chunkmem::ownership::process_group::all);
  }
  [[nodiscard]] static trainer_settings settings(const training_setup& setup, const ranks_type& ranks)
  {
    trainer_settings result = setup.settings();
    result.rank = chunkmem::index_of(ranks.rank());
    result.ranks = ranks.ranks();
    return result;
  }
  /// One word of every rank, in the order of ranks.
  [[nodiscard]] std::vector<std::uint64_t> all(std::uint64_t mine)
  {
    std::vector<std::uint64_t> words(ranks_.ranks());
    ranks_.exchange({&mine, 1}, words);
    return words;
  }
  /// The mean of all ranks. Each word also carries the signal that its rank received: all ranks see it in the same
  /// step.
  [[nodiscard]] float mean(float loss)
  {
    double sum = 0.0;
    const auto sent = static_cast<std::uint64_t>(command_line::interruption::signal());
    for (const std::uint64_t word : all(sent << 32 | std::bit_cast<std::uint32_t>(loss))) {
      sum += static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
      signal_ = std::max(signal_, static_cast<int>(word >> 32));
    }
    return static_cast<float>(sum / static_cast<double>(ranks_.ranks()));
  }

  rank_plan plan_;
  ranks_type& ranks_;
  int signal_ = 0;  // received by any rank, see mean
};

/// The need and the capacities of a rank. @throws problem   see check
template <class Place>
[[nodiscard]] memory_budget budget_of_rank(const training_setup& setup, const Place& here, const rank_plan& plan)
{
  const auto need = rank_session<Place>{setup, here, plan, boundless, boundless}.rehearse();
  return settled_budget(setup, need, here.limits(setup.chosen), [&] {
    return rank_session<Place>{setup.without_plan(), here, plan.other(), boundless, boundless}.rehearse();
  });
}

/// A rank's part of the training of the command line, with its plan of activations.
template <class Place>
[[nodiscard]] training_setup setup_of_rank(const options& chosen, const training_text& text, const Place& here,
                                           const rank_plan& plan, chunkmem::optimizer::thread_pool& workers)
{
  const chunkmem::bytes grain{std::uint64_t{plan.of_node} * 16384};
  training_setup setup{
      chosen, text, workers,
      align_up(chosen.chunk_bytes.value_or(chunkmem::bytes{Place::largest_tensor_bytes(chosen.size)}), grain)};
  setup.owners = plan.of_node;
  setup.is_followed = Place::foresees;
  choose_activations<Place>(setup, [&] {
    return rank_session<Place>{setup, here, plan, boundless, boundless}.rehearse();
  });
  return setup;
}

/// A steady step of a rank whose place has virtual clocks.
template <class Place>
[[nodiscard]] auto timed_step_of_rank(const options& chosen, const training_text& text, const Place& here,
                                      const rank_plan& plan)
{
  chunkmem::optimizer::thread_pool workers{chosen.threads.value_or(1)};
  const training_setup setup = setup_of_rank(chosen, text, here, plan, workers);
  const memory_budget budget = budget_of_rank(setup, here, plan);
  return rank_session<Place>{setup, here, plan, budget.device, budget.host}.steady_step();
}

/// Runs one rank. Rank 0 prints. @return   the exit status of the program
template <class Place>
[[nodiscard]] int run_rank(const options& chosen, const training_text& text, const display& show, const Place& here,
                           const rank_plan& plan, std::string_view kind)
{
  check_checkpoints(chosen);
  const auto world = here.process_groups().world();
  const bool prints = chunkmem::index_of(here.process_groups().of(chunkmem::ownership::process_group::all).rank()) == 0;
  if (prints) check_metrics(chosen);
  chunkmem::optimizer::thread_pool workers{chosen.threads.value_or(1)};
  const training_setup setup = setup_of_rank(chosen, text, here, plan, workers);
  const memory_budget budget = budget_of_rank(setup, here, plan);
  training_result limited;
  {
    checkpoints<files_of_model> saves{chosen};
    rank_session<Place> session{setup, here, plan, budget.device, budget.host};
    if (prints) {
      show.line("ranks   " + std::to_string(world.ranks) + " " + std::string{kind} + ", divided in stage " +
                std::to_string(chosen.shard.value_or(3)) + " of ZeRO over " + std::to_string(plan.of_node) +
                "; what follows is for each");
      show.header(chosen, text, budget, setup.chunk);
    }
    limited = session.train(prints ? &show : nullptr, &saves);
    if (prints) {
      show.closing(chosen, session.figures());
      if (limited.signal != 0) show.line(end_of(chosen, limited));
      print_json(chosen, limited, session.report_json());
    }
  }
  if (limited.signal != 0) return command_line::interruption::exit_status(limited.signal);
  if (!chosen.verify) return EXIT_SUCCESS;
  if (prints)
    show.line("verify: training again with unlimited device memory and weights " +
              std::string{plan.divided.parameters ? "whole on each rank" : "divided"} + " ...");
  const training_result other =
      rank_session<Place>{setup.without_plan(), here, plan.other(), budget.unlimited_device, budget.unlimited_host}
          .train(nullptr, nullptr);
  if (other.signal != 0) {
    if (prints) show.line(end_of_verify(other));
    return command_line::interruption::exit_status(other.signal);
  }
  if (prints) return show.verdict(limited, other) ? EXIT_SUCCESS : EXIT_FAILURE;
  return limited.parameter_hash == other.parameter_hash ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace gpt
