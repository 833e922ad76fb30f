// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "drawn_job.hpp"

#include <chunkmem/activation/checkpointed.hpp>
#include <chunkmem/collective/local_threads.hpp>
#include <chunkmem/manager/manager.hpp>
#include <chunkmem/optimizer/adam.hpp>
#include <chunkmem/optimizer/early_updates.hpp>
#include <chunkmem/optimizer/late_updates.hpp>
#include <chunkmem/placement/placements.hpp>
#include <chunkmem/sharding/sharded_model.hpp>
#include <chunkmem/sharding/thread_ranks.hpp>
#include <chunkmem/transfer/planned.hpp>
#include <chunkmem/transfer/transfers.hpp>
#include <support/throttled_arena.hpp>
#include <support/throttled_ranks.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace out_of_core {

/// Adam whose updates take time on the host at a given rate.
class throttled_adam {
 public:
  static constexpr std::string_view name = "throttled_adam";

  throttled_adam(support::throttled_arena& memory, double parameters_per_second)
      : memory_{&memory}, nanoseconds_{1e9 / parameters_per_second}
  {
  }
  [[nodiscard]] std::span<const cm::list_spec> lists() const noexcept { return adam_.lists(); }
  void update(const cm::optimizer::update_spans& spans, const cm::optimizer::step_settings& settings) const noexcept
  {
    adam_.update(spans, settings);
    const double lasts = static_cast<double>(spans.parameter.size()) * nanoseconds_;
    memory_->advance(cm::agent::host, static_cast<std::uint64_t>(lasts));
  }

  // On the device, the launcher of its kernels takes the time.
  using device_factors = cm::optimizer::adam::device_factors;
  [[nodiscard]] decltype(auto) options(cm::group_id group) const noexcept { return adam_.options(group); }
  template <class Visit>
  void with_arithmetic(cm::group_id group, Visit&& visit) const
  {
    adam_.with_arithmetic(group, std::forward<Visit>(visit));
  }

  cm::optimizer::step_progress progress;

 private:
  support::throttled_arena* memory_;
  double nanoseconds_;  // of a parameter
  cm::optimizer::adam adam_;
};

using any_transfer =
    cm::transfer::any_transfer<cm::transfer::lookahead, cm::transfer::no_prefetch, cm::transfer::planned>;

/// Room to undo all updates of a rank: a value, two moments and a master each.
[[nodiscard]] inline cm::bytes undo_of(const job& it)
{
  return cm::align_up(cm::bytes{14 * it.tensors() * elements_of_tensor / ranks}, frame);
}

/// The settings of a training.
struct variant {
  const char* name = "";
  any_transfer transfer{cm::transfer::planned{}};
  bool sums_in_backward = true;  ///< else a step sums all gradients
  moment_of_updates when = moment_of_updates::at_once;
  cm::activation::activation_plan plan;
};

/// The work in which a rank began to wait: a run of a layer, or the step after the last run. As a number,
/// for throttled_arena::note_place.
struct place_in_step {
  enum class part : std::uint8_t { forward, backward, step };
  part during = part::step;
  std::uint32_t layer = 0;

  static constexpr std::uint32_t most_layers = 1000;
  [[nodiscard]] constexpr std::uint32_t number() const noexcept
  {
    return static_cast<std::uint32_t>(during) * most_layers + layer;
  }
  [[nodiscard]] static constexpr place_in_step of(std::uint32_t number) noexcept
  {
    return {static_cast<part>(number / most_layers), number % most_layers};
  }
};

/// One rank of a training whose compute, copies, collectives and updates take time by the clocks of its agents.
class rank_of_job {
 public:
  using end_type = support::throttled_ranks<cm::collective::local_threads>;
  using ranks_type = cm::sharding::sums_apart<end_type>;
  using model_type = cm::sharded_model<support::throttled_arena, ranks_type, any_transfer, cm::placement::update_share>;

  rank_of_job(const job& it, const variant& how, ranks_type& group, support::throttled_arena& memory)
      : job_{it},
        how_{how},
        memory_{memory},
        kernel_{memory, it.host_updates_per_second},
        model_{memory,
               group,
               {.chunk_bytes = it.chunk()},
               {.divided = it.divided, .sum_scale = 1.0F / ranks, .unit_bytes = frame},
               how.transfer,
               cm::placement::update_share{0.0}},
        network_{model_.shares(), {.budget = it.budget()}},
        late_{model_, kernel_},
        early_{model_, kernel_, undo_of(it)}
  {
    model_.use(kernel_);
    for (std::uint32_t index = 0; index < it.layers.size(); ++index) declare(index);
    network_.use(how.plan);
  }
  rank_of_job(const rank_of_job&) = delete;

  [[nodiscard]] cm::memory_requirement rehearse()
  {
    return model_.rehearse([this] { step(0); });
  }
  void fill()
  {
    for (const tensors_of_layer& it : parts_)
      for (const auto weight : it.weights) {
        const auto pin = model_.acquire(weight, cm::access::write);
        std::ranges::fill(pin.span(), cm::round_to<cm::bf16>(1.0F));
      }
  }
  void step(std::uint64_t number)
  {
    auto iteration = model_.iteration();
    network_.run(iteration, {.step = number});
    memory_.note_place(place_in_step{}.number());
    // as with a limit on the norm, a step that skips infinities and NaN needs all gradients before the first update
    const cm::optimizer::step_options options{
        .learning_rate = 1e-3F, .clip = {.norm = job_.clips ? 1e6F : 0.0F}, .skip_nonfinite = job_.clips};
    switch (how_.when) {
      case moment_of_updates::late: late_.step(options); break;
      case moment_of_updates::early: early_.step(options); break;
      default: model_.step(kernel_, options);
    }
  }
  void finish() { model_.finish_updates(); }
  [[nodiscard]] cm::report report() const { return model_.report(); }

 private:
  using network_type = cm::activation::checkpointed<model_type::manager_type, cm::activation::keep_all>;
  using run_type = typename network_type::block_type::run_type;
  using tensor = cm::tensor<std::uint8_t>;
  static constexpr cm::agent compute = cm::agent::compute;

  struct tensors_of_layer {
    std::vector<cm::tensor<cm::bf16>> weights;
    std::vector<tensor> inner;
    tensor output;
    tensor gradient;
  };

  void declare(std::uint32_t index)
  {
    auto& block = network_.add("layer " + std::to_string(index));
    const layer& known = job_.layers[index];
    tensors_of_layer& it = parts_.emplace_back();
    for (std::uint32_t weight = 0; weight < known.weights; ++weight)
      it.weights.push_back(model_.template add<cm::bf16>({elements_of_tensor}, cm::role::parameter));
    const cm::shape of_frame{frame.count()};
    for (std::uint32_t saved = 0; saved < known.saved; ++saved)
      it.inner.push_back(block.template saves<std::uint8_t>(of_frame));
    it.output = block.template outputs<std::uint8_t>(of_frame);
    it.gradient = model_.template add<std::uint8_t>(of_frame, cm::role::activation);
    block.reads_input = index > 0;
    block.forward = [this, index](run_type& run) { forward(index, run); };
    block.backward = [this, index](run_type& run) { backward(index, run); };
  }
  template <class Tensors, class Acquire>
  [[nodiscard]] static auto pinned(const Tensors& wanted, Acquire acquire)
  {
    std::vector<decltype(acquire(wanted.front()))> pins;
    for (const auto each : wanted) pins.push_back(acquire(each));
    return pins;
  }
  [[nodiscard]] auto input_of(std::uint32_t index, run_type& run)
  {
    return pinned(index > 0 ? std::vector{parts_[index - 1].output} : std::vector<tensor>{},
                  [&](tensor each) { return run.input(each, compute); });
  }
  void forward(std::uint32_t index, run_type& run)
  {
    memory_.note_place(place_in_step{place_in_step::part::forward, index}.number());
    const tensors_of_layer& it = parts_[index];
    const auto weights = pinned(it.weights, [&](auto each) { return model_.acquire(each, cm::access::read, compute); });
    const auto input = input_of(index, run);
    const auto inner = pinned(it.inner, [&](tensor each) { return run.save(each, compute); });
    const auto output = run.save(it.output, compute);
    work(job_.layers[index].forward_seconds);
  }
  void backward(std::uint32_t index, run_type& run)
  {
    memory_.note_place(place_in_step{place_in_step::part::backward, index}.number());
    const tensors_of_layer& it = parts_[index];
    {
      const auto restore = [&](tensor each) { return run.restore(each, cm::access::read, compute); };
      const auto inner = pinned(it.inner, restore);
      const auto output = restore(it.output);
      const auto input = input_of(index, run);
      const bool is_last = index + 1 == parts_.size();
      const auto slope = model_.acquire(it.gradient, is_last ? cm::access::write : cm::access::read_write, compute);
      const auto before = pinned(index > 0 ? std::vector{parts_[index - 1].gradient} : std::vector<tensor>{},
                                 [&](tensor each) { return model_.acquire(each, cm::access::write, compute); });
      const auto gradients = pinned(it.weights, [&](auto each) {
        auto weight = model_.acquire(each, cm::access::read, compute);
        return model_.gradient(std::move(weight));
      });
      work(2 * job_.layers[index].forward_seconds);
    }
    model_.drop(it.gradient);
    if (how_.sums_in_backward)
      for (const auto weight : it.weights) model_.gradient_done(weight, compute);
  }
  void work(double seconds)
  {
    if (!model_.rehearsing()) memory_.advance(compute, static_cast<std::uint64_t>(std::llround(seconds * 1e9)));
  }

  const job& job_;
  const variant& how_;
  support::throttled_arena& memory_;
  throttled_adam kernel_;
  model_type model_;
  network_type network_;
  cm::optimizer::late_updates<model_type, throttled_adam> late_;
  cm::optimizer::early_updates<model_type, throttled_adam> early_;
  std::vector<tensors_of_layer> parts_;
};

/// Times, bytes and waits of a training.
struct measured {
  double seconds = 0;       ///< of a step, by the clocks of the agents: the slowest rank's mean
  double wall_seconds = 0;  ///< the same by the clock on the wall
  cm::bytes up{};           ///< of a step of rank 0
  cm::bytes down{};
  double port_busy = 0;  ///< of a step of rank 0
  std::uint64_t divergences = 0;
  std::uint64_t clean_starts = 0;
  std::uint64_t plans = 0;
  std::vector<support::agent_wait> compute_waits;  ///< of rank 0, all measured steps
  std::vector<support::agent_wait> caller_waits;
};

inline constexpr int warm_up = 6;
inline constexpr int steps = 6;

/// The clocks and the group of sums that all ranks of a training share.
struct shared_by_ranks {
  support::clocks_of_ranks clocks_of_gathers;
  support::clocks_of_ranks clocks_of_sums;
  cm::collective::thread_group sums{ranks};
};

/// One rank of a job on its own device, host and port.
struct throttled_rank {
  throttled_rank(const job& it, const variant& how, cm::sharding::thread_ranks::place& here, shared_by_ranks& all,
                 cm::bytes device, cm::bytes host)
      : memory{{.device_capacity = device, .host_capacity = host, .async_compute = true},
               support::links_alone(it.link_bytes_per_second, it.link_bytes_per_second),
               support::pace::agents},
        port{{0, it.network_bytes_per_second}},
        sums{all.sums, cm::rank_id{here.rank()}},
        gathers_end{here.all(), memory, port, all.clocks_of_gathers},
        sums_end{sums, memory, port, all.clocks_of_sums},
        group{gathers_end, sums_end},
        rank{it, how, group, memory}
  {
  }

  support::throttled_arena memory;
  support::network_port port;
  cm::collective::local_threads sums;
  rank_of_job::end_type gathers_end;
  rank_of_job::end_type sums_end;
  rank_of_job::ranks_type group;
  rank_of_job rank;
};

/// The least device of a job, by a rehearsal of one rank.
[[nodiscard]] inline cm::memory_requirement needed_by(const job& it, const variant& how)
{
  cm::memory_requirement need;
  constexpr cm::bytes boundless{std::uint64_t{1} << 46};
  shared_by_ranks all_ranks;
  cm::sharding::thread_ranks{ranks}.run([&](cm::sharding::thread_ranks::place& here) {
    throttled_rank run{it, how, here, all_ranks, boundless, boundless};
    const cm::memory_requirement found = run.rank.rehearse();
    if (here.rank() == 0) need = found;
  });
  return need;
}

[[nodiscard]] inline measured train(const job& it, const variant& how, cm::bytes device, cm::bytes host)
{
  measured all;
  shared_by_ranks all_ranks;
  std::vector<double> seconds(ranks);
  std::vector<double> wall(ranks);
  cm::sharding::thread_ranks{ranks}.run([&](cm::sharding::thread_ranks::place& here) {
    throttled_rank run{it, how, here, all_ranks, device, host};
    support::throttled_arena& memory = run.memory;
    support::network_port& port = run.port;
    rank_of_job& rank = run.rank;
    rank.fill();
    memory.begin_afresh();
    std::uint64_t number = 0;
    for (int step = 0; step < warm_up; ++step) rank.step(number++);
    const cm::report before = rank.report();
    const auto busy = port.busy();
    const std::size_t waits[] = {memory.waits_of(cm::agent::compute).size(), memory.waits_of(cm::agent::host).size()};
    const auto begin = memory.caller_clock();
    const auto wall_begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) rank.step(number++);
    const auto end = memory.caller_clock();
    seconds[here.rank()] = std::chrono::duration<double>{end - begin}.count() / steps;
    wall[here.rank()] = std::chrono::duration<double>{std::chrono::steady_clock::now() - wall_begin}.count() / steps;
    const cm::report after = rank.report();
    const auto sent = port.busy() - busy;
    rank.finish();
    for (std::size_t agent = 0; agent < memory.agents(); ++agent)
      memory.wait(cm::agent::host, memory.record(static_cast<cm::agent>(agent)));
    if (here.rank() != 0) return;
    const cm::report moved = after.copies_since(before);
    all.up = cm::bytes{moved.loaded.count() / steps};
    all.down = cm::bytes{moved.written_back.count() / steps};
    all.port_busy = std::chrono::duration<double>{sent}.count() / steps;
    all.divergences = after.divergences - before.divergences;
    all.clean_starts = after.clean_starts - before.clean_starts;
    all.plans = after.replans - before.replans;
    const auto rest = [](const auto& from, std::size_t first) {
      return std::vector<support::agent_wait>(from.begin() + static_cast<std::ptrdiff_t>(first), from.end());
    };
    all.compute_waits = rest(memory.waits_of(cm::agent::compute), waits[0]);
    all.caller_waits = rest(memory.waits_of(cm::agent::host), waits[1]);
  });
  all.seconds = *std::ranges::max_element(seconds);
  all.wall_seconds = *std::ranges::max_element(wall);
  return all;
}

}  // namespace out_of_core
